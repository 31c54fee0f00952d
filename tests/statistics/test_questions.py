"""Several questions share one budget: together they cost the share, and are charged only if all can be paid for."""

import numpy as np
import pandas as pd
import pytest

from inosgm import BudgetExceeded, Ledger, Owners
from inosgm.statistics import Question, Questions
from inosgm.statistics.tables import BadTable

N = 3000
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "x": rng.normal(30, 8, N).clip(0, 100),
        "y": rng.normal(60, 8, N).clip(0, 100),
        "g": rng.choice(["u", "v"], N),
        "clinic": rng.choice(["a", "b"], N),
    }
)
OWNERS = Owners(of_record=FRAME["clinic"].tolist(), epsilon={"a": 1.0, "b": 3.0}, delta=1e-6)
BOUNDS = {"bounds": (0, 100)}


def several():
    return Questions(
        [
            Question("mean", "x", importance=4, **BOUNDS),
            Question("mean", "y", **BOUNDS),
            Question("mean", "y", by="g", **BOUNDS),
            Question("quantile", "x", level=0.5, rounds=4, where="g == 'u'", **BOUNDS),
        ]
    )


def test_together_they_cost_the_share_and_importance_divides_the_noise():
    ledger = Ledger(owners=OWNERS)
    answers = several().ask(FRAME, OWNERS, owner="clinic", share=0.5, ledger=ledger, key=1)
    assert ledger.spent() == pytest.approx(answers.cost, rel=1e-3)
    assert max(answers.cost[label] / epsilon for label, epsilon in zip("ab", (1.0, 3.0), strict=True)) <= 0.5
    assert answers.cost["a"] > 0.49
    assert answers.left == ledger.remaining()
    first, second, groups, median = answers.estimates
    assert second.standard_error / first.standard_error == pytest.approx(2.0, rel=0.05)  # a fourth of the importance
    for estimate, truth in ((first, FRAME.x.mean()), (second, FRAME.y.mean())):
        assert abs(estimate.value - truth) < 5 * estimate.standard_error
    assert set(groups.details["keys"]) == {"u", "v"}  # the larger noisy count is first
    assert median.details["records"] == pytest.approx((FRAME.g == "u").sum(), rel=0.2)
    notes = [charge.note for charge in ledger.history()]
    assert notes[:2] == ["mean", "mean"]
    assert "epsilon left: a: " in str(answers)


def test_one_key_gives_every_question_noise_of_its_own():
    twice = Questions([Question("mean", "x", **BOUNDS), Question("mean", "x", **BOUNDS)])
    one, two = twice.ask(FRAME, OWNERS, owner="clinic", key=1).estimates
    assert one.value != two.value
    again = twice.ask(FRAME, OWNERS, owner="clinic", key=1).estimates
    assert [estimate.value for estimate in again] == [one.value, two.value]


def test_nothing_is_charged_unless_all_can_be_answered_and_paid_for():
    ledger = Ledger(owners=OWNERS)
    good = Question("mean", "x", **BOUNDS)
    for bad in (
        lambda: Question("mean", "z", **BOUNDS),
        lambda: Question("mean", "x", bounds=(1, 0)),
        lambda: Question("mean", "x", where="h == 1", **BOUNDS),
        lambda: Question("means", "x", **BOUNDS),
        lambda: Question("mean", "x", importance=0, **BOUNDS),
        lambda: Question("mean", "x", **BOUNDS, level=3),
        lambda: Question("mean", "g", **BOUNDS),  # text
        lambda: Question("count", "x"),  # neither 0 nor 1
        lambda: Question("count", "x", by="g"),
    ):
        with pytest.raises((ValueError, TypeError, BadTable)):
            Questions([good, bad()]).ask(FRAME, OWNERS, owner="clinic", ledger=ledger)
    with pytest.raises(ValueError, match="at least one"):
        Questions([])
    assert not ledger.history()
    Questions([good]).ask(FRAME, OWNERS, owner="clinic", share=0.8, ledger=ledger)
    charged = len(ledger.history())
    with pytest.raises(BudgetExceeded):
        Questions([good, good]).ask(FRAME, OWNERS, owner="clinic", share=0.8, ledger=ledger)
    assert len(ledger.history()) == charged
