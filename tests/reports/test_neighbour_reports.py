"""Reports and comparisons of methods whose promises differ: names, looks, units, and budgets that are broken."""

import json

import numpy as np
import pytest

from inosgm import Ledger
from inosgm.experiments import METHODS, ComparisonStudy, train
from inosgm.experiments import SeedStudy as Runs
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.methods import kind_of, methods_of
from inosgm.reports import read
from inosgm.reports.narrative import headline, sentences
from inosgm.reports.page import Page
from inosgm.reports.styles import LOOKS

CONFIG = TrainingConfig.from_dict(
    {
        "data": {"name": "breast_cancer"},
        "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 1}, "delta": 1e-4},
        "model": {"name": "logistic_regression"},
        "plan": {"method": "sample", "steps": 6, "expected_batch": 64, "clip_norm": 1, "accountant": "rdp"},
        "tail": {"kind": "linear", "fraction": 0.5},
        "optimizer": {"name": "SGD", "lr": 0.5},
        "training": {"evaluate_every": 3},
    }
)


def test_every_method_has_a_name_a_meaning_and_a_look_of_its_own():
    assert [method.name for method in METHODS.values()] == list(METHODS)
    assert len({method.title for method in METHODS.values()}) == len(METHODS)
    assert all(method.glossary and method.description for method in METHODS.values())
    assert len({(look.colour, look.dashes) for look in LOOKS}) == len(LOOKS) >= len(METHODS)
    assert [name for name, method in METHODS.items() if not method.keeps_budgets] == ["azb-weak"]
    assert "BREAK" in METHODS["azb-weak"].glossary


def test_a_configuration_is_known_by_its_keys():
    voting = CONFIG.changed({"plan.teachers": {"count": 4, "queries": 20}, "data.public": 20})
    made = methods_of(voting, tuple(METHODS))
    assert {name: kind_of(config) for name, config in made.items()} == {name: name for name in METHODS}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    store = tmp_path_factory.mktemp("compared") / "store"
    study = ComparisonStudy(CONFIG, ["idp-sgd", "azb-weak", "asc-published"], store=store)
    return store, study.report(), study.run(progress=False)


def test_a_comparison_says_loudly_what_is_broken_and_what_is_another_unit(place):
    _, before, found = place
    weak, published = found.methods["azb-weak"], found.methods["asc-published"]
    ((broken,),) = [[row for row in weak.owners if row["spent"] > row["epsilon"]]]
    assert broken["owner"] == "malignant"  # the smaller group, which is drawn more often
    assert not found.methods["idp-sgd"].broken + published.broken
    assert "WARNING: not every run keeps the budgets" in before
    assert "WARNING: azb-weak: its noise suits the largest owner only" in before
    assert "one run (replace-one)" in before
    table = found.table()
    spends = f"a run spends epsilon {broken['spent']:.3g} of owner malignant, who granted 1"
    assert f"WARNING: azb-weak BREAKS what 1 of 2 owners granted: {spends}" in table
    assert "azb-weak (BREAKS BUDGETS)" in table
    assert "asc-published is in the unit replace-one" in table
    units = {one.unit: one for one in found.together}
    assert {unit: one.runs for unit, one in units.items()} == {"add/remove": 2, "replace-one": 1}
    assert units["replace-one"].kept
    assert not units["add/remove"].kept
    np.testing.assert_allclose(units["replace-one"].one, units["replace-one"].together)
    np.testing.assert_allclose(units["replace-one"].one, [row["spent"] for row in published.owners], rtol=1e-3)
    told = {row["method"]: (row["unit"], row["breaks"]) for row in json.loads(json.dumps(found.to_dict()))["methods"]}
    assert told["azb-weak"] == ("add/remove", ["malignant"])
    assert told["asc-published"] == ("replace-one", [])


def test_a_page_begins_with_what_is_broken(place):
    contents = read(place[0])
    (study,) = contents.studies
    assert "aZB-weak BREAKS what 1 of 2 owners granted" in headline(contents).text
    assert headline(contents).tone == "bad"
    assert not any("kept their budgets" in one.text for one in sentences(contents))
    assert any("ASC as published is in the unit replace-one" in one.text for one in sentences(contents))
    assert study.focus.kind == "idp-sgd"  # what breaks budgets, or promises something else, is no measure for others
    assert contents.owners(study).header[:4] == ("owner", "granted", "spent", "spent (replace-one)")
    html = Page(contents).html()
    assert '<p class="alarm"><strong>aZB-weak BREAKS what 1 of 2 owners granted' in html
    for title in ("aZB-weak (BREAKS BUDGETS)", "ASC as published (replace-one)", "Not every run keeps the budgets"):
        assert title in html


def test_a_run_in_another_unit_has_a_ledger_in_it_and_no_other(tmp_path):
    published = methods_of(CONFIG, ("asc-published", "idp-sgd"))
    path = tmp_path / "spent.ledger"
    made = {name: config.model_copy(update={"ledger": str(path)}) for name, config in published.items()}
    train(made["asc-published"])
    ledger = Ledger(path)
    assert ledger.unit == "replace-one"
    assert 0 < max(ledger.spent()[label] / {"benign": 5, "malignant": 1}[label] for label in ledger.labels) <= 1.001
    head = ledger.head()
    for refused in (train, lambda config: Runs(config, 1, store=tmp_path / "store").run(progress=False)):
        with pytest.raises(ValueError, match="must count in the unit of"):
            refused(made["idp-sgd"])
    assert ledger.head() == head
