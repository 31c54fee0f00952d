"""Units of privacy that hold several records: owners, plans, costs, ledgers."""

import json

import numpy as np
import pytest

from inosgm import Cost, Ledger, Owners, Plan, PlanSequence, plan_sample, plan_uniform
from inosgm.accounting import PLD, RDP
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE, described, is_unit, other_unit, relation_of, unit_of

GRANTS = {"a": 1.0, "b": 4.0}
OWNER = np.array(["a", "b"]).repeat([30, 30])
PATIENT = np.concatenate([np.arange(30) // 3, 100 + np.arange(30) // 5])


def patients(**change):
    given = {"of_record": OWNER, "epsilon": GRANTS, "delta": 1e-5, "unit_of_record": PATIENT, "unit_name": "patient"}
    return Owners(**{**given, **change})


def test_sizes_count_units_and_records_know_theirs():
    owners = patients()
    assert owners.sizes.tolist() == [10, 6]
    assert (owners.n_units, owners.n_records, owners.unit_name, owners.has_units) == (16, 60, "patient", True)
    assert owners.of_record.tolist() == [0] * 30 + [1] * 30
    assert owners.unit_of_record.tolist() == [*np.arange(30) // 3, *10 + np.arange(30) // 5]
    assert owners.owner_of_unit.tolist() == [0] * 10 + [1] * 6


def test_without_units_every_record_is_one():
    owners = Owners(of_record=OWNER, epsilon=GRANTS, delta=1e-5)
    assert (owners.n_units, owners.n_records, owners.unit_name, owners.has_units) == (60, 60, "record", False)
    assert owners.unit_of_record.tolist() == list(range(60))
    assert owners.owner_of_unit is owners.of_record
    assert owners != patients()


def test_the_representation_tells_no_number_of_records():
    """A unit that is added changes the number of records by more than one: only units are public."""
    assert repr(patients()) == "<Owners: 2 owners, 16 patients, 2 budgets, epsilon 1 to 4>"


def test_a_unit_has_one_owner_and_the_error_does_not_name_it():
    secret = [f"secret-{number}" for number in PATIENT]
    secret[31] = secret[0]
    with pytest.raises(ValueError, match="position 0 and at position 31 are of one unit, and belong to 'a'") as refusal:
        patients(unit_of_record=secret)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit_of_record": PATIENT[:-1]}, "unit_of_record must hold one unit per record: got 59 for 60"),
        ({"unit_of_record": None}, "unit_name must be left out without unit_of_record"),
        ({"unit_name": "record"}, "unit_name must be a word for one unit"),
        ({"unit_name": "a\nb"}, "unit_name must be a word for one unit"),
        ({"unit_name": " "}, "unit_name must be a word for one unit"),
    ],
)
def test_impossible_units_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        patients(**change)


def test_units_come_from_a_column(tmp_path):
    table = {"owner": OWNER, "epsilon": [GRANTS[owner] for owner in OWNER], "patient": PATIENT}
    assert Owners.from_table(table, delta=1e-5, unit="patient") == patients()
    lines = [f"{owner},{GRANTS[owner]},{patient}" for owner, patient in zip(OWNER, PATIENT, strict=True)]
    path = tmp_path / "owners.csv"
    path.write_text("\n".join(["owner,epsilon,patient", *lines]))
    read = Owners.from_csv(path, delta=1e-5, unit="patient", rows_in_order=True)
    assert read.sizes.tolist() == [10, 6]
    unordered = Owners.from_csv(path, delta=1e-5, unit="patient")
    assert unordered.sizes.tolist() == [10, 6]
    with pytest.raises(ValueError, match="owners do not say whose each row"):
        _ = unordered.unit_of_record
    with pytest.raises(ValueError, match="no column 'person' for unit"):
        Owners.from_table(table, delta=1e-5, unit="person")
    counted = {"owner": ["a"], "epsilon": [1.0], "records": [3]}
    with pytest.raises(ValueError, match="unit must be left out for a table with a column 'records'"):
        Owners.from_table(counted, delta=1e-5, unit="patient")


def test_a_plan_counts_units_and_says_so():
    plan = plan_sample(patients(), steps=10, expected_batch=4, clip_norm=1.0)
    assert plan.sizes.tolist() == [10, 6]
    assert plan.unit == "add/remove of patient"
    assert float(plan.sample_rates @ [10, 6]) == pytest.approx(4)
    page = plan.report()
    assert "2 owners with 16 patients" in page
    assert "owner  patients" in page
    assert page.endswith("epsilons are about one patient with all its records")
    assert "records" not in page.replace("with all its records", "")
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.unit_name == "patient"


def test_a_plan_of_units_has_the_numbers_of_as_many_records():
    """Nothing of the calibration changes: a unit is what a record was."""
    as_records = Owners(of_record=["a"] * 10 + ["b"] * 6, epsilon=GRANTS, delta=1e-5)
    how = {"steps": 10, "expected_batch": 4, "clip_norm": 1.0}
    one, other = plan_sample(patients(), **how), plan_sample(as_records, **how)
    assert (one.sample_rates == other.sample_rates).all()
    assert one.noise_scale == other.noise_scale
    assert one != other


def test_a_plan_without_units_has_the_file_of_before():
    plan = plan_uniform(Owners(of_record=OWNER, epsilon=GRANTS, delta=1e-5), steps=2, expected_batch=4, clip_norm=1.0)
    assert "unit_name" not in json.loads(plan.to_json())


def test_plans_of_other_units_are_not_mixed():
    how = {"steps": 10, "expected_batch": 4, "clip_norm": 1.0}
    plan = plan_uniform(patients(), **how)
    plain = Owners(of_record=["a"] * 10 + ["b"] * 6, epsilon=GRANTS, delta=1e-5)
    with pytest.raises(ValueError, match="same unit"):
        plan.revise(1, plain)
    with pytest.raises(ValueError, match="same unit"):
        PlanSequence((plan, plan_uniform(plain, **how, past=[plan.segment()])))


def test_a_cost_carries_the_unit():
    plan = plan_uniform(patients(), steps=10, expected_batch=4, clip_norm=1.0)
    cost = plan.cost(job="j")
    assert cost.unit == "add/remove of patient"
    assert not cost.same_step(Cost(labels=cost.labels, sample_rates=cost.sample_rates, noise_multipliers=[9.0, 9.0]))
    assert is_unit(unit_of(REPLACE_ONE, "patient"))
    assert not any(map(is_unit, ("add", "add/remove of ", "add/remove of record", "replace")))
    assert relation_of(cost.unit) == ADD_REMOVE
    assert described(cost.unit) == "about one patient with all its records that is added or removed"
    assert "must not be added" in other_unit(cost.unit, ADD_REMOVE)


def cost_of(unit):
    return Cost(labels=("a", "b"), sample_rates=[0.1, 0.1], noise_multipliers=[20.0, 20.0], unit=unit)


def test_a_ledger_refuses_to_mix_units(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(path, owners=patients())
    assert ledger.unit == "add/remove of patient"
    ledger.charge(cost_of("add/remove of patient"))
    for unit in (ADD_REMOVE, "add/remove of household", "replace-one of patient"):
        with pytest.raises(ValueError, match="costs must be in the unit of the ledger"):
            ledger.charge(cost_of(unit))
    assert len(ledger.history()) == 1
    assert Ledger(path).unit == ledger.unit  # a file knows its unit
    assert Ledger(path, accountant=RDP()).spent()["a"] > 0
    assert "about one patient with all its records" in Ledger(path).report()
    assert json.loads(Ledger(path).to_json())["unit"] == ledger.unit
    assert ledger.rehearsal().unit == ledger.unit
    assert ledger.events().keys() == {"a", "b"}
    for owners in (Owners(of_record=OWNER, epsilon=GRANTS, delta=1e-5), patients(unit_name="household")):
        with pytest.raises(ValueError, match="owners must have the unit of the ledger"):
            Ledger(path, owners=owners)
    with pytest.raises(ValueError, match="owners must have the unit of the ledger"):
        ledger.grant(patients(unit_name="household"))
    ledger.grant(patients(epsilon={"a": 2.0, "b": 4.0}))
    ledger.grant(Owners(of_record=["a"], epsilon=3.0, delta=1e-5))  # a budget, for the unit of the ledger
    assert ledger.remaining()["a"] > 2


def test_a_ledger_of_records_refuses_units():
    ledger = Ledger(owners=Owners(of_record=OWNER, epsilon=GRANTS, delta=1e-5), accountant=PLD())
    with pytest.raises(ValueError, match="about one patient with all its records"):
        ledger.charge(cost_of("add/remove of patient"))


@pytest.mark.parametrize("ids", [[5550123, "Jane Doe"], ["Jane Doe", 5550123], [5550123.5, 5550123.5]], ids=str)
def test_no_error_shows_the_id_of_a_unit(ids):
    with pytest.raises(TypeError, match="unit_of_record must be all strings or all whole numbers") as found:
        Owners(of_record=["a", "a"], epsilon=1.0, delta=1e-5, unit_of_record=ids)
    assert "Jane" not in str(found.value)
    assert "5550123" not in str(found.value)
