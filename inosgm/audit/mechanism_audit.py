"""An audit of the mechanism itself: the worst canaries, released many times, and what they say about every promise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting.units import REPLACE_ONE
from inosgm.audit.bounds import Bound, Counts, best_level, bound_by_counts, refuted_scale
from inosgm.audit.canaries import Canary, Found, MadeUp, canaries_of
from inosgm.audit.claims import Claim, claims_of
from inosgm.audit.replaced import AmongItsLikes, FoundReplaced, Replaced
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.noise import streams
from inosgm.owners import Label

HELD_OUT = 0.1
"""The part of all runs by which the threshold of a test is chosen; only the others are counted."""

LEAST_MOVE = 1e-9
"""A canary that moves the sum by less, relative to the sensitivity, is not run: that much is rounding."""

FEW_STEPS = 32
"""Up to so many steps, sums are computed at each."""

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True, kw_only=True)
class CanaryBound:
    """What one canary says.

    Attributes:
        canary: What it is.
        moves: By how much the exact sum of the first step moves when the canary is added, or replaced by its opposite.
        bound: What its releases say; None if it moves nothing, so that nothing can be seen.
    """

    canary: str
    moves: float
    bound: Bound | None


@dataclass(frozen=True, kw_only=True)
class MechanismAudit:
    """What canaries of an owner say about what the mechanism promises it. NOT PRIVATE if made with data.

    All rows hold at once, with the stated confidence.

    Attributes:
        claim: What the plan claims.
        promised: The sensitivity of the owner by the plan.
        runs: How many times the whole plan was run in either world: with each canary left out, or its opposite in its
            place, and with it put in.
        confidence: Of everything here at once.
        rows: What every canary says.
    """

    claim: Claim
    promised: float
    runs: int
    confidence: float
    rows: tuple[CanaryBound, ...]

    @property
    def owner(self) -> Label:
        """Whose promise it is about."""
        return self.claim.owner

    @property
    def epsilon(self) -> float:
        """At least so much is spent at the claim's delta, if the mechanism leaks like the claimed one, scaled."""
        return max((row.bound.epsilon for row in self.rows if row.bound), default=0.0)

    @property
    def sensitivity(self) -> float:
        """The sensitivity, with the noise of the plan, that explains what was seen: at least so much."""
        return self.promised * max((row.bound.scale or 0.0 for row in self.rows if row.bound), default=0.0)

    @property
    def contradicts(self) -> bool:
        """Whether the claim is refuted."""
        return any(row.bound.contradicts for row in self.rows if row.bound)

    def table(self) -> str:
        """Return a table for people."""
        from inosgm._internal.text import columns

        claim, rows = self.claim, []
        of_replaced = " of a record that is replaced" if claim.unit == REPLACE_ONE else ""
        for row in self.rows:
            found = row.bound
            cells = (
                ["-", "-", "-"]
                if found is None
                else [
                    f"{self.promised * (found.scale or 0.0):.4g}",
                    f"{found.epsilon:.4g}",
                    "refuted" if found.contradicts else "not refuted",
                ]
            )
            rows.append([row.canary, f"{row.moves:.4g}", *cells])
        return "\n".join(
            [
                f"owner {claim.owner}: sensitivity {self.promised:.4g} and epsilon {claim.spent:.4g} at delta "
                f"{claim.delta:g} claimed{of_replaced}; {self.runs} runs, confidence {self.confidence:g}",
                *columns(["canary", "moves the sum by", "sensitivity >=", "epsilon >=", "claim"], rows),
            ]
        )


