"""Sound ways of bounding a weighted record by its share of its owner's sensitivity."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.validate import Array

LEAST_STABILITY = 1e-12
"""Below it the factor of a vanishing gradient would leave float32."""


class Clipping(ABC):
    """How a contribution g with weight rho and sensitivity C is bounded: the factor that multiplies g.

    **Guarantee.** factor * ||g|| <= rho * C, and for a larger rho the clipped vector moves by at most the increase
    of rho * C: with that, the sensitivity proof of INO-SGM goes through unchanged. A contribution whose norm is not
    finite, or so large (above 1e150) that float64 could not scale it down exactly, gets 0.
    """

    @abstractmethod
    def factors(self, norms: Array, sensitivities: Array, rho: Array) -> Array:
        """Return one factor per record."""


@dataclass(frozen=True)
class ScaleClipped(Clipping):
    """Clip to C, then scale by rho: every record loses the same share, whatever its norm (Alg. 1)."""

    def factors(self, norms: Array, sensitivities: Array, rho: Array) -> Array:
        """Return rho * min(1, C / ||g||)."""
        return rho * _shrink(norms, sensitivities)


@dataclass(frozen=True)
class ClipToShare(Clipping):
    """Clip to rho * C: a contribution already shorter than its share stays whole."""

    def factors(self, norms: Array, sensitivities: Array, rho: Array) -> Array:
        """Return min(1, rho * C / ||g||)."""
        return _shrink(norms, rho * sensitivities)


@dataclass(frozen=True)
class AutomaticClipping(Clipping):
    """Give every record the norm C, nearly: g / (||g|| + r), the adaptive rule of Bu et al. (2023).

    The rule looks at one record at a time, so it needs no threshold that follows the data, and no budget.

    Args:
        stability: r, at least 1e-12; gradients much shorter than r stay short.
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "stability", _validate.number("stability", self.stability, least=LEAST_STABILITY))

    def factors(self, norms: Array, sensitivities: Array, rho: Array) -> Array:
        """Return rho * C / (||g|| + r)."""
        return rho * _stretch(norms, sensitivities, norms + self.stability)


@dataclass(frozen=True)
class PerSampleAdaptive(Clipping):
    """Give every record the norm C unless it is tiny: g / (||g|| + r / (||g|| + r)), the rule of Xia et al. (2023).

    Unlike `AutomaticClipping` it does not blow short gradients up to nearly the norm of long ones.

    Args:
        stability: r, at least 1e-12.
    """

    stability: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "stability", _validate.number("stability", self.stability, least=LEAST_STABILITY))

    def factors(self, norms: Array, sensitivities: Array, rho: Array) -> Array:
        """Return rho * C / (||g|| + r / (||g|| + r))."""
        return rho * _stretch(norms, sensitivities, norms + self.stability / (norms + self.stability))


def _stretch(norms: Array, bounds: Array, divisors: Array) -> Array:
    xp = _validate.namespace(norms)
    finite = norms <= 1e150  # a NaN is not <= anything
    return xp.where(finite, bounds / xp.where(finite, divisors, xp.ones_like(norms)), xp.zeros_like(norms))


def _shrink(norms: Array, bounds: Array) -> Array:
    xp = _validate.namespace(norms)
    finite, long = norms <= 1e150, norms > bounds  # a NaN is not <= anything
    if xp is np:  # the same in fewer operations, which is what small batches take time for
        factors = np.divide(bounds, norms, out=np.ones(norms.shape), where=long)
        return factors if finite.all() else np.where(finite, factors, 0.0)
    one = xp.ones_like(norms)
    return xp.where(finite, xp.where(long, bounds / xp.where(finite & long, norms, one), one), xp.zeros_like(norms))
