"""Gaussian samples from uniform words, many at once: a rejection from 256 layers of equal area (a ziggurat).

Layer i is a rectangle of half-width w_i that holds every point at which the density exp(-x^2 / 2 s^2) reaches beyond
height h_(i-1); its own height is h_i - h_(i-1) = area / w_i, so that all layers have the same area. A layer is chosen
with 8 bits of a word, a point of it with the other bits. Points below the density over the whole height of the layer
(98.8 % of them) are accepted at once; the others need a second word, the height of the point within its layer.

The tail beyond the bottom layer is covered by blocks of equal length, each half as high as the one before. On each side
they have the area of two blocks of the first height, so the bottom layer is wider by two blocks on each side, and a
point there falls into block b with probability 2^-(b+1), which fair coins decide. All areas are rational numbers, so
that the same layers serve an exact sampler (`discrete_gaussian`).
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

Words = Callable[[int], np.ndarray]
"""Returns so many uniform words of 64 bits."""

LAYERS = 256

CHUNK = 1 << 14
"""Samples that are drawn at once: their words and what is made of them stay in the cache of a core."""

_BOTTOM = 3.6631
"""Where the tail begins, in standard deviations: 256 layers then reach just above the top of the density."""

_AREA = 0.00493
"""The area of a layer with the bottom there, in units of the density with height 1; half of it on each side."""

_SLACK = 1e-12
"""Far above the rounding of heights in float64 (256 roundings are 3e-14), so that float64 never decides a layer."""


class Ziggurat:
    """The layers of a Gaussian with height 1 in the middle.

    **Guarantee.** The layers and the blocks of the tail cover the density of every Gaussian of this width whose centre
    is within `off_centre` of 0, and points below `inner` lie under each of them. Both hold with a margin above all
    rounding in float64.

    Args:
        scale: The standard deviation s.
        off_centre: How far the centre may be from 0.
        whole: Whether points are whole numbers; half-widths and blocks then are whole numbers as well.

    Attributes:
        widths: The half-width of each layer, from the bottom; that of the bottom layer includes two blocks.
        first: Where the tail begins.
        block: The length of a block of the tail.
        inner: The distance from 0 below which points of each layer are accepted at once.
        area: Half of the area of a layer.
        lower: The height at which each layer begins.
        height: The height of each layer.
    """

    def __init__(self, scale: float, *, off_centre: float = 0.0, whole: bool = False) -> None:
        self.scale, self._off = scale, off_centre
        up = (lambda x: float(math.ceil(x) + 1)) if whole else (lambda x: x * (1 + _SLACK))
        self.first = up(_BOTTOM * scale + off_centre)
        self.block = up(math.log(2) * scale**2 / (self.first - off_centre))
        self.area = _AREA * scale
        while not self._layers(up):  # a narrow Gaussian on whole numbers needs larger layers
            self.area *= 1.02
        nearest = np.sqrt(-2 * np.log(np.minimum(self.lower + self.height, 1.0) * (1 + _SLACK)).clip(max=0.0))
        self.inner = np.maximum(nearest * (1 - _SLACK) * scale - off_centre, 0.0)
        if whole:
            self.inner = np.floor(self.inner)

    def _layers(self, up: Callable[[float], float]) -> bool:
        """Stack layers of the area, and return whether they cover the density."""
        widths, top = [self.first + 2 * self.block], self.area / (self.first + 2 * self.block)
        lower = [0.0]
        covered = top * (1 - _SLACK) >= math.exp(-(((self.first - self._off) / self.scale) ** 2) / 2)
        for _ in range(1, LAYERS):
            reach = math.sqrt(-2 * math.log(min(top * (1 - _SLACK), 1.0)))
            widths.append(up(reach * self.scale + self._off) if reach else max(self.block, 1.0))
            lower.append(top)
            top += self.area / widths[-1]
        self.widths, self.lower = np.array(widths), np.array(lower)
        self.height = self.area / self.widths
        return covered and top * (1 - _SLACK) >= 1

    def beyond(self, layers: np.ndarray, points: np.ndarray, words: Words) -> tuple[np.ndarray, ...]:
        """Return points with those of the virtual blocks moved into the tail, and where their columns begin and end.

        Args:
            layers: The layer of each point.
            points: The points.
            words: Uniform words.

        Returns:
            The points, the lower end and the height of the column that each was drawn from, and the blocks of the tail
            that lie before it (0 for points that are not in the tail).
        """
        lower, height = self.lower[layers], self.height[layers]
        blocks = np.zeros(points.size, dtype=np.int64)
        tail = np.flatnonzero((layers == 0) & ((points >= self.first) | (points < -self.first)))
        if tail.size:
            blocks[tail] = [_leading_zeros(int(word), words) for word in words(tail.size)]
            # whole numbers below -first are -first - 1 and less, so that both sides have the same number of points
            left = points[tail] < 0
            inward = np.where(left, -self.first - self._edge, self.first)
            away = np.abs(points[tail] - inward) % self.block + blocks[tail] * self.block
            points = points.copy()
            points[tail] = np.where(left, inward - away, inward + away)
            height[tail] *= 0.5 ** blocks[tail]
        return points, lower, height, blocks

    _edge = 0.0
    """The distance from the last point of the bottom layer on the left to the first one of the tail."""


class Normals(Ziggurat):
    """Standard normal numbers, with 53 random bits each."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self._steps = np.ldexp(self.widths, -52)

    def fill(self, values: np.ndarray, words: Words) -> None:
        """Fill an array of float64 in one dimension."""
        for begin in range(0, values.size, CHUNK):
            self._fill(values[begin : begin + CHUNK], words)

    def _fill(self, values: np.ndarray, words: Words) -> None:
        drawn = words(values.size).view(np.int64)
        layers = drawn & (LAYERS - 1)
        drawn >>= 11
        np.multiply(drawn, self._steps[layers], out=values)
        left = np.flatnonzero(np.abs(values) >= self.inner[layers])
        if not left.size:
            return
        points, lower, height, _ = self.beyond(layers[left], values[left], words)
        heights = lower + height * np.ldexp((words(left.size) >> np.uint64(11)).astype(np.float64), -53)
        accepted = heights < np.exp(-(points**2) / 2)
        values[left] = points
        left = left[~accepted]
        if left.size:
            again = np.empty(left.size)
            self._fill(again, words)
            values[left] = again


@cache
def normals() -> Normals:
    """Return the layers of the standard normal distribution."""
    return Normals()


def _leading_zeros(word: int, words: Words) -> int:
    """Return how many fair coins show 0 before the first 1."""
    zeros = 64 - word.bit_length()
    while not word:
        word = int(words(1)[0])
        zeros += 64 - word.bit_length()
    return zeros
