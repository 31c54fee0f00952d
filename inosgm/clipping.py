"""Two sound ways of bounding a weighted record by its share of its owner's sensitivity."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import array_api_compat

from inosgm._validate import Array


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


def _shrink(norms: Array, bounds: Array) -> Array:
    xp = array_api_compat.array_namespace(norms)
    finite, long = norms <= 1e150, norms > bounds  # a NaN is not <= anything
    one = xp.ones_like(norms)
    return xp.where(finite, xp.where(long, bounds / xp.where(finite & long, norms, one), one), xp.zeros_like(norms))
