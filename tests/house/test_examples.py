"""Every example runs, in a small size, and says what it is there to say."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from examples.neighbours import __main__ as neighbours
from examples.study.pages import fill

NEEDS = {"hugging_face_lora": "transformers"}
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "audit_model": ({"shadows": 32, "steps": 40}, ["kept       online-global", "forgotten  loss"]),
    "audit_opacus": (
        {"runs": 300},  # the fixed batches need more: tests/audit/test_black_box.py
        ["Opacus, as it is: not refuted", "noise for the mean: REFUTED", "Opacus, fixed batches"],
    ),
    "federated_average": ({}, ["largest losses first", "epsilon spent by the first and the last client: 2.00 7.99"]),
    "fixed_features": ({"steps": 2, "data": "digits"}, ["pixels", "scattering", "worst owner"]),
    "hugging_face_lora": ({"steps": 2}, ["parameters", "epsilon spent: numpy 2.00", "under the model's own names"]),
    "own_model": ({"steps": 4}, ["INO-SGD: accuracy on 355 held-out records", "epsilon spent: 1.00, 1.7"]),
    "own_score": ({"steps": 3, "seeds": 1}, ["severity", "by rank: score must look at one record at a time"]),
    "own_statistic": ({}, ["geometric mean of the largest fifth", "malignant"]),
    "owners_beyond_classes": ({"steps": 2, "seeds": 1, "rates": (1.0,)}, ["regression", "multi-label", "ASC"]),
    "strict_owners": ({"steps": 2, "seeds": 1}, ["INO-SGD, corrected", "strictest"]),
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


LONG = {"hugging_face_lora"}  # imports transformers and peft


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in SMALL])
def test_example_runs(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"needs {NEEDS[name]}, of the extra 'peers'")
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


def test_the_neighbours_are_compared_and_fill_their_page(capsys, tmp_path):
    page = tmp_path / neighbours.PAGE
    page.write_text(
        "words <!-- IDP_54_37_9 --> old <!-- end --><!-- IDP_54_37_9 against its paper --><!-- end -->",
        encoding="utf-8",
    )
    asked = [
        "--small",
        "--settings",
        "IDP_54_37_9",
        "--methods",
        "dp-sgd",
        "idp-sgd",
        "--seeds",
        "2",
        "--processes",
        "1",
    ]
    for _ in range(2):  # the second time everything is there
        neighbours.main([*asked, "--out", str(tmp_path / "runs"), "--pages", str(tmp_path)])
    (found,) = json.loads((tmp_path / neighbours.NUMBERS).read_text(encoding="utf-8"))
    assert [(one["method"], len(one["accuracy"])) for one in found["methods"]] == [("dp-sgd", 2), ("idp-sgd", 2)]
    filled = page.read_text(encoding="utf-8")
    assert filled.startswith("words <!-- IDP_54_37_9 -->\n\n| method | unit |")
    assert filled.count("| `idp-sgd` |") == 2  # and against the paper
    assert filled == fill(filled, neighbours.texts_of([found]))
    assert "old" not in filled
    assert "4/4 jobs done" in capsys.readouterr().err


def test_the_page_of_the_neighbours_is_made_of_its_numbers():
    place = EXAMPLES.parent / "docs" / "results"
    page, numbers = ((place / name).read_text(encoding="utf-8") for name in (neighbours.PAGE, neighbours.NUMBERS))
    assert fill(page, neighbours.texts_of(json.loads(numbers))) == page
    assert all(f"<!-- {name} -->" in page for name in neighbours.SETTINGS)
