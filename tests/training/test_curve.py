import numpy as np
import pytest

from inosgm.training.curve import LearningCurve
from inosgm.training.metrics import evaluation

OWNERS = np.repeat(["major", "minor"], [400, 100])


def at(major, minor, *, noise=0.3, seed=0, predictions=False):
    """An evaluation with given mean losses of the two owners."""
    rng = np.random.default_rng(seed)
    losses = np.where(OWNERS == "major", major, minor) + noise * rng.standard_normal(OWNERS.size)
    right = np.zeros(OWNERS.size, int) if predictions else None
    return evaluation(losses, right, (losses > 1).astype(int), OWNERS)


def curve_of(*means, every=10, **options):
    curve = LearningCurve()
    for place, (major, minor) in enumerate(means):
        curve.append(place * every, at(major, minor, seed=place, **options))
    return curve


def test_remembers_what_it_was_told():
    curve = curve_of((2, 2), (1, 1.5), (0.5, 0.8), predictions=True)
    assert (curve.steps, len(curve), curve.owners) == ((0, 10, 20), 3, ("major", "minor"))
    assert curve.last is curve.evaluations[-1]
    accuracies = [found.by_owner["minor"].accuracy for found in curve.evaluations]
    assert curve.of_owner("minor").tolist() == accuracies


def test_json_gives_the_same_curve_back():
    curve = curve_of((2, 2), (1, 1.5), predictions=True)
    assert LearningCurve.from_json(curve.to_json()) == curve
    assert LearningCurve.from_json(LearningCurve().to_json()) == LearningCurve()
    assert curve_of((2, 2)) != curve


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"steps": [1], "evaluations": []}', '{"steps": 1}'])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="not the JSON text of a learning curve"):
        LearningCurve.from_json(text)


def test_goes_forward_and_stays_with_its_records():
    curve = curve_of((2, 2), (1, 1))
    with pytest.raises(ValueError, match="step must be beyond 10, the last of the curve, got 10"):
        curve.append(10, at(1, 1))
    with pytest.raises(ValueError, match="same held-out records and owners"):
        curve.append(20, evaluation([1.0], None, None, ["major"]))
    with pytest.raises(TypeError, match="evaluation must be of type Evaluation"):
        curve.append(20, {"loss": 1.0})
    assert curve.steps == (0, 10)


def test_what_is_not_there():
    with pytest.raises(ValueError, match="the curve is empty"):
        _ = LearningCurve().last
    with pytest.raises(ValueError, match="label must be one of 'major', 'minor', got 'nobody'"):
        curve_of((1, 1), predictions=True).of_owner("nobody")
    with pytest.raises(ValueError, match="nothing was predicted"):
        curve_of((1, 1)).of_owner("minor")


def test_an_initial_drop_is_found_at_its_worst():
    curve = curve_of((2.3, 2.3), (1.5, 3.0), (1.0, 4.0), (0.8, 3.0), (0.6, 1.0), (0.5, 0.6), (0.4, 0.5))
    assert curve.initial_drops() == {"minor": 20}
    assert "minor (initial drop)" in str(curve)
    assert "major (initial drop)" not in str(curve)


@pytest.mark.parametrize(
    "means",
    [
        [(2.3, 2.3)],
        [(2.3, 2.3), (1.5, 2.0), (1.0, 1.5), (0.5, 1.0)],  # everybody gains
        [(2.3, 2.3), (2.5, 3.0), (2.6, 3.5), (2.8, 4.0)],  # everybody loses: no minority
        [(2.3, 2.3), (1.5, 2.31), (1.0, 1.5), (0.5, 1.0)],  # within the noise of 100 records
        [(2.3, 2.3), (2.0, 2.0), (1.8, 1.8), (0.8, 1.0), (0.6, 3.0)],  # late is not initial
    ],
)
def test_no_initial_drop(means):
    assert curve_of(*means).initial_drops() == {}


def test_two_evaluations_are_enough_for_a_drop():
    assert curve_of((2.3, 2.3), (0.5, 4.0)).initial_drops() == {"minor": 10}


def test_a_loss_that_became_infinite_is_a_drop():
    curve = curve_of((2.3, 2.3))
    losses = np.where(OWNERS == "minor", np.inf, 0.5)
    curve.append(5, evaluation(losses, None, None, OWNERS))
    curve.append(50, at(0.5, 0.5))
    assert curve.initial_drops() == {"minor": 5}
    assert "inf" in curve.table()


def test_one_record_and_no_owners_are_never_named():
    curve, alone = LearningCurve(), LearningCurve()
    for step, (a, b) in enumerate([(2.0, 2.0), (1.0, 9.0), (0.5, 0.5)]):
        curve.append(step, evaluation([a, a + 0.01, b], None, None, ["a", "a", "b"]))
        alone.append(step, evaluation([a, b], None, None))
    assert curve.initial_drops() == alone.initial_drops() == {}
    assert "everyone" in str(alone)


def test_false_alarms_are_rare_where_nothing_changes():
    """At most 5 % of curves by construction; with 400 curves more than 40 alarms have a probability below 1e-5."""
    rng, alarms, owners = np.random.default_rng(1), 0, np.arange(200) % 5
    for _ in range(400):
        curve = LearningCurve()
        for step in range(9):
            curve.append(step, evaluation(2 + rng.standard_normal(200), None, None, owners))
        alarms += bool(curve.initial_drops())
    assert alarms <= 40


def test_table_shows_first_last_and_worst():
    curve = LearningCurve()
    for step, predictions in enumerate([[0, 1, 1, 0], [1, 1, 1, 0], [0, 1, 0, 0]]):
        curve.append(step, evaluation([1.0] * 4, predictions, [0, 1, 0, 1], owners=["a", "a", "b|c", "b|c"]))
    lines = str(curve).splitlines()
    assert lines[0] == "accuracy on 4 held-out records at 3 steps from 0 to 2"
    assert [cell.strip() for cell in lines[4].split("|")[1:-1]] == ["a", "2", "1.000", "1.000", "0.500"]
    assert lines[5].startswith(r"| b\|c ")
    assert len({len(line) for line in lines[2:]}) == 1
    assert str(LearningCurve()) == "no evaluations: `fit` makes them where it is given held_out"


def test_table_of_very_many_owners_shows_the_worst():
    curve = LearningCurve()
    right = (np.arange(100) >= 10).astype(int)
    curve.append(0, evaluation(np.ones(100), right, np.ones(100), owners=np.arange(100)))
    table = curve.table()
    assert all(f"| {owner} " in table for owner in range(10))
    assert "(60 owners that ended better are not shown)" in table
