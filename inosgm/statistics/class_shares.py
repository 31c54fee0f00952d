"""The share of each class among the records of each owner, released and paid for."""

from typing import Any

import numpy as np

from inosgm._internal import validate
from inosgm.ledger.cost import LedgerHook
from inosgm.owners import Owners
from inosgm.statistics.histograms import private_group_counts

LEAST_COUNT = 0.5
"""Noisy counts below half a record become that: a class without any would have a prior of 0, and an infinite offset.
An owner whose counts are all below it is taken to hold all classes alike."""


def release_class_shares(
    y: Any,
    owners: Owners,
    budget_share: float = 0.02,
    *,
    classes: int | None = None,
    ledger: LedgerHook | None = None,
    key: int | None = None,
) -> np.ndarray:
    """Return private class shares, one row per owner that sums to 1, for `LogitAdjustment`.

    Use it where the class shares of owners are not public. Where they are (owners that are classes, a published table),
    pass them to `LogitAdjustment` directly and pay nothing.

    **Guarantee.** One histogram per owner in one release (`private_group_counts`, stratified), which costs every owner
    at most `budget_share` of its epsilon, at its delta. With a ledger, the release is charged there first; a plan made
    with `past=ledger.past(owners)` spends the rest. Noisy counts below half a record become that before rows are
    normalised, which is post-processing. The number of columns is public: give `classes` unless every class is known to
    have records without the one that is protected, because the only record of the largest class would change the shape
    of the release. Noisy shares cost accuracy of the correction, never privacy.

    Args:
        y: The class of every record, whole numbers from 0.
        owners: Who holds which record.
        budget_share: The share of every owner's epsilon to spend, between 0 and 1.
        classes: The number of classes of the model. Public. If not given, the largest class that occurs is taken as a
            public fact, as it is where the list of classes is published.
        ledger: Where the cost is charged.
        key: Makes the noise a function of it: reproducible, NOT PRIVATE against anyone who knows it.

    Raises:
        ValueError: for classes that are not whole numbers from 0 to classes - 1, before anything is charged. The error
            tells that there is such a record, and nothing else about it.

    >>> owners = Owners(of_record=["a"] * 300 + ["b"] * 300, epsilon={"a": 10.0, "b": 50.0}, delta=1e-5)
    >>> release_class_shares([0] * 300 + [0, 1] * 150, owners, 0.5, classes=2, key=1).round(1)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (labels.size and labels.min() < 0):
        raise ValueError("y must be the class of every record, whole numbers from 0: encode names as numbers first")
    if classes is None:
        classes = max(2, int(labels.max(initial=0)) + 1)
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
        key=key,
    )
    assert estimate.by_owner is not None  # a stratified estimate has one
    counts = np.clip([np.asarray(estimate.by_owner[label].value) for label in owners.labels], LEAST_COUNT, None)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
