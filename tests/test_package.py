import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import inosgm
from inosgm import demo
from inosgm.cli import app


def run(code):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_import_is_light():
    heavy = run("import sys, inosgm; print([m for m in ('torch', 'ray', 'numpy', 'scipy') if m in sys.modules])")
    assert heavy.strip() == "[]"


def test_the_core_does_not_need_torch_or_ray():
    code = "import sys; from inosgm import *; print([m for m in ('torch', 'ray', 'matplotlib') if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_every_public_name_resolves_and_is_typed():
    typed = set()
    with open(inosgm.__file__, encoding="utf-8") as source:
        for line in source:
            if line.startswith("    from inosgm."):
                typed.add(line.split(" as ")[1].strip())
    assert typed == set(inosgm.__all__) - {"__version__"}
    for name in inosgm.__all__:
        assert getattr(inosgm, name) is not None
    assert set(dir(inosgm)) == set(inosgm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Tales'"):
        inosgm.Tales  # noqa: B018


def test_demo_brings_the_mean_of_the_private_owners_values_closer():
    area = demo.run(key=1)[0]
    assert abs(area.ordered - area.true) < abs(area.plain - area.true)
    result = CliRunner().invoke(app, ["demo", "--key", "1"])
    assert result.exit_code == 0
    assert "INO-SGM" in result.output


def test_demo_plan_spends_what_was_granted():
    """Against the tight Gaussian trade-off, integrated numerically: delta(epsilon) of N(0, 1) and N(mu, 1)."""
    plan = demo.plan_one_release({"benign": 357, "malignant": 212})
    x = np.linspace(-40, 40, 2_000_001)
    for label, multiplier in zip(plan.labels, plan.noise_multipliers, strict=True):
        p, q = (np.exp(-((x - m) ** 2) / 2) / np.sqrt(2 * np.pi) for m in (1 / multiplier, 0.0))
        delta = np.trapezoid(np.maximum(p - np.exp(demo.EPSILON[label]) * q, 0), x)
        np.testing.assert_allclose(delta, demo.DELTA, rtol=1e-4)


def test_certify_command():
    result = CliRunner().invoke(app, ["certify", "--evaluations", "5"])
    assert result.exit_code == 0
    assert "no sensitivity exceeded" in result.output
