"""Class shares that are not public: released with a histogram per owner, and paid for."""

import numpy as np
import pytest

from inosgm import Ledger, LogitAdjustment, Owners, plan_scale, release_class_shares

Y = np.array([0] * 400 + [1] * 100 + [1] * 250 + [2] * 250)
BUDGETS = {"strict": 50.0, "open": 200.0}
OWNERS = Owners(of_record=["strict"] * 500 + ["open"] * 500, epsilon=BUDGETS, delta=1e-5)
TRUE = {"strict": [0.8, 0.2, 0.0], "open": [0.0, 0.5, 0.5]}


def test_rows_follow_the_owners_and_are_distributions():
    shares = release_class_shares(Y, OWNERS, classes=3, key=3)
    assert shares.shape == (2, 3)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(shares, [TRUE[label] for label in OWNERS.labels], atol=0.05)


def test_it_costs_its_share_and_no_more():
    ledger = Ledger(owners=OWNERS)
    release_class_shares(Y, OWNERS, 0.02, classes=3, ledger=ledger)
    for label, spent in ledger.spent().items():
        assert 0.9 * 0.02 * BUDGETS[label] < spent <= 0.02 * BUDGETS[label]


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (Y.astype(float), 3, "whole numbers from 0"),
        (Y - 1, 3, "whole numbers from 0"),
        (Y, 2, "classes 0 to 1"),
        (Y, 1, "classes must be a whole number >= 2"),
        (Y.reshape(2, -1), 3, "the class of every record"),
    ],
)
def test_bad_input_is_refused_before_anything_is_charged(y, classes, message):
    ledger = Ledger(owners=OWNERS)
    with pytest.raises(ValueError, match=message):
        release_class_shares(y, OWNERS, classes=classes, ledger=ledger)
    assert set(ledger.spent().values()) == {0.0}


def test_an_owner_without_signal_is_taken_to_hold_all_classes_alike():
    """A strict owner's noisy counts may all be 0 after clipping; its row is still a distribution."""
    owners = Owners(of_record=["a"] * 3 + ["b"] * 997, epsilon={"a": 0.1, "b": 5.0}, delta=1e-5)
    for key in range(40):
        shares = release_class_shares(Y, owners, classes=3, key=key)
        np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)


def test_no_option_makes_it_cost_more():
    """Fails on a65a0bc: a plan in the options was followed instead of the share."""
    with pytest.raises(TypeError, match="plan"):
        release_class_shares(Y, OWNERS, classes=3, plan=None)


@pytest.mark.parametrize("record", [0, 2])
def test_one_record_cannot_change_the_shape(record):
    """The only record of the largest class, there or not: the number of columns is an argument."""
    y = np.append(np.zeros(999, dtype=int), record)
    assert release_class_shares(y, OWNERS, classes=4, key=1).shape == (2, 4)


def test_without_classes_those_that_occur_are_public():
    assert release_class_shares(Y, OWNERS, key=3).shape == (2, 3)
    assert release_class_shares(np.zeros(1000, dtype=int), OWNERS, key=1).shape == (2, 2)


def test_a_class_that_noise_hides_still_has_a_prior():
    """Of class 3 there is no record; whatever the noise, the correction exists."""
    plan = plan_scale(OWNERS, steps=2, expected_batch=100, clip_norm=1.0)
    for key in range(20):
        shares = release_class_shares(Y, OWNERS, classes=4, key=key)
        assert np.isfinite(LogitAdjustment(plan, shares).offsets).all()
