"""Records that belong to several people."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inosgm import bound_contributions

LAYOUTS = st.lists(st.lists(st.integers(0, 8), min_size=0, max_size=4), max_size=40)


@given(LAYOUTS, st.integers(1, 4), st.integers(0, 3))
def test_nobody_has_more_and_no_record_is_left_out_without_need(people, most, seed):
    found = bound_contributions(people, most=most, seed=seed)
    held = Counter(person for record in found.kept for person in set(people[record]))
    assert max(held.values(), default=0) <= most
    assert sorted([*found.kept.tolist(), *found.left_out.tolist()]) == list(range(len(people)))
    for record in found.left_out:
        assert any(held[person] == most for person in people[record])
    again = bound_contributions(people, most=most, seed=seed)
    assert (found.kept == again.kept).all()
    before = Counter(person for record in people for person in set(record))
    assert found.cut == sum(held[person] < count for person, count in before.items())


@given(LAYOUTS, st.integers(1, 4))
def test_removing_a_person_changes_few_of_the_chosen_records(people, most):
    """The layout is public, so the choice stays, and a person takes its own chosen records along."""
    kept = bound_contributions(people, most=most).kept
    for person in {person for record in people for person in record}:
        others = [record for record in kept if person not in people[record]]
        assert len(kept) - len(others) <= most


def test_a_choice_that_is_made_anew_may_differ_in_many_records():
    """Why the layout must be public: without one person, records of people whom it never met come and go."""
    worst, rng = 0, np.random.default_rng(0)
    for _ in range(200):
        people = rng.integers(0, 30, (60, 2)).tolist()
        kept = set(bound_contributions(people, most=1).kept.tolist())
        anew = [record if 0 not in record else [] for record in people]  # positions stay, so hashes do
        again = set(bound_contributions(anew, most=1).kept.tolist())
        met = {record for record, some in enumerate(people) if 0 in some}
        worst = max(worst, len((kept ^ again) - met))
    assert worst > 1


def test_the_order_follows_from_the_seed_and_the_report_says_what_is_missing():
    people = [["hub", str(number)] for number in range(50)]
    firsts = {int(bound_contributions(people, most=1, seed=seed).kept[0]) for seed in range(20)}
    assert len(firsts) > 5
    found = bound_contributions(people, most=3)
    expected = (
        "3 of 50 records are kept, so that none of 51 people has more than 3; 47 are left out, of which 48 people"
    )
    assert found.report().startswith(expected)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="most must be a whole number >= 1"):
        bound_contributions([["a"]], most=0)
    with pytest.raises(TypeError, match="a list of people for each record, got one str at position 1"):
        bound_contributions([["a"], "b"], most=1)
