"""Whose a record is must be stated: by a column of the data, record by record, or as `rows_in_order`."""

import pickle

import numpy as np
import pytest

from inosgm import INOSGM, NoTail, Owners, plan_scale, private_mean
from inosgm.statistics.tables import Table

COUNTS = {"owner": ["z", "y"], "epsilon": [0.2, 1], "delta": [1e-5, 1e-5], "records": [2, 3]}
PEOPLE = {"eva": 0.2, "bo": 1.0, "ann": 1.0, "cy": 0.2, "dan": 0.2}


def mean(*what, **how):
    """Return a keyed mean, which is the same for the same records of the same owners."""
    return private_mean(*what, bounds=(0, 1), key=1, **how).value


class Total(INOSGM):
    """The sum of all records."""

    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def test_numbers_of_records_do_not_say_whose_a_record_is():
    """Fails on 76c85f1: records went to owners by their order, whatever the data were sorted by."""
    owners = Owners.from_table(COUNTS)
    plan = plan_scale(owners, steps=1, expected_batch=5, clip_norm=1.0)
    assert (owners.n_records, owners.sizes.tolist(), plan.labels) == (5, [3, 2], ("y", "z"))
    looks = [
        lambda: owners.of_record,
        lambda: owners.of_range(0, 1),
        lambda: owners.granting(0.5).of_record,
        lambda: pickle.loads(pickle.dumps(owners)).of_record,
        lambda: Total(plan, owners, tail=NoTail()),
        lambda: mean(np.ones(5), owners),
        lambda: Table.of(np.ones(5)).check(owners),
    ]
    for look in looks:
        with pytest.raises(
            ValueError, match=r"rows_in_order=True, --rows-in-order\): the first 2 rows belong to 'z', th"
        ):
            look()


def test_stated_order_is_the_order_of_the_table():
    stated, unstated = Owners.from_table(COUNTS, rows_in_order=True), Owners.from_table(COUNTS)
    assert stated.of_record.tolist() == [1, 1, 0, 0, 0]
    each = Owners(of_record=list("zzyyy"), epsilon={"z": 0.2, "y": 1.0}, delta=1e-5)
    assert mean(np.arange(5) / 5, stated) == mean(np.arange(5) / 5, each)
    assert stated == Owners.from_table(COUNTS, rows_in_order=True)
    assert unstated == Owners.from_table(COUNTS)
    assert stated != unstated
    assert unstated != stated


def test_all_rows_are_of_the_only_owner(tmp_path):
    (tmp_path / "one.csv").write_text("owner,epsilon,delta\nz,1,1e-5\nz,1,1e-5\n")
    counted = Owners.from_table({"owner": ["z"], "epsilon": [1.0], "delta": [1e-5], "records": [2]})
    assert counted.of_record.tolist() == Owners.from_csv(tmp_path / "one.csv").of_record.tolist() == [0, 0]


@pytest.fixture
def file(tmp_path):
    """A file of people with a record each."""
    path = tmp_path / "people.csv"
    path.write_text("owner,epsilon,delta\n" + "".join(f"{name},{grant},1e-5\n" for name, grant in PEOPLE.items()))
    return path


def test_a_file_beside_the_data_does_not_say_it_either(file):
    """Fails on 76c85f1: the data may be sorted in another way, and then dan, who grants 0.2, was taken for bo."""
    table = {"age": [0.1, 0.2, 0.3, 0.4, 0.5], "person": ["bo", "dan", "eva", "ann", "cy"]}
    owners = Owners.from_csv(file)
    with pytest.raises(ValueError, match="the first row belongs to 'eva', the second to 'bo', and so on"):
        mean(table, owners, column="age")
    named, stated = table["person"], list(PEOPLE)
    grants = {"epsilon": PEOPLE, "delta": 1e-5}
    assert mean(table, owners, column="age", owner="person") == mean(table["age"], Owners(of_record=named, **grants))
    in_order = Owners.from_csv(file, rows_in_order=True)
    assert mean(table, in_order, column="age") == mean(table["age"], Owners(of_record=stated, **grants))
    assert owners == Owners.from_csv(file)
