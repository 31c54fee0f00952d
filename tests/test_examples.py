"""Every example runs, in a small size, and says what it is there to say."""

import json
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {
    "audit_model": ({"shadows": 32, "steps": 40}, ["kept       online-global", "forgotten  loss"]),
    "federated_average": ({}, ["largest losses first", "epsilon spent by the first and the last client: 2.00 7.99"]),
    "own_model": ({"steps": 4}, ["INO-SGD: accuracy on 355 held-out records", "epsilon spent: 1.00, 1.7"]),
    "own_score": ({"steps": 3, "seeds": 1}, ["severity", "by rank: score must look at one record at a time"]),
    "own_statistic": ({}, ["geometric mean of the largest fifth", "malignant"]),
    "tail_lengths": (
        {"steps": 2, "seeds": 1, "processes": 1, "store": "tails"},
        ["tail 0.9", "IDP-SGD, rate 8", "drawn in tails/tail-lengths.svg"],
    ),
}


def test_every_example_is_run_here():
    assert {path.stem for path in EXAMPLES.glob("[!_]*.py")} == set(SMALL)
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = [path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb") and path.name[0] != "_"]
    assert [name for name in listed if f"]({name})" not in table] == []


@pytest.mark.parametrize("name", SMALL)
def test_example_runs(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes, said = SMALL[name]
    import_module(f"examples.{name}").main(**sizes)
    told = capsys.readouterr().out
    assert [words for words in said if words not in told] == []


def test_the_first_hour_runs_cell_by_cell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((EXAMPLES / "first_hour.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    first, *cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names = {}
    exec(first, names)
    assert {"STEPS", "SEEDS", "SHADOWS"} < set(names)
    names.update(STEPS=4, SEEDS=1, SHADOWS=32)
    for number, cell in enumerate(cells, start=2):
        exec(compile(cell, f"cell {number} of first_hour.ipynb", "exec"), names)
    assert (tmp_path / "runs/first-hour/strictest.svg").exists()
    assert list(names["found"].methods) == ["dp-sgd", "idp-sgd", "ino-sgd"]
    assert not any(cell.get("outputs") for cell in notebook["cells"])  # what it prints is the reader's