def audit_mechanism(
    mechanism: Any,
    owner: Label,
    runs: int = 10_000,
    *,
    data: Any = None,
    delta: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> MechanismAudit:
    """Attack a mechanism with the worst canaries of an owner, and bound the epsilon that the owner spends from below.

    The canary's coins come from the mechanism's own sampler, the sums from its own clipping, order, tail and
    weights, the noise from its own noise, over all steps of the plan; contributions and scores are made up. What others
    toss does not matter to a guarantee, so the batch around the canary is always complete, which is the worst case.
    The test is the likelihood ratio of all steps under the claim. A tenth of the runs chooses its threshold. Nothing is
    released, charged or counted as a step.

    A plan without replacement promises something about a record that is replaced, and is attacked in that unit: the
    canary is in the data of one world, its opposite in those of the other, and sums differ by up to twice the
    sensitivity in whatever batches draw it. Coins of one batch depend on each other there, so each run draws batches of
    its own, which takes longer.

    **Guarantee.** A mechanism that keeps its promise is contradicted with probability 1 - confidence at most, all
    canaries together. That nothing is contradicted proves nothing. NOT PRIVATE with data.

    Args:
        mechanism: Any mechanism, a `Trainer` too. Its public `plan` is taken for the promise.
        owner: Whose promise; a label of the plan that has records. An owner with very few records takes long.
        runs: How many times each canary is left out, and put in.
        data: Real records: the worst pair of batches that a search finds among them is attacked, too.
        delta: Where to look at epsilon; the plan's delta, or 1e-5, if not given.
        confidence: Of all bounds at once.
        seed: Everything random is a function of it.
        progress: Told how many steps are done, and how many there are.

    Raises:
        ValueError: for an owner without records, and for numbers that cannot be.

    >>> from inosgm import INOSGM, Plan
    >>> class Total(INOSGM):
    ...     def contributions(self, batch):
    ...         return batch
    ...     def scores(self, batch):
    ...         return batch[:, 0]
    >>> plan = Plan(sample_rates=[1], sensitivities=[2], sizes=[1], noise_scale=2, steps=1)
    >>> audit = audit_mechanism(Total(plan, owners=[0]), 0, runs=5000)
    >>> audit.contradicts, 3.5 < audit.epsilon < audit.claim.spent
    (False, True)
    """
    inspection = Inspection(mechanism)
    runs, seed = _validate.count("runs", runs, least=100), _validate.count("seed", seed)
    error = 1 - _validate.number("confidence", confidence, above=0, most=1)
    plan = inspection.promise
    if owner not in plan.labels:
        raise ValueError(f"owner must be a label of the plan ({_validate.some(plan.labels)}), got {owner!r}")
    place = plan.labels.index(owner)
    if not (inspection.owners == place).any():
        raise ValueError(f"owner must have a record, whose coins can be tossed: {owner!r} has none")
    if not plan.sample_rates[place]:
        raise ValueError(f"owner must take part: the plan never draws records of {owner!r}")
    claim = claims_of(plan, delta)[place]
    canaries = _canaries(inspection, place, claim)
    if data is not None:
        kind = FoundReplaced if claim.unit == REPLACE_ONE else Found
        canaries.append(kind(inspection, data, place, seed))
    probed = _probed(claim.steps, seed)
    seen = [canary for canary in canaries if canary.most(probed) > LEAST_MOVE * plan.sensitivities[place]]
    statistics = _statistics(inspection, seen, place, claim, runs, seed, probed, progress)
    mixed = np.random.default_rng(seed).permutation(runs)  # held-out runs must be like the others, whatever is broken
    bounds = {
        canary: _bound(found[0, mixed], found[1, mixed], claim, error / len(seen))
        for canary, found in zip(seen, statistics, strict=True)
    }
    return MechanismAudit(
        claim=claim,
        promised=float(plan.sensitivities[place]),
        runs=runs,
        confidence=confidence,
        rows=tuple(CanaryBound(canary=c.name, moves=c.moves, bound=bounds.get(c)) for c in canaries),
    )


def _canaries(mechanism: Inspection, place: int, claim: Claim) -> list[Canary]:
    """Return the made-up canaries in the unit of a claim."""
    if claim.unit != REPLACE_ONE:
        return [*canaries_of(MadeUp, mechanism, place)]
    top, *others = canaries_of(Replaced, mechanism, place)
    return [top, *([AmongItsLikes(top)] if claim.sample_rate < 1 else []), *others]


def _statistics(
    mechanism: Inspection,
    canaries: list[Canary],
    place: int,
    claim: Claim,
    runs: int,
    seed: int,
    probed: list[int],
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """Return the log-likelihood ratios of all runs, by canary, world (left out or replaced, put in) and run."""
    found = np.zeros((len(canaries), 2, runs))
    scale = mechanism.promise.noise_scale
    own = np.flatnonzero(mechanism.owners == place)
    every = _same_at_every_step(canaries, probed)
    for step in range(claim.steps):
        coins, noise = streams(seed, step)
        drawn = _coins_of_worlds(mechanism, own, runs, coins, claim)
        sums = every or [canary.worlds(step) for canary in canaries]
        for row, (out, *inside) in zip(found, sums, strict=True):
            down, up = ((total - out) / scale for total in inside)
            for world, total, coin in zip(row, inside, drawn, strict=True):
                released = (mechanism.add_noise(np.where(coin, total, out), noise) - out) / scale
                world += _log_ratio(released, up, claim.sample_rate)
                if down:
                    world -= _log_ratio(released, down, claim.sample_rate)
        if progress is not None:
            progress(step + 1, claim.steps)
    return found


def _probed(steps: int, seed: int) -> list[int]:
    """Return the steps at which sums are compared: all of a few, else the ends and some that nobody foresees."""
    if steps <= FEW_STEPS:
        return list(range(steps))
    drawn = np.random.default_rng([seed, steps]).choice(steps, FEW_STEPS // 2, replace=False)
    return sorted({0, 1, steps - 1, *drawn.tolist()})


def _same_at_every_step(canaries: list[Canary], probed: list[int]) -> list[tuple[float, float, float]] | None:
    """Return the sums if they are the same at all steps that are compared; else None."""
    first, *others = ([canary.worlds(step) for canary in canaries] for step in probed)
    return first if all(sums == first for sums in others) else None


def _coins_of_worlds(
    mechanism: Inspection, own: np.ndarray, runs: int, generator: np.random.Generator, claim: Claim
) -> tuple[np.ndarray, np.ndarray]:
    """Say of all runs in both worlds whether the batch has drawn the canary. No coin is used twice.

    Where a canary is added there is nothing to draw in the world without it, whatever the coins say.
    """
    if claim.unit != REPLACE_ONE or claim.sample_rate == 1:
        drawn = _coins(mechanism, own, runs, generator)
        return drawn, drawn
    tossed = [(mechanism.draw(generator) == record).any() for record in np.resize(own, 2 * runs)]
    return np.array(tossed[:runs]), np.array(tossed[runs:])


def _coins(mechanism: Inspection, own: np.ndarray, runs: int, generator: np.random.Generator) -> np.ndarray:
    """Toss the coins of an owner's records until every run has one."""
    tossed = []
    for _ in range(-(-runs // own.size)):
        drawn = np.zeros(mechanism.owners.size, dtype=bool)
        drawn[mechanism.draw(generator)] = True
        tossed.append(drawn[own])
    return np.concatenate(tossed)[:runs]


def _log_ratio(released: np.ndarray, moved: float, rate: float) -> np.ndarray:
    """Return log(1 - q + q exp(mu x - mu^2 / 2)): how much likelier a release is if the record may be in."""
    exponent = moved * released - moved**2 / 2
    if rate == 1:
        return np.asarray(exponent)
    return np.asarray(np.log(1 - rate + rate * np.exp(np.minimum(exponent, 700.0))))


def _bound(without: np.ndarray, with_record: np.ndarray, claim: Claim, error: float) -> Bound:
    """Choose a threshold by the first runs, which come in no order, and bound by the counts of the others."""
    first = int(HELD_OUT * without.size)
    threshold = _threshold(without[:first], with_record[:first], claim, without.size - first, error)
    return bound_by_counts(_counts(without[first:], with_record[first:], threshold), claim, 1 - error)


def _threshold(without: np.ndarray, with_record: np.ndarray, claim: Claim, runs: int, error: float) -> float:
    """Return the threshold whose false positives are as frequent as is best if the claim is true.

    If the claim does not look true, return the threshold that refutes most.
    """

    def refuted(threshold: float) -> float:
        return refuted_scale(_counts(without, with_record, threshold), claim, error, roughly=True)

    threshold = float(np.quantile(without, 1 - best_level(claim, runs, error)))
    if refuted(threshold) < 1:
        return threshold
    thresholds: list[float] = np.quantile(np.concatenate([without, with_record]), _SHARES).tolist()
    return max(thresholds, key=refuted)


def _counts(without: np.ndarray, with_record: np.ndarray, threshold: float) -> Counts:
    return Counts(
        true_positives=int((with_record > threshold).sum()),
        members=with_record.size,
        false_positives=int((without > threshold).sum()),
        others=without.size,
    )
