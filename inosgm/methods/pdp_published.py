"""The accounting that PDP-SGD was published with, for comparison only: it is false, and no ledger takes it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.methods.pdp_sgd import Waste, sampling_probabilities, threshold
from inosgm.owners import Owners


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedAccounting:
    """What Theorem 4.5 of PDP-SGD claims that every record has spent. **It guarantees nothing.**

    A record pays the whole threshold, or what it has left, for a round in which it was drawn, and nothing for the
    others; yet that the threshold is kept below the record's own budget at all rests on the chance that it might not be
    drawn. One cannot have both: see the page on the counterexample. It is no `Cost`, and no ledger takes it. Who was
    drawn is private in a run; here it is simulated, from budgets alone.

    Attributes:
        owners: Who grants what.
        thresholds: tau of every round.
        drawn: Whether each record was drawn, a row for every round.
        charged: What it is said to have paid, likewise.
        delta: Of the mechanism of one round.
    """

    owners: Owners
    thresholds: tuple[float, ...]
    drawn: np.ndarray
    charged: np.ndarray
    delta: float

    @property
    def claimed(self) -> np.ndarray:
        """The epsilon that each record is said to have spent in all rounds; never above what its owner grants."""
        return np.asarray(self.charged.sum(axis=0))

    @property
    def claimed_delta(self) -> float:
        """The delta of that claim: one for each round."""
        return len(self.thresholds) * self.delta

    def report(self) -> str:
        """Return a table for people: what is said to be spent, on average over the records of an owner, and at most."""
        from inosgm._internal.text import columns

        rows = []
        for place, label in enumerate(self.owners.labels):
            mine = self.claimed[self.owners.of_record == place]
            cells = [f"{mine.mean():.4g}", f"{mine.max():.4g}"] if mine.size else ["-", "-"]
            rows.append([str(label), f"{self.owners.epsilon[place]:.4g}", *cells])
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
    """Simulate who is drawn in the rounds of Algorithm 1 of PDP-SGD, and what its Theorem 4.5 charges.

    Args:
        owners: Who grants what; see Owners.
        rounds: How many rounds.
        delta: Of the mechanism of one round.
        thresholds: tau of every round. If not given they are chosen as published, by what every record has left, which
            depends on who was drawn: such a threshold, and the noise that follows from it, give away who took part.
        waste: How wastes are weighed when thresholds are chosen.
        weight: Likewise.
        seed: Decides who is drawn.

    >>> owners = Owners(of_record=["strict"] * 500 + ["mild"] * 500, epsilon={"strict": 0.5, "mild": 2.0}, delta=1e-5)
    >>> found = published_accounting(owners, rounds=2, delta=1e-5, thresholds=[1.0, 1.0])
    >>> float(found.claimed[:500].max()), float(found.claimed[500:].min())
    (0.5, 2.0)
    """
    rounds = _validate.count("rounds", rounds, least=1)
    if thresholds is not None and len(thresholds) != rounds:
        raise ValueError(f"thresholds must hold one for each of {rounds} rounds, got {len(thresholds)}")
    generator = np.random.default_rng(_validate.count("seed", seed))
    left = owners.epsilon[owners.of_record]
    taken, drawn, charged = [], [], []
    for number in range(rounds):
        if not left.any():
            raise ValueError(f"rounds must be at most {number} here, got {rounds}: then nobody has anything left")
        tau = threshold(left, np.ones(left.size), waste, weight) if thresholds is None else float(thresholds[number])
        here = generator.random(left.size) < sampling_probabilities(left, tau)
        paid = np.where(here, np.minimum(left, tau), 0.0)
        left = left - paid
        taken.append(tau)
        drawn.append(here)
        charged.append(paid)
    return PublishedAccounting(
        owners=owners,
        thresholds=tuple(taken),
        drawn=np.array(drawn),
        charged=np.array(charged),
        delta=_validate.number("delta", delta, above=0, most=1),
    )
