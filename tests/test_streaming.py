"""The exact ordered sum: against exact rationals, in any chunks, order of arrival and tree of merges."""

import copy
from bisect import bisect_right
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from inosgm import (
    Ascending,
    BetaTail,
    Descending,
    HardTail,
    LinearTail,
    NoTail,
    OwnerFirst,
    RandomOrder,
    StepTail,
)
from inosgm._fixed import Grid
from inosgm.streaming import OrderedSum

TAILS = [NoTail(), LinearTail(3.7), HardTail(2.2), StepTail([0.75, 0.5, 0.1], 1.1), BetaTail(2.0, 3.0, 4.0)]
ORDERS = [Descending(), Ascending(), RandomOrder(3), OwnerFirst()]


def stream(seed: int):
    """Return a random stream: owners of unlike sensitivity, ties, NaN and infinities, rows of width 0 to 3."""
    generator = np.random.default_rng(seed)
    n, owners = int(generator.integers(0, 60)), int(generator.integers(1, 5))
    sensitivities = 10.0 ** generator.uniform(-3, 1, owners)
    scores = generator.choice([generator.normal(size=n), generator.integers(0, 3, n).astype(float)])
    if n and generator.random() < 0.3:
        scores[generator.integers(n)] = generator.choice([np.nan, np.inf, -np.inf])
    width = int(generator.integers(0, 4))
    rows = generator.normal(size=(n, width) if width else n) * 10.0 ** generator.uniform(-3, 2)
    if n and generator.random() < 0.2:
        rows[generator.integers(n)] = generator.choice([np.nan, np.inf])
    ids = np.sort(generator.choice(10 * n + 1, n, replace=False))
    places = generator.integers(0, owners, n)
    return sensitivities, (rows, scores, places, ids), generator


def rational(sensitivities, columns, tail, order):
    """Return the sum of whole numbers of units in exact rationals, record by record, by the definition."""
    rows, scores, places, ids = columns
    grid = Grid.of(sensitivities)
    unit, spans = Fraction(grid.unit), [Fraction(int(span)) * Fraction(grid.unit) for span in grid.spans]
    rows = rows.reshape(len(rows), -1) if rows.size else np.zeros((len(rows), max(1, int(np.prod(rows.shape[1:])))))
    numbers = np.array(
        [
            (grid.rows(row[None], grid.spans[place]) if columns[0].ndim > 1 else grid.numbers(row, grid.spans[place]))
            for row, place in zip(rows, places, strict=True)
        ]
    ).reshape(rows.shape)
    ranking = order.ranking(scores, ids, sensitivities[places])
    total, below = [Fraction(0)] * rows.shape[1], Fraction(0)
    for record in reversed(ranking.tolist()):
        span = spans[places[record]]
        weight = (exact_W(tail, below + span) - exact_W(tail, below)) / span
        for j in range(rows.shape[1]):
            total[j] += weight * int(numbers[record, j]) * unit
        below += span
    return np.array([float(value) for value in total]).reshape(columns[0].shape[1:])


@cache
def exact_areas(tail) -> tuple[list[Fraction], list[list[Fraction]], list[Fraction]]:
    """Return the starts of a tail's pieces, their coefficients, and the areas before each, in rationals."""
    starts = [Fraction(float(start)) for start in tail.pieces.start]
    cubics = [[Fraction(float(c)) for c in column] for column in tail.pieces.cubic.T]
    areas = [Fraction(0)]
    for cubic, begin, end in zip(cubics, starts, starts[1:], strict=False):
        areas.append(areas[-1] + sum(c * (end - begin) ** (j + 1) for j, c in enumerate(cubic)))
    return starts, cubics, areas


def exact_W(tail, x: Fraction) -> Fraction:
    """Integrate a tail, whose coefficients are floats, in rationals."""
    starts, cubics, areas = exact_areas(tail)
    i = bisect_right(starts, x) - 1
    return areas[i] + sum(c * (x - starts[i]) ** (j + 1) for j, c in enumerate(cubics[i]))


def filled(empty: OrderedSum, columns, generator) -> OrderedSum:
    """Fill copies of an empty sum with random chunks in random order, and merge them in a random tree."""
    n = len(columns[1])
    shuffled = generator.permutation(n)
    parts = []
    for chunk in np.array_split(shuffled, int(generator.integers(1, 6))):
        part = copy.deepcopy(empty)
        for piece in np.array_split(chunk, int(generator.integers(1, 3))):
            part.update(*(column[piece] for column in columns))
        parts.append(OrderedSum.from_bytes(part.to_bytes()) if generator.random() < 0.3 else part)
    while len(parts) > 1:
        first, second = sorted(generator.choice(len(parts), 2, replace=False).tolist())
        parts[first].merge(parts.pop(second))
    return parts[0]


@pytest.mark.parametrize("seed", range(20))
def test_thousands_of_streams_and_merges_equal_the_rational_sum(seed):
    for stream_seed in range(100 * seed, 100 * seed + 100):
        sensitivities, columns, generator = stream(stream_seed)
        tail, order = TAILS[stream_seed % 5], ORDERS[stream_seed // 5 % 4]
        empty = OrderedSum(sensitivities, tail, order)
        whole = copy.deepcopy(empty)
        whole.update(*columns)
        merged = filled(empty, columns, generator)
        assert merged.to_bytes() == whole.to_bytes()
        assert merged.exact().tobytes() == whole.exact().tobytes()
        truth = rational(sensitivities, columns, tail, order)
        tolerance = 1e-12 if isinstance(tail, BetaTail) else 2.0**-52
        assert np.abs(whole.exact() - truth).max(initial=0.0) <= tolerance * len(columns[1]) * sensitivities.max()


def test_without_a_tail_the_sum_is_the_correctly_rounded_rational():
    for seed in range(300):
        sensitivities, columns, generator = stream(seed)
        merged = filled(OrderedSum(sensitivities), columns, generator)
        assert merged.exact().tobytes() == rational(sensitivities, columns, NoTail(), Descending()).tobytes()
