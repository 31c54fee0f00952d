"""What is installed: the two packages with all their files, nothing else; and the core without heavy libraries."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import inosgm

ROOT = Path(__file__).parents[2]
PACKAGES = ("inosgm", "ray_jobs")
BUILD = "from setuptools import build_meta as made; made.build_wheel('out'); made.build_sdist('out')"
EXTRA = (
    "dp_accounting",
    "jinja2",
    "matplotlib",
    "mlxtend",
    "opacus",
    "pandas",
    "ray",
    "sklearn",
    "tensorboardX",
    "torch",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A directory with a wheel and a source distribution, made from a copy of what is here."""
    clone = tmp_path_factory.mktemp("clone")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, clone)
        elif path.name in (*PACKAGES, "benchmarks", "examples", "tests"):
            shutil.copytree(path, clone / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    (clone / "out").mkdir()
    subprocess.run([sys.executable, "-c", BUILD], cwd=clone, capture_output=True, text=True, check=True)
    return clone / "out"


def files_here():
    """Return the files of the packages, as a clone has them."""
    every = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    return {path.relative_to(ROOT).as_posix() for path in every if path.is_file() and path.suffix != ".pyc"}


def test_a_wheel_has_every_file_of_the_packages_and_no_other(built):
    with zipfile.ZipFile(*built.glob("*.whl")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        told = wheel.read(about).decode()
    assert names == files_here()
    assert {f"{package}/py.typed" for package in PACKAGES} < names
    assert re.search(rf"^Version: {re.escape(inosgm.__version__)}$", told, flags=re.MULTILINE)
    assert re.search(r"^License-Expression: Apache-2.0$", told, flags=re.MULTILINE)


def test_a_source_distribution_has_what_a_build_needs_and_no_half_of_the_tests(built):
    with tarfile.open(*built.glob("*.tar.gz")) as source:
        names = {member.name.partition("/")[2] for member in source.getmembers() if member.isfile()}
    assert files_here() < names
    assert {"pyproject.toml", "README.md", "LICENSE", "LIMITATIONS.md", "constraints.txt"} < names
    assert {name.split("/")[0] for name in names if "/" in name} == {*PACKAGES, "inosgm.egg-info"}


def test_the_version_is_written_in_one_place():
    again = re.compile(rf"(?<![\w.]){re.escape(inosgm.__version__)}(?![\w.])")
    files = [ROOT / "pyproject.toml", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    files += [ROOT / name for name in files_here() if name.endswith(".py")]
    found = [path.relative_to(ROOT).as_posix() for path in files if again.search(path.read_text(encoding="utf-8"))]
    assert found == ["inosgm/__init__.py"]


BARE = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRA}:
            raise ModuleNotFoundError(f"no {{name}} here", name=name)
sys.meta_path.insert(0, Absent())
"""


def run_bare(code, directory):
    """Run code where no extra is installed."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BARE + code], capture_output=True, text=True, cwd=directory
    )


def test_mechanism_plans_ledger_and_statistics_work_without_extras(tmp_path):
    told = run_bare(
        """
import numpy as np
from inosgm import Ledger, Owners, private_mean
owners = Owners(of_record=["a"] * 50 + ["b"] * 50, epsilon={"a": 1.0, "b": 4.0}, delta=1e-5)
ledger = Ledger("ledger", owners=owners)
values = np.arange(100.0)
question = {"bounds": (0, 100), "share": 0.1, "ledger": ledger}
print(np.isfinite(private_mean(values, owners, **question).value))
print([m for m in ("fsspec", "pyarrow", "pydantic", "rich") if m in sys.modules])
from inosgm import *
print(np.isfinite(private_upper_tail_mean(values, owners, level=0.8, **question).value))
print(np.isfinite(private_quantile(values, owners, level=0.5, **question).value))
print(0 < run_statistic("mean", Table.of(values), owners, store="store", key=1, bounds=(0, 100), share=0.1).value < 100)
print(list(ledger.spent()))
""",
        tmp_path,
    )
    assert told.stdout == "True\n[]\nTrue\nTrue\nTrue\n['a', 'b']\n", told.stderr


COMMANDS = {
    "plan": "plan owners.csv --steps 10 --expected-batch 5 --output plan.json",
    "stats": "stats mean table.csv --column wage --owner-column owner --budgets owners.csv --bounds 0 10",
    "certify": "certify --evaluations 5",
    "ledger": "ledger --help",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_of_the_core_work_without_extras(name, tmp_path):
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta,records\na,2,1e-5,9\nb,1,1e-5,9\n")
    (tmp_path / "table.csv").write_text("owner,wage\n" + "a,1\nb,2\n" * 9)
    told = run_bare(
        f"sys.argv = ['inosgm', *{COMMANDS[name].split()}]; from inosgm.cli.program import program; program()", tmp_path
    )
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize(
    ("code", "package", "extra"),
    [
        ("import inosgm; inosgm.Trainer", "torch", "train"),
        ("import inosgm.audit; inosgm.audit.ShadowStudy", "torch", "train"),
        ("import inosgm; inosgm.report", "torch", "train"),
        ("import ray_jobs; ray_jobs.RayExecutor", "ray", "ray"),
        ("from inosgm.jobs.clusters import ray_executor; ray_executor()", "ray", "ray"),
        ("from inosgm.datasets import load; load('digits')", "sklearn", "data"),
        ("from inosgm.datasets import load; load('mnist5k')", "sklearn", "data"),
        ("from inosgm._internal.plugins import plugin; plugin('draw an audit')", "matplotlib", "report"),
        (
            "sys.argv = ['inosgm', 'train', 'breast_cancer.yaml']; from inosgm.cli.program import program; program()",
            "torch",
            "train",
        ),
        ("sys.argv = ['inosgm', 'report', '.']; from inosgm.cli.program import program; program()", "torch", "train"),
    ],
)
def test_a_missing_extra_is_one_sentence_that_names_the_command(code, package, extra, tmp_path):
    shutil.copy(ROOT / "examples/configs/breast_cancer.yaml", tmp_path)
    told = run_bare(code, tmp_path)
    assert told.returncode != 0
    last = told.stderr.splitlines()[-1]
    assert last.endswith(f'this needs {package}, which is not installed: pip install "inosgm[{extra}]"')
