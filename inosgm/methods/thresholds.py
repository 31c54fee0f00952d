"""Thresholds of the sampling mechanism (PDP-SGD, Eq. 4 to 7): who is drawn how often, and what of budgets is lost."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate

Waste = Literal["fixed", "adaptive"]
"""How the two wastes are weighed against each other: by Eq. 6, or as `adaptive_loss` says."""

_GRID = 4096


def sampling_probabilities(epsilons: ArrayLike, threshold: float) -> np.ndarray:
    """Return min(1, (e^epsilon_i - 1) / (e^tau - 1)), how often a record is drawn at the threshold tau (Eq. 4).

    Args:
        epsilons: What is left of each budget, >= 0; who has nothing left is not drawn.
        threshold: tau, above 0.

    >>> sampling_probabilities([0.0, 0.5, 2.0], 1.0).round(4)
    array([0.    , 0.3775, 1.    ])
    """
    left = _budgets(epsilons)
    tau = _validate.number("threshold", threshold, above=0)
    below = np.minimum(left, tau)  # exp of differences only: budgets of 1000 must not overflow
    return np.asarray(np.exp(below - tau) * (np.expm1(-below) / np.expm1(-tau)))


def wastes(epsilons: ArrayLike, sizes: ArrayLike, thresholds: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return what is lost at each threshold: budgets of records that are not drawn, and what is above the threshold.

    They are waste_u and waste_s of Eq. 6, where every record counts. The first rises with the threshold, from 0 at the
    least budget; the second falls, to 0 at the greatest.

    Args:
        epsilons: What is left of each owner's budget, >= 0.
        sizes: How many records each owner has.
        thresholds: Where to look, above 0.

    >>> unused, above = wastes([0.5, 1.0], [100, 100], [0.5, 1.0])
    >>> unused.round(2), above.round(2)
    (array([ 0.  , 31.12]), array([50.,  0.]))
    """
    left, counts = _budgets(epsilons), _validate.vector("sizes", sizes)
    if counts.size != left.size:
        raise ValueError(f"sizes must hold one entry per owner: got {counts.size} for {left.size} epsilons")
    _validate.each("sizes", counts, counts >= 0, "be >= 0")
    at = _validate.vector("thresholds", thresholds)
    _validate.each("thresholds", at, at > 0, "be > 0")
    order = np.argsort(left, kind="stable")
    left, counts = left[order], counts[order]
    place = np.searchsorted(left, at, side="left")  # so many owners are below each threshold
    with np.errstate(divide="ignore"):  # who has nothing left loses nothing
        terms = np.log(counts * left) + left + np.log(-np.expm1(-left))
    drawn = np.append(-np.inf, np.logaddexp.accumulate(terms))[place] - at - np.log(-np.expm1(-at))
    below = np.append(0.0, np.cumsum(counts * left))
    records = np.append(0.0, np.cumsum(counts))
    unused = np.maximum(below[place] - np.exp(drawn), 0.0)
    above = np.maximum(below[-1] - below[place] - (records[-1] - records[place]) * at, 0.0)
    return unused, above


def fixed_loss(unused: ArrayLike, above: ArrayLike, weight: float) -> np.ndarray:
    """Return weight * waste_u + (1 - weight) * waste_s (Eq. 6)."""
    weight = _validate.number("weight", weight, least=0, most=1)
    return np.asarray(weight * np.asarray(unused) + (1 - weight) * np.asarray(above))


def harmonic_loss(unused: ArrayLike, above: ArrayLike) -> np.ndarray:
    """Return 2 * waste_u * waste_s / (waste_u + waste_s), Eq. 7 as it is printed; 0 where both are 0.

    No threshold comes of it: waste_u is 0 at the least budget and waste_s at the greatest, so that it is 0, and least,
    at both ends, whatever the budgets are.
    """
    u, s = np.asarray(unused, dtype=np.float64), np.asarray(above, dtype=np.float64)
    return _per_total(2 * u * s, u + s)


def adaptive_loss(unused: ArrayLike, above: ArrayLike) -> np.ndarray:
    """Return (waste_u^2 + waste_s^2) / (waste_u + waste_s): Eq. 6 with the weights that Eq. 7 names.

    The formula and the weights of Eq. 7 are not the same: its formula needs the two weights exchanged, and has its
    minima at both ends of the range (see `harmonic_loss`). With the weights as they are named, the larger waste weighs
    more, and the minimum lies inside, near the point where both wastes are equal.
    """
    u, s = np.asarray(unused, dtype=np.float64), np.asarray(above, dtype=np.float64)
    return _per_total(u * u + s * s, u + s)


def threshold(epsilons: ArrayLike, sizes: ArrayLike, waste: Waste = "fixed", weight: float = 0.7) -> float:
    """Return the threshold in [min, max] of the budgets with the least loss, the lowest of several.

    It rests on public numbers only. Between two budgets that follow one another Eq. 6 is concave, so that its minimum
    is one of the budgets themselves; `adaptive_loss` is also looked at in between, on a grid.

    Args:
        epsilons: What is left of each owner's budget, >= 0, of somebody above 0.
        sizes: How many records each owner has.
        waste: "fixed" weighs the two wastes by Eq. 6, "adaptive" by `adaptive_loss`.
        weight: w_1 of Eq. 6, for records that are not drawn; w_2 is the rest.

    >>> budgets = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    >>> threshold(budgets, [100] * 6), round(threshold(budgets, [100] * 6, waste="adaptive"), 3)
    (0.6, 0.76)
    """
    left = _budgets(epsilons)
    if waste not in ("fixed", "adaptive"):
        raise ValueError(f"waste must be fixed or adaptive, got {waste!r}")
    candidates = np.unique(left[left > 0])
    if not candidates.size:
        raise ValueError("epsilons must hold a budget above 0: nobody has anything left")
    if waste == "adaptive":
        candidates = np.unique(np.append(candidates, np.linspace(candidates[0], candidates[-1], _GRID)))
        loss = adaptive_loss(*wastes(left, sizes, candidates))
    else:
        loss = fixed_loss(*wastes(left, sizes, candidates), weight)
    return float(candidates[np.argmin(loss)])


def _budgets(epsilons: ArrayLike) -> np.ndarray:
    left = _validate.vector("epsilons", epsilons)
    _validate.each("epsilons", left, left >= 0, "be >= 0")
    return left


def _per_total(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(part, total, out=np.zeros(total.shape), where=total > 0))
