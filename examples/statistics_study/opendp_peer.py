"""What OpenDP gives at one budget for all: its Gaussian sum and mean.

Every chain is calibrated by OpenDP's own binary search, so that its own map says (epsilon, delta). Its transformation
is applied once and its measurement as often as asked: a chain does the one and then the other.
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

AVAILABLE = find_spec("opendp") is not None
"""Whether it is installed; the study does without it, and leaves its columns empty."""

GRID = 2**20
"""Whole numbers from the middle of the bounds to their end, where values are centred."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain of OpenDP up to its noise, how large that is, and how to read what comes out."""

    exact: Any
    noise: Any
    unit: float
    offset: float

    def releases(self, number: int) -> np.ndarray:
        """Return so many releases."""
        return self.offset + self.unit * np.array([self.noise(self.exact) for _ in range(number)], dtype=np.float64)


def total(values: np.ndarray, bounds: tuple[float, float], epsilon: float, delta: float) -> Chain:
    """Return the sum of clamped numbers, for one record added or removed."""
    return _calibrated(values, bounds, None, "sum", 1, epsilon, delta)


def mean(values: np.ndarray, bounds: tuple[float, float], epsilon: float, delta: float) -> Chain:
    """Return the mean of clamped numbers of known size, for one record CHANGED: OpenDP's mean knows nothing else."""
    return _calibrated(values, bounds, values.size, "mean", 2, epsilon, delta)


def centred_mean(values: np.ndarray, bounds: tuple[float, float], epsilon: float, delta: float) -> Chain:
    """Return the mean as a careful user would: for one record added or removed, with half of the noise.

    Values are measured from the middle of the bounds, as whole numbers (OpenDP's sums of floating-point numbers do not
    profit), summed, and divided by the public number of records.
    """
    low, high = bounds
    middle, half = (low + high) / 2, (high - low) / 2
    whole = np.rint((np.clip(values, low, high) - middle) / half * GRID).astype(np.int64)
    chain = _calibrated(whole, (-GRID, GRID), None, "sum", 1, epsilon, delta)
    return Chain(exact=chain.exact, noise=chain.noise, unit=half / GRID / values.size, offset=middle)


def centred_total(values: np.ndarray, bounds: tuple[float, float], epsilon: float, delta: float) -> Chain:
    """Return the sum in the same way: the mean times the public number of records."""
    chain = centred_mean(values, bounds, epsilon, delta)
    return replace(chain, unit=chain.unit * values.size, offset=chain.offset * values.size)


def _calibrated(
    values: np.ndarray, bounds: Any, size: int | None, what: str, distance: int, epsilon: float, delta: float
) -> Chain:
    """Make a chain whose own map says (epsilon, delta) at a distance of so many records added or removed."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    atom = dp.atom_domain(T=float, nan=False) if values.dtype.kind == "f" else dp.atom_domain(T="i64")
    space = dp.vector_domain(atom, size=size), dp.symmetric_distance()
    chain = space >> dp.t.then_clamp(bounds) >> (dp.t.then_mean() if what == "mean" else dp.t.then_sum())
    sensitivity = float(chain.map(distance))

    def accounted(scale: float) -> Any:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(chain >> dp.m.then_gaussian(scale)), delta)

    least, most = 0.01 * sensitivity, 1e4 * sensitivity
    scale = dp.binary_search_param(accounted, d_in=distance, d_out=(epsilon, delta), bounds=(least, most))
    noise = (chain.output_domain, chain.output_metric) >> dp.m.then_gaussian(scale)
    return Chain(exact=chain(values.tolist()), noise=noise, unit=1.0, offset=0.0)
