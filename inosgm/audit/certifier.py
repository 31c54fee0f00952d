"""The certifier: searches for a pair of neighbouring batches that violates the sensitivity bound."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.validate import Array
from inosgm.audit.sum_attacks import DataPairs, PairSearch, RowSum, SyntheticBatch, SyntheticPairs, climb
from inosgm.mechanism.clipping import Clipping, ClipToShare, PerSampleAdaptive, ScaleClipped
from inosgm.mechanism.contributions import Dense
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.mechanism import INOSGM, clipped_ordered_sum, realised_ordered_sum
from inosgm.mechanism.orders import Ascending, Descending, Order, OwnerFirst, RandomOrder
from inosgm.mechanism.record_filter import LEAST
from inosgm.mechanism.streaming import OrderedSum
from inosgm.mechanism.tails import BetaTail, HardTail, LinearTail, NoTail, StepTail, TableTail, Tail
from inosgm.planning.planners import Plan

Sum = Callable[[np.ndarray, np.ndarray, np.ndarray], Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Certificate:
    """The worst pair of batches that was found: evidence if the ratio exceeds 1, a failed attack (no proof) otherwise.

    NOT PRIVATE when made from data: the batches are records of it.
    """

    ratio: float
    """|sum with the record - sum without it| / sensitivity of the record (its cost, with individual accounting)."""
    case: str
    """The kind of attack that found it."""
    with_record: dict[str, Any]
    """The larger batch."""
    without_record: dict[str, Any]
    """The same batch without the record."""
    added: int
    """The position of the record in the larger batch."""
    evaluations: int
    """The number of pairs of batches that were tried."""

    def exceeds(self, tolerance: float = 1e-6) -> bool:
        """Return whether a ratio above 1 + tolerance was found."""
        return self.ratio > 1 + tolerance

    def holds(self, tolerance: float = 1e-6) -> bool:
        """Return whether no ratio above 1 + tolerance was found; false if no sum ever changed, which shows nothing."""
        return self.ratio > 0 and not self.exceeds(tolerance)


def certify(mechanism: Any, data: Any = None, *, evaluations: int = 4000, seed: int = 0) -> Certificate:
    """Search for the worst ratio of |change of the sum| to the added record's sensitivity.

    Random restarts over structured cases (aligned vectors, ties, a displaced low-ranked record, sensitivities from
    1e-3 to 1e3, float32), each improved by hill climbing. Only the change of each record's weight matters, so the worst
    vectors for given scores and sensitivities are known in closed form, and the reported ratio is measured with them.

    **Guarantee.** A ratio above 1 is a reproducible counterexample. A ratio of 1 is no proof. NOT PRIVATE with
    data: the certificate holds records and exact sums, and nobody is charged.

    Args:
        mechanism: Any function (contributions, scores, sensitivities) -> sum of an (n, d) array, two arrays of n
            numbers, giving d numbers. Or a mechanism: without data its tail, order and clipping are attacked, not
            its own two methods.
        data: With a mechanism: records to attack through its own `contributions` and `scores`, which finds scores
            or contributions that depend on other records of the batch. Synthetic data of the same form is enough;
            batches have up to some 100,000 records of it, which must be more than the tail holds.
        evaluations: The number of pairs of batches to try.
        seed: The search is a function of it.

    Returns:
        The worst pair found.

    >>> def keep_top_two(contributions, scores, sensitivities):
    ...     return contributions[np.argsort(-scores, kind="stable")[:2]].sum(axis=0)
    >>> round(certify(keep_top_two, evaluations=300).ratio) > 1
    True
    """
    budget = _validate.count("evaluations", evaluations, least=1)
    generator = np.random.default_rng(_validate.count("seed", seed))
    if isinstance(getattr(mechanism, "mechanism", mechanism), INOSGM):
        inspection = Inspection(mechanism)
        lengths = None if inspection.filter() is None else _lengths_of(inspection)
        synthetic = SyntheticPairs(_sum_of(inspection), [inspection.tail.length or 1.0], stretch=3.0, paid=lengths)
        search: PairSearch[Any] = synthetic if data is None else DataPairs(inspection, data)
    elif data is not None:
        raise ValueError("data goes with a mechanism; a function is attacked with synthetic batches")
    elif callable(mechanism):
        search = SyntheticPairs(_sum_by(mechanism), list(10.0 ** np.arange(-2, 4)))
    else:
        raise TypeError(f"mechanism must be an INOSGM or a function of three arrays, got {mechanism!r}")
    ratio, evidence = climb(search, budget, generator)
    return Certificate(ratio=ratio, evaluations=budget, **evidence)


def _sum_by(function: Sum) -> RowSum:
    def total(contributions: np.ndarray, batch: SyntheticBatch, rows: np.ndarray) -> Array:
        scores, sensitivities = (array[rows].astype(batch.dtype) for array in (batch.scores, batch.sensitivities))
        return function(contributions, scores, sensitivities)

    return total


def _sum_of(mechanism: Inspection) -> RowSum:
    if mechanism.streams:
        return _streamed_sum_of(mechanism)
    individual = mechanism.filter() is not None

    def total(contributions: np.ndarray, batch: SyntheticBatch, rows: np.ndarray) -> Array:
        if individual:
            return _realised(mechanism, contributions, batch, rows)[0]
        given = Dense(contributions), batch.scores[rows], batch.sensitivities[rows], rows
        return clipped_ordered_sum(*given, **_weighting_options(mechanism, batch, rows))

    return total


def _lengths_of(mechanism: Inspection) -> RowSum:
    def lengths(contributions: np.ndarray, batch: SyntheticBatch, rows: np.ndarray) -> Array:
        return _realised(mechanism, contributions, batch, rows)[1]

    return lengths


def _realised(
    mechanism: Inspection, contributions: np.ndarray, batch: SyntheticBatch, rows: np.ndarray
) -> tuple[Any, np.ndarray]:
    """Return the sum and the costs of records with the bound of the largest one, most of which contribute less."""
    bounds = np.full(rows.size, batch.sensitivities.max())
    given = Dense(contributions), batch.scores[rows], bounds, rows
    return realised_ordered_sum(*given, least=LEAST * bounds, **_weighting_options(mechanism, batch, rows))


def _weighting_options(mechanism: Inspection, batch: SyntheticBatch, rows: np.ndarray) -> dict[str, Any]:
    """Return the options with which a mechanism clips, orders and weighs records."""
    return {
        "owners": batch.owners[rows],
        "tail": mechanism.tail,
        "order": mechanism.order,
        "clipping": mechanism.clipping,
    }


def _streamed_sum_of(mechanism: Inspection) -> RowSum:
    """Return a function that sums batches in two parts and merges them; single numbers stay one-dimensional."""

    def total(contributions: np.ndarray, batch: SyntheticBatch, rows: np.ndarray) -> Array:
        order = mechanism.order.at(0, 0)
        parts = [OrderedSum(batch.sensitivities, mechanism.tail, order) for _ in range(2)]
        values = contributions[:, 0] if contributions.shape[1] == 1 else contributions
        for part, chosen in zip(parts, (rows % 2 == 0, rows % 2 == 1), strict=True):
            part.update(values[chosen], batch.scores[rows[chosen]], rows[chosen], rows[chosen])
        parts[0].merge(parts[1])
        return np.atleast_1d(parts[0].exact())

    return total


def built_in_mechanisms() -> dict[str, dict[str, INOSGM]]:
    """Return, for every built-in tail, a mechanism with each order (ScaleClipped) and each other clipping."""

    class Rows(INOSGM):
        def contributions(self, batch: Array) -> Array:
            return batch

        def scores(self, batch: Array) -> Array:
            return batch[:, 0]

    plan = Plan(sample_rates=[1.0], sensitivities=[1.0], sizes=[1], noise_scale=1.0, steps=1)
    tails: dict[str, Tail] = {
        "NoTail": NoTail(),
        "HardTail": HardTail(5.0),
        "LinearTail": LinearTail(5.0),
        "BetaTail(2, 3)": BetaTail(2.0, 3.0, 5.0),
        "BetaTail(0.3, 0.3)": BetaTail(0.3, 0.3, 5.0),
        "StepTail": StepTail([0.5, 0.25, 0.125, 0.0], 2.0),
        "TableTail": TableTail.of(lambda c: 1 - (c / 5.0) ** 2, length=5.0),
    }
    choices: dict[str, tuple[Order, Clipping]] = {
        "Descending": (Descending(), ScaleClipped()),
        "Ascending": (Ascending(), ScaleClipped()),
        "RandomOrder": (RandomOrder(0), ScaleClipped()),
        "OwnerFirst": (OwnerFirst(), ScaleClipped()),
        "Descending, ClipToShare": (Descending(), ClipToShare()),
        "Descending, PerSampleAdaptive": (Descending(), PerSampleAdaptive()),
    }
    return {
        tail_name: {
            name: Rows(plan, [0], tail=tail, order=order, clipping=clipping)
            for name, (order, clipping) in choices.items()
        }
        for tail_name, tail in tails.items()
    }
