"""An audit of the mechanism itself: it releases the worst canaries many times, and bounds the epsilon of an owner."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting.units import RECORD, REPLACE_ONE, described, name_of
from inosgm.audit.bounds import Bound
from inosgm.audit.canaries import Canary, DataCanary, SyntheticCanary, canaries_of
from inosgm.audit.claims import Claim, claims_of
from inosgm.audit.held_out import bound_of_runs
from inosgm.audit.replaced import AmongCopies, ReplacedCanary, ReplacedDataCanary
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.noise import streams
from inosgm.mechanism.secure_generator import Generator
from inosgm.owners import Label

LEAST_MOVE = 1e-9
"""A canary that moves the sum by less, relative to the sensitivity, is not run: such changes are rounding errors."""

FEW_STEPS = 32
"""Largest number of steps for which sums are compared at every step; of more steps, some are drawn."""


@dataclass(frozen=True, kw_only=True)
class CanaryBound:
    """The result of one canary.

    Attributes:
        canary: Its name.
        moves: The change of the exact sum of the first step when the canary is added, or replaced by its opposite.
        bound: The bound from its releases; None if it moves nothing.
    """

    canary: str
    moves: float
    bound: Bound | None


@dataclass(frozen=True, kw_only=True)
class MechanismAudit:
    """The results of all canaries of an owner. NOT PRIVATE if made with data.

    All rows hold at once, with the stated confidence.

    Attributes:
        claim: The claim of the plan.
        promised: The sensitivity of the owner by the plan.
        runs: The number of runs of the whole plan in each world: without a canary, or with its opposite, and with it.
        confidence: The joint confidence of all rows.
        rows: The result of every canary.
    """

    claim: Claim
    promised: float
    runs: int
    confidence: float
    rows: tuple[CanaryBound, ...]

    @property
    def owner(self) -> Label:
        """The label of the owner."""
        return self.claim.owner

    @property
    def epsilon(self) -> float:
        """A lower bound on the epsilon at the claim's delta, if the mechanism leaks like the claimed one, scaled."""
        return max((row.bound.epsilon for row in self.rows if row.bound), default=0.0)

    @property
    def sensitivity(self) -> float:
        """The smallest sensitivity, with the noise of the plan, that explains the releases."""
        return self.promised * max((row.bound.scale or 0.0 for row in self.rows if row.bound), default=0.0)

    @property
    def contradicts(self) -> bool:
        """Whether the claim is refuted."""
        return any(row.bound.contradicts for row in self.rows if row.bound)

    def table(self) -> str:
        """Return the results as a text table."""
        from inosgm._internal.text import columns

        claim, rows = self.claim, []
        of_unit = " of a record that is replaced" if claim.unit == REPLACE_ONE else ""
        if name_of(claim.unit) != RECORD:
            of_unit = f" {described(claim.unit)}"
        for row in self.rows:
            bound = row.bound
            cells = (
                ["-", "-", "-"]
                if bound is None
                else [
                    f"{self.promised * (bound.scale or 0.0):.4g}",
                    f"{bound.epsilon:.4g}",
                    "refuted" if bound.contradicts else "not refuted",
                ]
            )
            rows.append([row.canary, f"{row.moves:.4g}", *cells])
        return "\n".join(
            [
                f"owner {claim.owner}: sensitivity {self.promised:.4g} and epsilon {claim.spent:.4g} at delta "
                f"{claim.delta:g} claimed{of_unit}; {self.runs} runs, confidence {self.confidence:g}",
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
    """Attack a mechanism with the worst canaries of an owner, and return lower bounds on the owner's epsilon.

    The canary's coins come from the mechanism's own sampler, the sums from its own clipping, order, tail and
    weights, the noise from its own noise, over all steps of the plan; contributions and scores are synthetic. The
    guarantee holds whatever the coins of others are, so the batch around the canary is always complete, which is the
    worst case. The test is the likelihood ratio of all steps under the claim. A tenth of the runs chooses its
    threshold. Nothing is released, charged or counted as a step.

    A plan for batches without replacement protects a record that is replaced, and is attacked in that unit: the canary
    is in the data of one world, its opposite in those of the other, and sums differ by up to twice the sensitivity in
    every batch that draws it. Coins of one batch depend on each other there, so each run draws its own batches, which
    takes longer.

    **Guarantee.** A mechanism that keeps its promise is contradicted with probability 1 - confidence at most, all
    canaries together. If nothing is contradicted, nothing is proven. NOT PRIVATE with data.

    Args:
        mechanism: Any mechanism or `Trainer`. Its public `plan` is the promise.
        owner: A label of the plan that has records. An owner with very few records takes long.
        runs: The number of runs with each canary, and as many without it.
        data: Real records: the worst pair of batches that a search finds among them is attacked as well.
        delta: The delta of epsilon; the plan's delta, or 1e-5, if not given.
        confidence: The joint confidence of all bounds.
        seed: Everything random is a function of it.
        progress: Called with the number of steps done, and of all steps.

    Raises:
        ValueError: for an owner without records, and for numbers out of range.

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
    index = plan.labels.index(owner)
    if not (inspection.owners == index).any():
        raise ValueError(f"owner must have a record, whose coins can be tossed: {owner!r} has none")
    if not plan.sample_rates[index]:
        raise ValueError(f"owner must take part: the plan never draws records of {owner!r}")
    claim = claims_of(plan, delta)[index]
    canaries = _canaries(inspection, index, claim)
    if data is not None:
        kind = ReplacedDataCanary if claim.relation == REPLACE_ONE else DataCanary
        canaries.append(kind(inspection, data, index, seed))
    probed = _probed(claim.steps, seed)
    seen = [canary for canary in canaries if canary.most(probed) > LEAST_MOVE * plan.sensitivities[index]]
    statistics = _statistics(inspection, seen, index, claim, runs, seed, probed, progress)
    mixed = np.random.default_rng(seed).permutation(runs)  # so that held-out runs are like the others
    bounds = {
        canary: bound_of_runs(ratios[0, mixed], ratios[1, mixed], claim, error / len(seen))
        for canary, ratios in zip(seen, statistics, strict=True)
    }
    return MechanismAudit(
        claim=claim,
        promised=float(plan.sensitivities[index]),
        runs=runs,
        confidence=confidence,
        rows=tuple(CanaryBound(canary=c.name, moves=c.moves, bound=bounds.get(c)) for c in canaries),
    )


def _canaries(mechanism: Inspection, index: int, claim: Claim) -> list[Canary]:
    """Return the synthetic canaries in the unit of a claim."""
    if claim.relation != REPLACE_ONE:
        return [*canaries_of(SyntheticCanary, mechanism, index)]
    top, *others = canaries_of(ReplacedCanary, mechanism, index)
    return [top, *([AmongCopies(top)] if claim.sample_rate < 1 else []), *others]


def _statistics(
    mechanism: Inspection,
    canaries: list[Canary],
    index: int,
    claim: Claim,
    runs: int,
    seed: int,
    probed: list[int],
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """Return the log-likelihood ratios of all runs, by canary, world (left out or replaced, put in) and run."""
    ratios = np.zeros((len(canaries), 2, runs))
    scale = mechanism.promise.noise_scale
    own = np.flatnonzero(mechanism.owners == index)
    every = _same_at_every_step(canaries, probed)
    for step in range(claim.steps):
        coins, noise = streams(seed, step)
        drawn = _coins_of_worlds(mechanism, own, runs, coins, claim)
        sums = every or [canary.worlds(step) for canary in canaries]
        for row, (out, *inside) in zip(ratios, sums, strict=True):
            down, up = ((total - out) / scale for total in inside)
            for world, total, coin in zip(row, inside, drawn, strict=True):
                released = (mechanism.add_noise(np.where(coin, total, out), noise) - out) / scale
                world += _log_ratio(released, up, claim.sample_rate)
                if down:
                    world -= _log_ratio(released, down, claim.sample_rate)
        if progress is not None:
            progress(step + 1, claim.steps)
    return ratios


def _probed(steps: int, seed: int) -> list[int]:
    """Return the steps at which sums are compared: all of a few, otherwise the ends and some random ones."""
    if steps <= FEW_STEPS:
        return list(range(steps))
    drawn = np.random.default_rng([seed, steps]).choice(steps, FEW_STEPS // 2, replace=False)
    return sorted({0, 1, steps - 1, *drawn.tolist()})


def _same_at_every_step(canaries: list[Canary], probed: list[int]) -> list[tuple[float, float, float]] | None:
    """Return the sums if they are the same at all compared steps, otherwise None."""
    first, *others = ([canary.worlds(step) for canary in canaries] for step in probed)
    return first if all(sums == first for sums in others) else None


def _coins_of_worlds(
    mechanism: Inspection, own: np.ndarray, runs: int, generator: Generator, claim: Claim
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for all runs in both worlds, whether the batch has drawn the canary. No coin is used twice.

    If a canary is added, the world without it has nothing to draw, whatever the coins are.
    """
    if claim.relation != REPLACE_ONE or claim.sample_rate == 1:
        drawn = _coins(mechanism, own, runs, generator)
        return drawn, drawn
    tossed = [(mechanism.draw(generator) == record).any() for record in np.resize(own, 2 * runs)]
    return np.array(tossed[:runs]), np.array(tossed[runs:])


def _coins(mechanism: Inspection, own: np.ndarray, runs: int, generator: Generator) -> np.ndarray:
    """Return one coin for every run, from as many draws of the sampler as that takes."""
    tossed = []
    for _ in range(-(-runs // own.size)):
        drawn = np.zeros(mechanism.owners.size, dtype=bool)
        drawn[mechanism.draw(generator)] = True
        tossed.append(drawn[own])
    return np.concatenate(tossed)[:runs]


def _log_ratio(released: np.ndarray, moved: float, rate: float) -> np.ndarray:
    """Return log(1 - q + q exp(mu x - mu^2 / 2)), the log-likelihood ratio of a release with and without the record."""
    exponent = moved * released - moved**2 / 2
    if rate == 1:
        return np.asarray(exponent)
    return np.asarray(np.log(1 - rate + rate * np.exp(np.minimum(exponent, 700.0))))  # exp(710) overflows
