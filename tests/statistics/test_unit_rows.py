"""Statistics about units that have several rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inosgm import Ledger, Owners, UnitMean, UnitSum, private_count, private_histogram, private_mean, private_sum
from inosgm.statistics import combine_rows

RNG = np.random.default_rng(0)
UNIT = RNG.permutation(np.repeat(np.arange(400), RNG.integers(1, 9, 400)))
VALUES = RNG.uniform(0, 10, UNIT.size)


def persons(unit=UNIT, **change):
    given = {"of_record": np.where(unit % 2, "odd", "even"), "epsilon": {"even": 4.0, "odd": 8.0}, "delta": 1e-5}
    return Owners(**{**given, "unit_of_record": unit, "unit_name": "person", **change})


def naive(unit, values, combine):
    """Rows of one unit after another."""
    return [combine(values[unit == one]) for one in np.unique(unit)]


def test_rows_are_combined_unit_by_unit():
    for rule, combine in ((UnitMean(records_per_unit=8), np.mean), (UnitSum(records_per_unit=8), np.sum)):
        rows, owners = combine_rows(VALUES, persons(), rule=rule)
        np.testing.assert_allclose(rows, naive(UNIT, VALUES, combine), rtol=1e-12)
        assert (owners.sizes == persons().sizes).all()
        assert owners.unit_name == "person"
        assert owners.units_are_records
        assert owners.of_record.tolist() == persons().owner_of_unit.tolist()
    table, _ = combine_rows(np.stack([VALUES, -VALUES], 1), persons(), rule=UnitSum(records_per_unit=8))
    assert table.shape == (400, 2)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.integers(1, 4), st.integers(0, 3))
def test_a_unit_changes_its_own_row_only(units, most, seed):
    """Neighbouring data: all rows of one unit are gone, so that others lie elsewhere."""
    unit = np.unique(units, return_inverse=True)[1]
    values = np.arange(unit.size) + 0.5
    rows, _ = combine_rows(values, persons(unit, epsilon=1.0), rule=UnitSum(records_per_unit=most), seed=seed)
    for gone in range(unit.max() + 1):
        stay = unit != gone
        if stay.any():
            without, _ = combine_rows(
                values[stay], persons(unit[stay], epsilon=1.0), rule=UnitSum(records_per_unit=most), seed=seed
            )
            assert without.tolist() == np.delete(rows, gone).tolist()


def test_at_most_so_many_rows_count():
    rows, _ = combine_rows(np.ones(UNIT.size), persons(), rule=UnitSum(records_per_unit=3))
    assert rows.tolist() == np.minimum(np.bincount(UNIT), 3).tolist()


def test_answers_are_about_units_and_charged_in_their_unit():
    """Within 5 standard errors: a false alarm in 1e6 keys."""
    means, owners = combine_rows(VALUES, persons(), rule=UnitMean(records_per_unit=8))
    ledger = Ledger(owners=persons())
    answer = private_mean(means, owners, bounds=(0, 10), share=0.5, key=1, ledger=ledger)
    assert abs(answer.value - np.mean(means)) < 5 * answer.standard_error + answer.bias_bound
    assert "400 persons, each counting once" in answer.estimand
    assert ledger.unit == "add/remove of person"
    assert 0 < ledger.spent()["even"] <= 4.0
    totals, owners = combine_rows(VALUES, persons(), rule=UnitSum(records_per_unit=8))
    answer = private_sum(totals, owners, bounds=(0, 80), key=2)
    assert abs(answer.value - VALUES.sum()) < 5 * answer.standard_error + answer.bias_bound
    count = private_count((totals > 20).astype(int), owners, key=3)
    assert abs(count.value - (totals > 20).sum()) < 5 * count.standard_error + count.bias_bound
    histogram = private_histogram(totals, owners, edges=[0, 20, 40, 80], key=4)
    assert np.asarray(histogram.value).shape == (3,)
    of_records = Ledger(owners=Owners(of_record=["even", "odd"], epsilon={"even": 4.0, "odd": 8.0}, delta=1e-5))
    with pytest.raises(ValueError, match="costs must be in the unit of the ledger"):
        private_mean(means, owners, bounds=(0, 10), ledger=of_records)


def test_rows_that_are_not_combined_are_refused_with_what_to_do():
    ledger = Ledger(owners=persons())
    with pytest.raises(ValueError, match=r"a statistic protects single records.*combine_rows"):
        private_mean(VALUES, persons(), bounds=(0, 10), ledger=ledger)
    assert not ledger.history()
    with pytest.raises(ValueError, match="rule must limit the rows of a unit"):
        combine_rows(VALUES, persons(), rule=UnitMean())
    with pytest.raises(ValueError, match="owners must have units"):
        combine_rows(VALUES, Owners(of_record=UNIT, epsilon=1.0, delta=1e-5), rule=UnitMean(records_per_unit=2))
    with pytest.raises(ValueError, match="values must be one for each"):
        combine_rows(VALUES[1:], persons(), rule=UnitMean(records_per_unit=2))
