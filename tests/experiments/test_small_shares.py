"""The warning about owners that a plan gives less than a third of their share of a batch."""

import numpy as np
import pytest
from typer.testing import CliRunner

from inosgm import Plan
from inosgm.cli.program import app
from inosgm.datasets import load
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.small_shares import small_shares_warning
from inosgm.planning.sequence import PlanSequence

DIGITS = load("digits")
BY_CLASS = {"by": "class", "epsilon": [0.05, *[2.0] * 9], "delta": 1e-5}
CONFIG = TrainingConfig.from_dict(
    {
        "data": {"name": "digits", "subset": 600},
        "owners": BY_CLASS,
        "model": {"name": "logistic_regression"},
        "plan": {"method": "scale", "steps": 4, "expected_batch": 100, "clip_norm": 1.0},
        "optimizer": {"name": "SGD", "lr": 1.0},
    }
)


def course(sensitivities, sizes=None, **more):
    count = len(sensitivities)
    plan = Plan(
        sample_rates=[0.1] * count,
        sensitivities=sensitivities,
        sizes=[100] * count if sizes is None else sizes,
        noise_scale=1.0,
        steps=4,
        **more,
    )
    return PlanSequence((plan,))


@pytest.mark.parametrize(("first", "warns"), [(0.32, True), (0.35, False), (1.0, False)])
def test_the_threshold_is_a_third_of_the_share_of_the_records(first, warns):
    """One owner of two holds 1 % of the records: its share of a batch is about its relative sensitivity."""
    made = course([first, 1.0], sizes=[10, 990], labels=["0", "1"])
    filled = made.first.batch_shares[0]
    assert filled == pytest.approx(first * 10 / (first * 10 + 990))
    assert (filled < 0.01 / 3) == warns
    assert bool(small_shares_warning(CONFIG, DIGITS, made)) == warns


def test_it_names_the_worst_owners_and_the_remedy():
    labels = [str(digit) for digit in range(10)]
    told = small_shares_warning(CONFIG, DIGITS, course([0.3, 0.1, 0.2, 0.25, *[10.0] * 6], labels=labels))
    assert "owners 1 (0.2% of a batch, 10.0% of the records), 2 (0.3%" in told
    assert "and 1 more" in told
    assert "set adjustment" in told
    assert "docs/guides/strict_owners.md" in told
    drawn = CONFIG.changed({"owners": {"fractions": [0.5, 0.5], "epsilon": [0.1, 2], "delta": 1e-5}})
    told = small_shares_warning(drawn, DIGITS, course([0.1, 1.0]))
    assert "if owners hold different mixes of classes" in told
    adjusted = CONFIG.changed({"adjustment": {"loss": 1.0}})
    assert small_shares_warning(adjusted, DIGITS, course([0.1, *[1.0] * 9])) == ""


def test_stages_count_by_their_steps():
    """An owner without a place in a short first stage, and with its full share later, is not warned about."""
    first = Plan(sample_rates=[0.0, 0.1], sensitivities=[1, 1], sizes=[50, 50], noise_scale=1.0, steps=1)
    second = Plan(
        sample_rates=[0.1, 0.1], sensitivities=[1, 1], sizes=[50, 50], noise_scale=1.0, steps=9, past=[first.segment()]
    )
    assert small_shares_warning(CONFIG, DIGITS, PlanSequence((first, second))) == ""
    assert small_shares_warning(CONFIG, DIGITS, PlanSequence((first,)))
    np.testing.assert_allclose(first.batch_shares, [0, 1])


def test_the_command_warns_once(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(CONFIG.to_yaml())

    def told(*words):
        result = CliRunner().invoke(app, ["train", str(file), *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output.count("WARNING: the plan gives owner 0")

    run = ("--run", str(tmp_path / "run"))
    assert told(*run, "--steps", "1") == 1
    assert told(*run) == 0  # it resumes
    assert told("--run", str(tmp_path / "other"), "--set", "adjustment={loss: 1}") == 0
    seeds = ("--seeds", "2", "--store", str(tmp_path / "store"))
    assert told(*seeds) == 1
    assert told(*seeds) == 0  # all are done
