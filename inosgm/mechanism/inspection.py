"""A read-only view of a mechanism, through which audits look at it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inosgm.mechanism.clipping import Clipping
from inosgm.mechanism.mechanism import INOSGM, DrawnBatch, Measured
from inosgm.mechanism.orders import Order
from inosgm.mechanism.record_filter import Filter
from inosgm.mechanism.secure_generator import Generator
from inosgm.mechanism.streaming import Streaming
from inosgm.mechanism.tails import Tail
from inosgm.planning.plan import Plan

ORDER_SECRET = 0
"""The secret of random orders in sums that are compared: with a fresh one, two sums would differ by their orders."""


class Inspection:
    """A read-only view of a mechanism for audits: its public choices, its coins, its noise and exact sums. NOT PRIVATE.

    **Guarantee.** Nothing is released, charged or counted as a step, and the coins and noise of the mechanism stay
    unused: they are drawn from generators of the caller. What records have spent is seen in copies only.

    Args:
        mechanism: A mechanism, or an object such as a `Trainer` that has one as its `mechanism`.

    Raises:
        TypeError: for anything else.

    >>> class Total(INOSGM):
    ...     def contributions(self, batch):
    ...         return batch
    ...     def scores(self, batch):
    ...         return batch[:, 0]
    >>> plan = Plan(sample_rates=[1, 1], sensitivities=[1, 3], sizes=[1, 2], noise_scale=0.1, steps=1)
    >>> mechanism = Total(plan, owners=[0, 1, 1])
    >>> Inspection(mechanism).sums(np.array([[1.0], [2.0], [3.0]]), [np.array([0, 2]), np.array([1])])
    [array([4.]), array([2.])]
    >>> mechanism.released
    0
    """

    def __init__(self, mechanism: Any) -> None:
        found = getattr(mechanism, "mechanism", mechanism)
        if not isinstance(found, INOSGM):
            raise TypeError(f"mechanism must be an INOSGM or a Trainer, got {mechanism!r}")
        self._mechanism: INOSGM = found

    @property
    def plan(self) -> Plan:
        """The plan that the next step follows: where there is a menu, with the choice that was made from it."""
        return self._mechanism._current_plan

    @property
    def promise(self) -> Plan:
        """The plan that the mechanism reports, with the choice that was made from its menu."""
        chosen = self._mechanism._current_plan is not self._mechanism._plan
        return self._mechanism._current_plan if chosen else self._mechanism.plan

    @property
    def owners(self) -> np.ndarray:
        """The position in the plan of the owner of each record, or of each unit if units have several records."""
        view = self._mechanism._owners.view()
        view.flags.writeable = False
        return view

    @property
    def n_records(self) -> int:
        """The number of records that the data must hold."""
        units = self._mechanism._units
        return self._mechanism._owners.size if units is None else units.size

    def records_of(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions in the data of the records of a batch: all records of its units if they have several."""
        units = self._mechanism._units
        return positions if units is None else units.every(positions)[0]

    @property
    def tail(self) -> Tail:
        """The tail of the next step."""
        return self._mechanism._tail

    @property
    def order(self) -> Order:
        """The order."""
        return self._mechanism._order

    @property
    def clipping(self) -> Clipping:
        """The clipping, which bounds contributions."""
        return self._mechanism._clipping

    @property
    def streams(self) -> bool:
        """Whether sums are exact sums of streams, which are merged from parts."""
        return isinstance(self._mechanism, Streaming)

    def filter(self) -> Filter | None:
        """Return a copy of what each record has spent if records pay for themselves, else None."""
        live = self._mechanism._filter
        found = self.new_filter(self._mechanism._owners)
        if found is not None and live is not None:
            found.restore(live.spent)
        return found

    def new_filter(self, owners: np.ndarray) -> Filter | None:
        """Return the filter of records of these owners that have spent nothing; None if the plan needs none."""
        return Filter.of(self._mechanism.plan, owners)

    def draw(self, generator: Generator) -> np.ndarray:
        """Return the positions of the records of a batch, by the mechanism's own sampler."""
        return self._mechanism._sampler.draw(generator)

    def add_noise(self, total: np.ndarray, generator: Generator) -> np.ndarray:
        """Return a vector with the mechanism's own noise on every coordinate, as on a sum of its own form."""
        form = self._mechanism._form_of_sums(total[None, :]).weighted_sum(np.ones(1))
        noisy = self._mechanism._noisy(form, generator)
        return np.asarray(noisy[0] if isinstance(noisy, list) else noisy, dtype=np.float64)

    def sums(
        self,
        data: Any,
        batches: Sequence[np.ndarray],
        step: int = 0,
        filters: Sequence[Filter | None] | None = None,
    ) -> list[Any]:
        """Return the exact sums of several batches of the data, with one random order and one dropout for all.

        Args:
            data: All records, as for `release`.
            batches: The positions of the records, or units, of each batch, ascending.
            step: The step of the plan.
            filters: What records have spent before each batch if they pay for themselves; a copy of what they have
                spent so far if not given. Each is asked for what the records of its batch contribute.
        """
        filters = [self.filter() for _ in batches] if filters is None else filters
        drawn = (self._mechanism._batch(data, positions, step) for positions in batches)
        with self._mechanism._comparing():
            return [
                self._mechanism._sum(replace(batch, records=records, order_secret=ORDER_SECRET))
                for batch, records in zip(drawn, filters, strict=True)
            ]

    def synthetic_sum(
        self,
        rows: np.ndarray,
        scores: np.ndarray,
        owners: np.ndarray,
        positions: np.ndarray,
        *,
        step: int = 0,
        records: Filter | None = None,
    ) -> Any:
        """Return the exact sum of a batch of synthetic records, by the mechanism's clipping, order, tail and weights.

        Args:
            rows: The contribution of each record.
            scores: How important each record is.
            owners: The position in the plan of each record's owner.
            positions: Which of the records are in the batch, ascending.
            step: The step of the plan.
            records: What the records have spent before if they pay for themselves; it is asked for the batch.
        """

        def measure(_: Any, positions: np.ndarray | None, owners: np.ndarray, step: int) -> Measured:
            return self._mechanism._form_of_sums(rows[positions]), scores[positions]

        batch = DrawnBatch(
            data=None,
            positions=positions,
            owners=owners[positions],
            step=step,
            measure=measure,
            records=records,
            order_secret=ORDER_SECRET,
        )
        return self._mechanism._sum(batch)
