"""Federated averaging of clients' updates, ordered by their losses."""

from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.records import records_in
from inosgm.mechanism.orders import Descending
from inosgm.mechanism.tails import BetaTail, LinearTail, Tail
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.bounds import numbers
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.statistic import Statistic

_LARGEST_UPDATE = 1e100
"""Entries of updates are cut to this multiple of `clip_norm`: their squares then fit into float64 (1e308)."""


class FederatedAverage(Statistic):
    """The average update of clients, round after round, in which clients with small losses count less.

    A record is a client; its owner grants the budget for it. A batch is a pair: an update per row, and the
    loss that each client reports. `round` takes such a batch and returns the noisy average.

    **What it estimates.** The average of updates, each clipped to `clip_norm`, with weights: the client's sensitivity
    C, which grows with its budget, times its importance, which falls to 0 in the fraction of all sensitivity where
    losses are smallest. Without a fraction, all clients count in full.

    **Bias.** Longer updates are clipped; clients with large losses and large budgets count more, which is the purpose.

    **Guarantee.** That of `Statistic`, for everything about a client, added or removed, in every round. It holds
    whatever a client reports: an update with anything but finite numbers counts as zero, a loss that is no number ranks
    last, and a client moves the sum, the weights of all others included, by at most C. So one that lies moves
    the average by at most `2 * clip_norm * C / total` from where its honest report would have moved it.

    Args:
        plan: The public numbers; a step for every round.
        owners: As for `Statistic`.
        clip_norm: The longest update that counts in full.
        fraction: The fraction of the sensitivity of all clients that is in the tail.
        shape: Two parameters of a `BetaTail`; a `LinearTail` if not given.
        rounds: The number of releases.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[3], noise_scale=1e-4, steps=2)
    >>> server = FederatedAverage(plan, [0, 0, 0], clip_norm=5.0, fraction=0.0, rounds=2, key=1)
    >>> server.round(np.array([[3.0, 4.0], [0.0, 0.0], [30.0, 40.0]]), losses=[1.0, 2.0, 3.0]).round(2)
    array([2.  , 2.67])
    >>> server.round(np.array([[3.0, 4.0], [np.nan, 0.0], [0.0, 0.0]]), losses=[1.0, np.inf, 3.0]).round(2)
    array([1.  , 1.33])
    """

    name = "federated-average"
    key_name = "inosgm.statistics.federated.FederatedAverage"

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        clip_norm: float,
        fraction: float = 0.5,
        shape: Any = None,
        rounds: int = 1,
        **options: Any,
    ) -> None:
        self.clip_norm = _validate.number("clip_norm", clip_norm, above=0)
        length = plan.tail_length(fraction)
        tail: Tail = LinearTail(length)
        if shape is not None:
            pair = _validate.vector("shape", shape).tolist()
            if len(pair) != 2:
                raise ValueError(f"shape must be the two parameters of a BetaTail, got {len(pair)}")
            tail = BetaTail(alpha=pair[0], beta=pair[1], length=length)
        super().__init__(plan, owners, tail=tail, order=Descending(), **options)

    @classmethod
    def each_once(cls, **parameters: Any) -> bool:
        """Return False: clients weigh as much as their budgets buy, which is the purpose."""
        return False

    @classmethod
    def rounds_of(cls, *, rounds: int = 1, **parameters: Any) -> int:
        """Return the number of rounds."""
        return _validate.count("rounds", rounds, least=1)

    def check(self, batch: Any) -> None:
        """Raise unless there are a row and a loss for every client; any values are accepted."""
        updates, losses = _reports(batch)
        if updates.ndim != 2 or losses.shape != updates.shape[:1]:
            raise ValueError(
                f"updates must be a row per client, and losses a number, got shapes {updates.shape} and {losses.shape}"
            )

    def contributions(self, batch: Any) -> np.ndarray:
        """Return updates in units of `clip_norm`; the sum clips longer ones, and drops those that are not finite."""
        updates, most = _reports(batch)[0], _LARGEST_UPDATE * self.clip_norm
        return np.where(np.isfinite(updates), np.clip(updates, -most, most), np.nan) / self.clip_norm

    def scores(self, batch: Any) -> np.ndarray:
        """Return the losses that clients report."""
        return _reports(batch)[1]

    def round(self, updates: Any, losses: Any) -> np.ndarray:
        """Release the noisy average update of a round.

        Args:
            updates: A row per client, in the order of the owners.
            losses: The loss that each client reports.

        Raises:
            RuntimeError: when all rounds are released.
            ValueError: for shapes that do not pair up. Both come before anything is charged.
        """
        batch = numbers(updates), numbers(losses)
        self.check(batch)
        self.observe(self.release(batch).value)
        return self._average()

    def estimate(self) -> Estimate:
        """Return the average of the last round."""
        average = self._average()
        return self.estimated(
            average,
            np.full(average.shape, self.clip_norm * self.noise / self.total),
            "average update, in which clients with small losses count less",
        )

    def _average(self) -> np.ndarray:
        return np.asarray(self.clip_norm * self.observed[-1] / self.total)


def _reports(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise TypeError(f"a batch must be a pair, updates and losses, got {type(batch).__name__}")
    records_in(batch)
    return numbers(batch[0]), numbers(batch[1])
