"""An audit of any callable that maps a data set to a noisy vector: of another library, or in another process."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.text import columns
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE
from inosgm.audit.bounds import Bound
from inosgm.audit.canaries import flat
from inosgm.audit.claims import Claim
from inosgm.audit.held_out import bound_of_runs

DIRECTION = 0.1
"""The share of all runs that choose the direction in which outputs are compared; no other run does."""

FEWEST_RUNS = 200
"""Smallest number of runs: fewer choose neither a direction nor a threshold that are of use."""


@dataclass(frozen=True, kw_only=True)
class GaussianSteps:
    """The steps that a claim is accounted for by: Gaussian noise on sums of Poisson batches.

    Attributes:
        noise_multiplier: The standard deviation of the noise over the sensitivity.
        sample_rate: The probability that a record is in the batch of a step.
        steps: The number of steps, all of which one call of the callable makes.
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    steps: int = 1

    def __post_init__(self) -> None:
        _validate.number("noise_multiplier", self.noise_multiplier, above=0)
        _validate.number("sample_rate", self.sample_rate, above=0, most=1)
        _validate.count("steps", self.steps, least=1)


@dataclass(frozen=True, kw_only=True)
class ReleaseAudit:
    """The result of an audit of a callable. NOT PRIVATE if the data are not.

    Attributes:
        epsilon: The claimed epsilon.
        delta: Its delta.
        runs: The number of calls with each data set.
        moved: The distance between the mean outputs with the two data sets, in standard deviations of the noise; from
            the counted runs.
        bound: The lower bound on epsilon, with the counts that it follows from.
    """

    epsilon: float
    delta: float
    runs: int
    moved: float
    bound: Bound

    @property
    def contradicts(self) -> bool:
        """Whether the claim is refuted: its epsilon, or the noise, rate and steps that it was accounted for by."""
        return self.bound.contradicts or self.bound.plain > self.epsilon

    def table(self) -> str:
        """Return the result as a text table."""
        bound = self.bound
        rows = [
            ["epsilon claimed", f"{self.epsilon:.4g} at delta {self.delta:g}"],
            ["epsilon at least", f"{bound.epsilon:.4g} ({bound.route}), {bound.plain:.4g} without assumptions"],
            ["sensitivity at least", "-" if bound.scale is None else f"{bound.scale:.4g} of the claimed one"],
            ["outputs differ by", f"{self.moved:.3g} standard deviations"],
            ["counts", bound.evidence],
            ["confidence", f"{bound.confidence:g}"],
            ["claim", "REFUTED" if self.contradicts else "not refuted"],
        ]
        return "\n".join(columns(["audit of a callable", f"{self.runs} runs with each data set"], rows))


