"""Bounds of a column that nobody knows, released from the data and paid for."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from inosgm._internal import validate as _validate
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import open_fraction
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.histograms import Histogram
from inosgm.statistics.queries import single

SMALLEST, LARGEST = 2.0**-20, 2.0**40
"""The default range of sizes that are told apart: a millionth to a trillion."""

CONFIDENCE = 0.95
"""Probability, over the noise, that no more records lie beyond bounds than the answer says."""


LOUD = 0.1
"""The part of the records beyond a bound from which on an answer has a note."""


class DataBounds(Histogram):
    """Bounds of a column: powers of two beyond which few records lie.

    Records are counted in bins whose edges are public: 0 and all powers of two between `smallest` and `largest`, of
    both signs. The bounds hold every bin whose noisy count cannot be noise alone. Beyond each bound, the noisy number
    of records is at most `outside` / 2 of all, or cannot be told from noise.

    **What it estimates.** `value` holds the lower and the upper bound. They are conservative: a power of two leaves up
    to a factor of 2 of room. With probability 0.95 over the noise at most `details["beyond_at_most"]` records lie below
    the lower and above the upper bound.

    **Bias.** A question with these bounds moves the values beyond them to the nearer bound.

    **Guarantee.** That of `Statistic`, in one round: it is a histogram, and the choice of an edge is a function of
    released counts.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        outside: The fraction of records that may lie beyond both bounds together, in (0, 1).
        smallest: The smallest size that is told from 0.
        largest: The largest size that is told from larger ones; records beyond it count as that large.
        options: As for `Statistic`.

    Raises:
        ValueError: for a fraction outside (0, 1), and sizes that do not ascend.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[1000], noise_scale=0.5, steps=1)
    >>> DataBounds(plan, [0] * 1000, key=1).run(np.linspace(20, 900, 1000)).value
    array([  16., 1024.])
    """

    name = "bounds"
    key_name = "inosgm.statistics.data_bounds.DataBounds"

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        outside: float = 0.01,
        smallest: float = SMALLEST,
        largest: float = LARGEST,
        **options: Any,
    ) -> None:
        self.outside = open_fraction("outside", outside)
        edges = _powers(smallest, largest)
        super().__init__(plan, owners, edges=[*(-edges[::-1]).tolist(), 0.0, *edges.tolist()], **options)

    def estimate(self) -> Estimate:
        """Return the lower and the upper bound."""
        counts = np.asarray(super().estimate().value)
        error = self.records * self.noise / self.total
        top = int(np.argmax(counts))
        high, above = self._edge(counts, error, top)
        low, below = self._edge(counts[::-1], error, counts.size - 1 - top)
        value = np.array([self.edges[counts.size - low], self.edges[high]])
        return self.estimated(
            value,
            np.zeros(2),  # edges have no noise: how many records lie beyond them has
            "bounds: powers of two beyond which few records lie",
            notes=_notes(self.records, max(below, above)),
            beyond_at_most=np.array([below, above]),
        )

    def _edge(self, counts: np.ndarray, error: float, top: int) -> tuple[int, float]:
        """Return the number of the upper edge, and how many records at most lie beyond it.

        With probability `CONFIDENCE`, the number of records beyond each edge is at most its noisy count plus a margin,
        for all edges of both sides at once (Bonferroni). So what is chosen from these counts has that bound as well.
        """
        z = float(-ndtri((1 - CONFIDENCE) / (2 * counts.size)))
        beyond = np.concatenate([np.cumsum(counts[::-1])[::-1], [0.0]])  # in the bins from each edge on
        margins = z * error * np.sqrt(np.arange(counts.size, -1, -1))
        most = beyond + margins
        few = most <= np.maximum(self.outside / 2 * self.records, 2 * margins)
        held = int(np.flatnonzero(counts > z * error).max(initial=top))  # the outermost bin that is surely not empty
        edge = next(edge for edge in range(held + 1, counts.size + 1) if few[edge] or edge == counts.size)
        return edge, float(max(most[edge], 0.0) + self.missing)  # records of very small budgets count less


def _notes(records: float, beyond: float) -> tuple[str, ...]:
    """Return a note if noise hides so many records that the bounds say little."""
    if beyond <= LOUD * records:
        return ()
    return (
        f"noise hides up to {beyond:.0f} of {records:.0f} records: the bounds may be far too wide or too narrow; a "
        "larger share, or a narrower range of sizes (smallest, largest), finds better ones",
    )


def _powers(smallest: float, largest: float) -> np.ndarray:
    """Return the powers of two from the one below `smallest` to the one above `largest`."""
    low = _validate.number("smallest", smallest, above=0)
    high = _validate.number("largest", largest, above=low)
    exponents = np.arange(np.floor(np.log2(low)), np.ceil(np.log2(high)) + 1)
    return np.asarray(np.exp2(np.clip(exponents, -1022, 1023)))


def private_bounds(
    values: Any,
    owners: Owners,
    *,
    outside: float = 0.01,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
    **options: Any,
) -> Estimate:
    """Return bounds of a column, powers of two beyond which few records lie; see `DataBounds`.

    Use them for the bounds of a later question if nobody knows any. The smallest and the largest value of the data
    themselves would show two records.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> private_bounds(np.linspace(40, 900, 1000), owners, share=0.5, key=1).value
    array([  32., 1024.])
    """
    query = single(DataBounds)
    return answer_query(query, values, owners, outside=outside, smallest=smallest, largest=largest, **options)
