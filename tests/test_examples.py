"""Every example runs."""

import runpy
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "example", sorted((Path(__file__).parents[1] / "examples").glob("[!_]*.py")), ids=lambda p: p.name
)
def test_example_runs(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
