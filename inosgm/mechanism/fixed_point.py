"""Fixed point: sensitivities, contributions and sums as whole numbers of a unit, so that no order of adding matters."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

BITS = 38
"""The largest sensitivity is below two to this many units."""

BLOCK = 1 << 53 - BITS
"""Largest number of contributions whose sum in float64 is exact: 2^38 units each, 53 bits."""

LONGEST = 1 << 60
"""Units that the longest tail is below: several tails, which wait to be merged, are still whole numbers of 63 bits."""

_PART = 17
"""Bits behind the point of weighted contributions: with those before it, all that float64 has."""

_LIMB = 32

_ROUNDING = 2.0**-48
"""What rounding of weights and sums comes to, relative to everything that is summed; some ten times what it can be."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A power of two as unit, and sensitivities rounded down to whole numbers of it.

    Contributions are cut to the rounded sensitivities and rounded towards zero, each by itself: what is summed is a
    batch of an INO-SGM whose sensitivities are at most those of the plan.

    Attributes:
        unit: The unit.
        spans: The sensitivities in units.
        cut: How many units of one number of a sum all records together lose when weighted contributions are cut.
    """

    unit: float
    spans: np.ndarray
    cut: float = 0.0

    @classmethod
    def of(cls, sensitivities: np.ndarray, sizes: np.ndarray | None = None) -> Self:
        """Choose the unit by the largest sensitivity, and so large that all records together are below 2^59 units.

        From some two million records on, the unit grows with their number.

        Args:
            sensitivities: One per owner.
            sizes: How many records each owner has, if that is known. Sums of so many are rounded once to float64, and
                so are weights, and weighted contributions are cut to 2^-17 units: sensitivities are made smaller by all
                that, so that rounding exceeds none.

        Raises:
            ValueError: if the smallest is less than a unit, or is lost in the rounding of a sum.
        """
        unit = math.ldexp(1.0, math.frexp(float(sensitivities.max()))[1] - BITS)
        sizes = np.zeros(sensitivities.size) if sizes is None else sizes
        while float(sizes @ sensitivities) >= LONGEST / 2 * unit:  # a tail may hold all records
            unit *= 2
        room = _ROUNDING * float(sizes @ sensitivities) + math.ldexp(float(sizes.sum()) * unit, -_PART)
        if room > 0.1 * sensitivities.min():
            raise ValueError(
                f"sensitivities must not be lost in the rounding of a sum of {int(sizes.sum())} records, got "
                f"{sensitivities.min():g} beside {sensitivities.max():g}: let owners differ less, or ask them apart"
            )
        spans = np.floor((sensitivities - room) / unit)
        if not spans.min() >= 1:
            raise ValueError(
                f"sensitivities must differ by less than a factor of 2^{BITS} in a streaming sum, got "
                f"{sensitivities.min():g} beside {sensitivities.max():g}"
            )
        return cls(unit, spans, math.ldexp(float(sizes.sum()), -_PART))

    @property
    def sensitivities(self) -> np.ndarray:
        """The rounded sensitivities, in their own unit again."""
        return self.spans * self.unit

    @np.errstate(all="ignore")  # whatever a record holds
    def numbers(self, values: np.ndarray, spans: np.ndarray | float) -> np.ndarray:
        """Return contributions of one number each as whole numbers of units, at most their span; not finite ones as 0.

        Args:
            values: One number per record, float64.
            spans: The sensitivity of each in units, or of all.
        """
        whole = values * (1 / self.unit)
        if not math.isfinite(whole.sum()):
            whole[~np.isfinite(whole)] = 0.0
        np.minimum(whole, spans, out=whole)
        np.maximum(whole, np.negative(spans), out=whole)
        return np.trunc(whole, out=whole)

    @np.errstate(all="ignore")
    def rows(self, values: np.ndarray, spans: np.ndarray | float) -> np.ndarray:
        """Return contributions of several numbers each, likewise: none is longer than its span.

        Weighted contributions of d numbers are cut by sqrt(d) times as much as those of one number, for which `of` has
        made the spans smaller; the rest is taken off here, by the same factor from all contributions.

        Raises:
            ValueError: for so many numbers that the smallest sensitivity is lost in that.
        """
        shorter = self.cut * (math.sqrt(max(values.shape[1], 1)) - 1) / float(self.spans.min())
        if shorter > 0.1:
            raise ValueError(
                f"contributions of {values.shape[1]} numbers are lost in the rounding of a sum: let owners differ "
                "less, or ask them apart"
            )
        whole = np.ascontiguousarray(values) * (1 / self.unit)  # so that squares add up in one order only
        squares = np.einsum("ij,ij->i", whole, whole)
        # a norm is off by less than a rounding per term, and so is what is cut: nothing comes out too long
        limits = spans * (1 - shorter - (values.shape[1] + 8) * 2.0**-52)
        if not math.isfinite(squares.sum()):
            bad = ~np.isfinite(squares)
            whole[bad], squares[bad] = 0.0, 0.0
        norms = np.sqrt(squares, out=squares)
        long = norms > limits
        if long.any():
            whole[long] *= (np.broadcast_to(limits, long.shape)[long] / norms[long])[:, None]
        return np.trunc(whole, out=whole)


class WholeSum:
    """Sums of whole numbers without any limit that matters: two limbs, the lower one within [0, 2^32).

    Args:
        size: How many sums.
    """

    def __init__(self, size: int) -> None:
        self.high, self.low = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def add(self, sums: np.ndarray) -> None:
        """Add whole numbers up to 2^53, as float64 or int64 has them."""
        self.low += np.asarray(sums).astype(np.int64)
        self._carry()

    def merge(self, other: "WholeSum") -> None:
        """Add other sums."""
        self.high += other.high
        self.low += other.low
        self._carry()

    def floats(self, parts: np.ndarray | None = None) -> np.ndarray:
        """Return the sums, rounded once, with some whole numbers of 2^-17 added to each."""
        if parts is None:
            return np.ldexp(self.high.astype(np.float64), _LIMB) + self.low
        total = WholeSum(self.low.size)
        total.merge(self)
        total.add(parts >> _PART)
        return np.ldexp(total.high.astype(np.float64), _LIMB) + (
            total.low + np.ldexp((parts & (1 << _PART) - 1).astype(np.float64), -_PART)
        )

    def copy(self) -> "WholeSum":
        """Return the same sums apart."""
        other = WholeSum(0)
        other.high, other.low = self.high.copy(), self.low.copy()
        return other

    def _carry(self) -> None:
        carry = self.low >> _LIMB
        self.high += carry
        self.low -= carry << _LIMB


def split(weighted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers below 2^38 as whole numbers, and what is left of each as whole numbers of 2^-17 towards zero."""
    whole = np.trunc(weighted)
    return whole, np.trunc(np.ldexp(weighted - whole, _PART))