def audit_callable(
    release: Callable[[Any], Any],
    without: Any,
    with_record: Any,
    *,
    epsilon: float,
    delta: float,
    steps: GaussianSteps | None = None,
    runs: int = 2000,
    replaced: bool = False,
    confidence: float = 0.95,
    progress: Callable[[int, int], None] | None = None,
) -> ReleaseAudit:
    """Attack any callable that maps a data set to noisy numbers, and return a lower bound on its epsilon.

    It calls the callable with two neighbouring data sets of yours, the same number of times in turn. A tenth of the
    calls chooses the direction in which the mean outputs differ, and a tenth of the others the threshold of a test; the
    rest is counted. The callable may do anything: a step of Opacus, a measurement of OpenDP, a question to another
    process. Its calls must be independent of each other, so it must not seed its noise.

    **Guarantee.** A callable that keeps its claim is contradicted with probability 1 - confidence at most. If nothing
    is contradicted, nothing is proven: other data sets may show more, and so may other outputs of a callable.

    Args:
        release: Maps a data set to numbers: an array, a tensor, or a tuple, list or dict of them.
        without: A data set, in whatever form the callable takes it.
        with_record: The same with one record more, or with one replaced.
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        steps: The steps that the claim is accounted for by, if it is Gaussian: the bound is much tighter with them, and
            a wrong noise, sensitivity or rate is seen even where the claimed epsilon leaves room for it.
        runs: The number of calls with each data set.
        replaced: Whether the claim is about a record that is replaced; otherwise one is added or removed.
        confidence: The confidence of the bound.
        progress: Called with the number of finished calls, and of all calls.

    Raises:
        ValueError: for numbers out of range, outputs that change their size, and outputs that are not finite.

    >>> generator = np.random.default_rng(0)
    >>> def noisy_sum(data):  # noise multiplier 1: epsilon 4.377 at delta 1e-5
    ...     return np.sum(data) + generator.normal()
    >>> claim = {"epsilon": 4.377, "delta": 1e-5, "steps": GaussianSteps(noise_multiplier=1)}
    >>> audit = audit_callable(noisy_sum, [1.0], [1.0, 1.0], **claim)
    >>> audit.contradicts, 3 < audit.bound.epsilon
    (False, True)
    >>> audit_callable(lambda data: 2 * np.sum(data) + generator.normal(), [1.0], [1.0, 1.0], **claim).contradicts
    True
    """
    runs = _validate.count("runs", runs, least=FEWEST_RUNS)
    error = 1 - _validate.number("confidence", confidence, above=0, most=1)
    if error <= 0:
        raise ValueError(f"confidence must be below 1, got {confidence!r}: 0.95, say")
    claimed = _validate.number("epsilon", epsilon, least=0)
    level = _validate.number("delta", delta, least=0, most=1)
    outputs = _outputs(release, (without, with_record), runs, progress)
    first = int(DIRECTION * runs)
    direction = _direction(outputs[:, :first])
    statistics = outputs[:, first:] @ direction
    claim = _claim(claimed, level, steps, REPLACE_ONE if replaced else ADD_REMOVE)
    spread = math.sqrt(float(statistics.var(axis=1).mean()))
    distance = float(statistics[1].mean() - statistics[0].mean())
    return ReleaseAudit(
        epsilon=claimed,
        delta=level,
        runs=runs,
        moved=distance / spread if spread else math.inf * np.sign(distance) if distance else 0.0,
        bound=bound_of_runs(statistics[0], statistics[1], claim, error),
    )


def _outputs(
    release: Callable[[Any], Any], worlds: tuple[Any, Any], runs: int, progress: Callable[[int, int], None] | None
) -> np.ndarray:
    """Return all outputs, by world and run; the worlds take turns, so that a drift does not separate them."""
    outputs: np.ndarray | None = None
    for run in range(runs):
        for world, data in enumerate(worlds):
            numbers = flat(release(data))
            if outputs is None:
                outputs = np.empty((2, runs, numbers.size))
            if numbers.size != outputs.shape[2]:
                sizes = f"{outputs.shape[2]} at first, {numbers.size} in run {run}"
                raise ValueError(f"release must return the same number of numbers whatever the data are: got {sizes}")
            if not np.isfinite(numbers).all():
                raise ValueError(f"release must return finite numbers, got NaN or an infinity in run {run}")
            outputs[world, run] = numbers
        if progress is not None:
            progress(2 * run + 2, 2 * runs)
    assert outputs is not None
    return outputs


def _direction(outputs: np.ndarray) -> np.ndarray:
    """Return the difference of the mean outputs over the variance of each number, up to its length."""
    variance = outputs.var(axis=1).mean(axis=0)
    difference = outputs[1].mean(axis=0) - outputs[0].mean(axis=0)
    exact = (variance == 0) & (difference != 0)  # a number without noise: it decides alone
    if exact.any():
        return np.where(exact, np.sign(difference), 0.0)
    return np.asarray(difference / np.where(variance > 0, variance, 1.0))


def _claim(epsilon: float, delta: float, steps: GaussianSteps | None, unit: str) -> Claim:
    """Return the claim; without steps only counts speak, as where nothing is promised."""
    given = GaussianSteps(noise_multiplier=1.0) if steps is None else steps
    return Claim(
        owner="record",
        granted=epsilon,
        spent=math.inf if steps is None else epsilon,
        delta=delta,
        sample_rate=given.sample_rate,
        noise_multiplier=given.noise_multiplier,
        steps=given.steps,
        unit=unit,
    )
