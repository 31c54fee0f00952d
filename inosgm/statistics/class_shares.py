"""The share of each class among the records of each owner, released and paid for."""

from typing import Any

import numpy as np

from inosgm._internal import validate
from inosgm.owners import Owners
from inosgm.statistics.histograms import private_group_counts


def release_class_shares(
    y: Any,
    owners: Owners,
    budget_share: float = 0.02,
    *,
    classes: int | None = None,
    ledger: Any = None,
    **options: Any,
) -> np.ndarray:
    """Return private class shares, one row per owner that sums to 1, for `LogitAdjustment`.

    Use it where the class shares of owners are not public. Where they are (owners that are classes, a published table),
    pass them to `LogitAdjustment` directly and pay nothing.

    **Guarantee.** One histogram per owner in one release (`private_group_counts`, stratified), which costs every owner
    at most `budget_share` of its epsilon. With a ledger, the release is charged there first, and a plan for the rest of
    the budget fits beside it. Negative noisy counts become 0 before rows are normalised: this is
    post-processing. Noisy shares cost accuracy of the correction, never privacy.

    Args:
        y: The class of every record, whole numbers from 0.
        owners: Who holds which record.
        budget_share: The share of every owner's epsilon to spend, between 0 and 1.
        classes: The number of classes, which is public. Without it, the largest class in `y` counts as public: the
            number of outputs of the model tells it anyway.
        ledger: Where the cost is charged.
        options: As for `private_group_counts`, such as `key`.

    Raises:
        ValueError: for classes that are not whole numbers from 0, before anything is charged.

    >>> owners = Owners(of_record=["a"] * 300 + ["b"] * 300, epsilon={"a": 10.0, "b": 50.0}, delta=1e-5)
    >>> release_class_shares([0] * 300 + [0, 1] * 150, owners, 0.5, classes=2, key=1).round(1)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (labels.size and labels.min() < 0):
        raise ValueError("y must be the class of every record, whole numbers from 0: encode names as numbers first")
    if classes is None:
        classes = int(labels.max()) + 1 if labels.size else 0
    classes = validate.count("classes", classes, least=2)
    if labels.size and labels.max() >= classes:
        raise ValueError(f"y must hold classes 0 to {classes - 1}: give the number of classes of the model")
    estimate = private_group_counts(
        labels,
        owners,
        categories=range(classes),
        other=None,
        stratified=True,
        share=budget_share,
        ledger=ledger,
        **options,
    )
    assert estimate.by_owner is not None  # a stratified estimate has one
    counts = np.clip([np.asarray(estimate.by_owner[label].value) for label in owners.labels], 0, None)
    totals = counts.sum(axis=1, keepdims=True)
    # an owner whose noisy counts are all 0 is taken to hold all classes alike
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1), 1 / classes)
