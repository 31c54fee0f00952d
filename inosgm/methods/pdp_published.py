"""The published accounting of PDP-SGD, for comparison only: it is false, and no ledger accepts it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.methods.pdp_sgd import Waste, sampling_probabilities, threshold
from inosgm.owners import Owners


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedAccounting:
    """The epsilons that Theorem 4.5 of PDP-SGD claims for every record. **It guarantees nothing.**

    A record is charged the threshold, or the rest of its budget, for a round in which it was drawn, and nothing for
    other rounds. But a record with a budget below the threshold keeps that budget only because it may not be drawn.
    The two statements contradict each other: see the page on the counterexample. In a run, the set of drawn records is
    private; here it is simulated from the budgets alone.

    Attributes:
        owners: Who grants what.
        thresholds: The threshold tau of every round.
        drawn: Whether each record was drawn, a row for every round.
        charged: The claimed epsilon of each record, a row for every round.
        delta: The delta of the mechanism of one round.
    """

    owners: Owners
    thresholds: tuple[float, ...]
    drawn: np.ndarray
    charged: np.ndarray
    delta: float

    @property
    def claimed(self) -> np.ndarray:
        """The claimed epsilon of each record in all rounds; never above what its owner grants."""
        return np.asarray(self.charged.sum(axis=0))

    @property
    def claimed_delta(self) -> float:
        """The delta of the claim: the sum over rounds."""
        return len(self.thresholds) * self.delta

    def report(self) -> str:
        """Return a table of the claimed epsilons: the mean over the records of each owner, and the largest."""
        from inosgm._internal.text import columns

        rows = []
        for owner, label in enumerate(self.owners.labels):
            epsilons = self.claimed[self.owners.of_record == owner]
            cells = [f"{epsilons.mean():.4g}", f"{epsilons.max():.4g}"] if epsilons.size else ["-", "-"]
            rows.append([str(label), f"{self.owners.epsilon[owner]:.4g}", *cells])
        named = ["owner", "epsilon granted", "claimed on average", "claimed at most"]
        return "\n".join(["as published by PDP-SGD, which is NOT a guarantee", *columns(named, rows)])


def published_accounting(
    owners: Owners,
    *,
    rounds: int,
    delta: float,
    thresholds: Sequence[float] | None = None,
    waste: Waste = "fixed",
    weight: float = 0.7,
    seed: int = 0,
) -> PublishedAccounting:
    """Simulate the rounds of Algorithm 1 of PDP-SGD and the charges of its Theorem 4.5.

    Args:
        owners: Who grants what; see Owners.
        rounds: Number of rounds.
        delta: The delta of the mechanism of one round.
        thresholds: The threshold tau of every round. If not given, they are chosen as published, from the remaining
            budget of every record. That depends on which records were drawn, and so reveals it.
        waste: How the two wastes of a threshold are weighted; see `threshold`.
        weight: The fixed weight of the first waste.
        seed: Decides which records are drawn.

    >>> owners = Owners(of_record=["strict"] * 500 + ["mild"] * 500, epsilon={"strict": 0.5, "mild": 2.0}, delta=1e-5)
    >>> claims = published_accounting(owners, rounds=2, delta=1e-5, thresholds=[1.0, 1.0])
    >>> float(claims.claimed[:500].max()), float(claims.claimed[500:].min())
    (0.5, 2.0)
    """
    rounds = _validate.count("rounds", rounds, least=1)
    if thresholds is not None and len(thresholds) != rounds:
        raise ValueError(f"thresholds must hold one for each of {rounds} rounds, got {len(thresholds)}")
    generator = np.random.default_rng(_validate.count("seed", seed))
    left = owners.epsilon[owners.of_record]
    used, drawn, charged = [], [], []
    for number in range(rounds):
        if not left.any():
            raise ValueError(f"rounds must be at most {number} here, got {rounds}: no record has any budget after that")
        tau = threshold(left, np.ones(left.size), waste, weight) if thresholds is None else float(thresholds[number])
        here = generator.random(left.size) < sampling_probabilities(left, tau)
        paid = np.where(here, np.minimum(left, tau), 0.0)
        left = left - paid
        used.append(tau)
        drawn.append(here)
        charged.append(paid)
    return PublishedAccounting(
        owners=owners,
        thresholds=tuple(used),
        drawn=np.array(drawn),
        charged=np.array(charged),
        delta=_validate.number("delta", delta, above=0, most=1),
    )
