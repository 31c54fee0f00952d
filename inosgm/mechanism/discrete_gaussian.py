"""Samples of the discrete Gaussian (Canonne, Kamath and Steinke 2020), exactly, a million of them in some 20 ms.

The discrete Gaussian with centre c and variance parameter v has P(x) proportional to exp(-(x - c)^2 / 2v) on the whole
numbers. Here c is any float64 within 1/2 of 0 and v a whole number.

Why the samples are exact. A proposal is uniform under the layers of `Ziggurat`, which cover the density: 8 bits choose
one of 256 layers; Lemire's multiplication chooses a point of it, and rejects the few words that would make some points
more likely than others; a real number U, of which as many bits are drawn as are needed, chooses a height within the
column. All areas are rational numbers, and equal for all layers. A proposal is accepted if its height is below the
density. Most are decided by comparisons of whole numbers. For the others height and density are computed in float64,
which is off by less than 2e-13 of either; if they are closer than `_UNSURE`, the comparison is repeated with rational
numbers, an exponential function of as many digits as needed (`decimal` rounds it correctly), and further bits of U. So
float64 decides how fast a sample is found, never which one. No sample is truncated: the tail is unbounded.
"""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from inosgm.mechanism.ziggurat import CHUNK, LAYERS, Words, Ziggurat

_UNSURE = 1e-11
"""Relative distance of height and density below which float64 does not decide. Both have an error below 2e-13: heights
of 256 roundings, densities of a few roundings of an exponent that is below 700."""

_POINT_BITS = 40  # of a word choose the point of a layer
_LOW = (1 << _POINT_BITS - 1) - 1
_SAFE = 1 << 24
"""Above every half-width, so above every remainder that Lemire's method rejects."""


class DiscreteGaussian(Ziggurat):
    """The discrete Gaussian with a variance parameter, which is a whole number.

    **Guarantee.** Samples have exactly the probabilities of the distribution, if words are uniform and independent.

    Args:
        variance: The variance parameter, from 1 to 2^42.

    >>> words = np.random.default_rng(1).bit_generator.random_raw
    >>> DiscreteGaussian(9).sample(np.zeros(5), words)
    array([-4, -1,  1, -1,  3])
    """

    _edge = 1.0

    def __init__(self, variance: int) -> None:
        super().__init__(variance**0.5, off_centre=0.5, whole=True)
        self.variance = variance
        self._whole_widths = self.widths.astype(np.int64)
        self._whole_inner = self.inner.astype(np.int64)
        self._biased = (1 << _POINT_BITS - 1) % self._whole_widths

    def sample(self, centres: np.ndarray, words: Words) -> np.ndarray:
        """Return one sample for each centre.

        Args:
            centres: Float64 numbers within 1/2 of 0, in one dimension.
            words: Returns so many uniform words of 64 bits.
        """
        values = np.empty(centres.size, dtype=np.int64)
        for begin in range(0, centres.size, CHUNK):
            self._fill(values[begin : begin + CHUNK], centres[begin : begin + CHUNK], words)
        return values

    def _fill(self, values: np.ndarray, centres: np.ndarray, words: Words) -> None:
        drawn = words(values.size).view(np.int64)
        layers = drawn & (LAYERS - 1)
        drawn >>= 64 - _POINT_BITS
        drawn *= self._whole_widths[layers]
        np.right_shift(drawn, _POINT_BITS - 1, out=values)
        drawn &= _LOW
        sure = np.abs(values) < self._whole_inner[layers]
        sure &= drawn >= _SAFE
        left = np.flatnonzero(~sure)
        if not left.size:
            return
        fair = drawn[left] >= self._biased[layers[left]]
        accepted, points = self._settle(layers[left], values[left], centres[left], words)
        values[left] = points
        left = left[~(accepted & fair)]
        if left.size:
            again = np.empty(left.size, dtype=np.int64)
            self._fill(again, centres[left], words)
            values[left] = again

    def _settle(
        self, layers: np.ndarray, points: np.ndarray, centres: np.ndarray, words: Words
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return which points are accepted, and the points, of which some are moved into the tail."""
        points, lower, height, blocks = self.beyond(layers, points, words)
        drawn = words(points.size)
        heights = lower + height * np.ldexp(drawn.astype(np.float64), -64)
        with np.errstate(under="ignore"):
            density = np.exp(-((points - centres) ** 2) / (2.0 * self.variance))
        accepted = heights < density
        for place in np.flatnonzero(np.abs(heights - density) <= _UNSURE * np.maximum(heights, density)).tolist():
            accepted[place] = self._exactly_below(
                int(layers[place]), int(blocks[place]), int(drawn[place]), int(points[place]), centres[place], words
            )
        return accepted, points

    def _exactly_below(self, layer: int, blocks: int, drawn: int, point: int, centre: float, words: Words) -> bool:
        """Return whether a height is below the density, in rational numbers, drawing more bits of it if needed."""
        height = self._columns[layer] / 2**blocks
        lower = self._lower_ends[layer]
        exponent = (point - Fraction(float(centre))) ** 2 / (2 * self.variance)
        bits = 64
        for density, error in _densities(exponent):
            if lower + height * Fraction(drawn + 1, 1 << bits) <= density - error:
                return True
            if lower + height * Fraction(drawn, 1 << bits) >= density + error:
                return False
            if error < height / (1 << bits + 4):  # the digits suffice: what is missing is bits
                drawn, bits = drawn << 64 | int(words(1)[0]), bits + 64
        raise AssertionError("unreachable: digits never end")

    @cached_property
    def _columns(self) -> list[Fraction]:
        """The height of each layer, exactly."""
        return [Fraction(self.area) / int(width) for width in self._whole_widths.tolist()]

    @cached_property
    def _lower_ends(self) -> list[Fraction]:
        """The height at which each layer begins, exactly."""
        ends = [Fraction(0)]
        for column in self._columns[:-1]:
            ends.append(ends[-1] + column)
        return ends


@lru_cache(maxsize=64)
def discrete_gaussian(variance: int) -> DiscreteGaussian:
    """Return the sampler of a variance parameter."""
    return DiscreteGaussian(variance)


def _densities(exponent: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield exp(-exponent) with a bound on its error, ever more closely."""
    digits = 40
    while True:
        with localcontext(prec=digits):
            found = Fraction((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())
        # three roundings of the exponent, relative to it, and one of the result
        yield found, found * (4 * exponent + 2) / 10 ** (digits - 1)
        digits += 20
