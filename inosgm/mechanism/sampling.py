"""Batches: every record tosses its own coin, in time proportional to the batch; or a fixed number of each owner's."""

import math
from collections.abc import Sequence

import numpy as np

from inosgm.mechanism.secure_generator import Generator


class PoissonSampler:
    """Draws batches in which each record enters independently with its owner's sample rate.

    **Guarantee.** The coins are independent and, in exact arithmetic, have exactly the rates given. Owners are
    put together by the power of two above their rate: positions are drawn at that power by geometric gaps and
    kept with probability rate / power, which is at least 1/2 and exact in float64. A draw therefore costs about
    twice the expected batch, plus one pass over the (at most a few dozen) powers, whatever the number of records
    and of distinct rates.

    Args:
        sample_rates: One rate in [0, 1] per owner.
        owners: The index of the owner of each record.

    >>> sampler = PoissonSampler(np.array([1.0, 1e-9]), np.array([0, 1, 0]))
    >>> sampler.draw(np.random.default_rng(0))
    array([0, 2])
    """

    def __init__(self, sample_rates: np.ndarray, owners: np.ndarray) -> None:
        fraction, exponent = np.frexp(sample_rates)
        exponent -= fraction == 0.5  # a power of two is its own ceiling
        self._keep = np.ldexp(sample_rates, -exponent)
        self._owners = owners
        halvings = (-exponent).astype(np.int16)[owners]
        if sample_rates.all():
            self._records = np.argsort(halvings, kind="stable")
        else:
            part = np.flatnonzero(sample_rates[owners])
            halvings = halvings[part]
            self._records = part[np.argsort(halvings, kind="stable")]
        powers, sizes = np.unique(halvings, return_counts=True)
        ends = np.cumsum(sizes)
        bounds = zip((ends - sizes).tolist(), sizes.tolist(), strict=True)
        self._groups = [(rate, *bound) for rate, bound in zip(np.ldexp(1.0, -powers).tolist(), bounds, strict=True)]

    def draw(self, generator: Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""
        places = [part for group in self._groups for part in _bernoulli_positions(generator, *group)]
        chosen = places[0] if len(places) == 1 else np.concatenate([self._records[:0], *places])
        candidates = self._records[chosen]
        kept = generator.random(candidates.size) < self._keep[self._owners[candidates]]
        drawn = candidates[kept]
        return drawn if len(self._groups) == 1 else np.sort(drawn)  # those of one group ascend


class FixedSizeSampler:
    """Draws batches with a fixed number of records of each owner, without replacement.

    **Guarantee.** Every set of that many records of an owner is as likely as any other, and owners are drawn
    independently. How many there are is public, so neighbouring data sets must have the same sizes: what is promised
    is about a record that is replaced.

    Args:
        counts: How many records of each owner.
        owners: The index of the owner of each record.

    Raises:
        ValueError: for more records than an owner has.

    >>> FixedSizeSampler(np.array([2, 0]), np.array([0, 1, 0])).draw(np.random.default_rng(0))
    array([0, 2])
    """

    def __init__(self, counts: np.ndarray, owners: np.ndarray) -> None:
        members = [np.flatnonzero(owners == owner) for owner in range(counts.size)]
        for owner, some in enumerate(members):
            if counts[owner] > some.size:
                raise ValueError(f"counts must be at most the records of an owner, {some.size}, got {counts[owner]}")
        self._parts = [(some, count) for some, count in zip(members, counts.tolist(), strict=True) if count]

    def draw(self, generator: Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""
        drawn = [some[generator.choice(some.size, count, replace=False)] for some, count in self._parts]
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *drawn]))


class PoissonSamplers:
    """Draws the batches of many samplers at once: those of `PoissonSampler.draw`, in a fraction of the time.

    Args:
        sample_rates: One rate in (0, 1] per owner.
        owners: For each sampler the index of the owner of each of its records.

    >>> samplers = PoissonSamplers(np.array([1.0, 1e-9]), [np.array([0, 1, 0]), np.array([1, 0])])
    >>> samplers.draw([np.random.default_rng(0), np.random.default_rng(1)])
    (array([[0, 2],
           [1, 0]]), array([[ True,  True],
           [ True, False]]))
    """

    def __init__(self, sample_rates: np.ndarray, owners: Sequence[np.ndarray]) -> None:
        samplers = [PoissonSampler(sample_rates, some) for some in owners]
        offsets = np.cumsum([0, *(some.size for some in owners)]).tolist()
        self._records = np.concatenate([sampler._records for sampler in samplers])
        self._keep = np.concatenate([sampler._keep[sampler._owners[sampler._records]] for sampler in samplers])
        rates = {rate for sampler in samplers for rate, _, _ in sampler._groups}
        self._groups = []
        for rate in sorted(rates, reverse=True):
            bounds = [[(begin, size) for r, begin, size in sampler._groups if r == rate] for sampler in samplers]
            begins, sizes = np.array([found[0] if found else (0, 0) for found in bounds]).T
            self._groups.append((rate, begins + offsets[:-1], sizes))

    def draw(self, generators: Sequence[np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the records in the next batches, one ascending row each, and which of them are there.

        Rows are as long as the longest batch, and at least 1; where there is no record, there is a 0.
        """
        none = np.empty((len(generators), 0), dtype=np.int64)
        places = np.concatenate([none, *(_many_positions(generators, *group) for group in self._groups)], axis=1)
        tossed = places >= 0
        sizes = tossed.sum(axis=1).tolist()
        candidates = places[tossed]
        coins, begin = np.empty(candidates.size), 0
        for generator, size in zip(generators, sizes, strict=True):
            generator.random(out=coins[begin : begin + size])
            begin += size
        tossed[tossed] = coins < self._keep[candidates]
        kept = tossed.sum(axis=1)
        there = np.arange(max(kept.max(), 1)) < kept[:, None]
        batches = np.full(there.shape, self._records.size)
        batches[there] = self._records[places[tossed]]
        batches.sort(axis=1)
        batches[~there] = 0
        return batches, there


def _many_positions(
    generators: Sequence[np.random.Generator], rate: float, begins: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Return a row for each generator: what `_bernoulli_positions` finds, and -1 where it finds no more."""
    ends = begins + sizes
    if rate == 1.0:
        positions = begins[:, None] + np.arange(sizes.max())
    else:
        expected = sizes * rate
        counts = np.where(sizes > 0, (expected + 4 * np.sqrt(expected) + 8).astype(np.int64), 0)
        gaps = np.ones((len(generators), counts.max()), dtype=np.int64)
        for row, generator, count in zip(gaps, generators, counts.tolist(), strict=True):
            row[:count] = generator.geometric(rate, count)
        np.minimum(gaps, sizes[:, None] + 1, out=gaps)
        np.maximum(gaps, 1, out=gaps)
        gaps[:, 0] += begins - 1
        positions = gaps.cumsum(axis=1)
        positions[np.arange(gaps.shape[1]) >= counts[:, None]] = ends.max()
        last = positions[np.arange(len(generators)), counts - 1]
        for short in np.flatnonzero((last < ends - 1) & (sizes > 0)).tolist():
            begin = int(last[short]) + 1
            more = np.concatenate(_bernoulli_positions(generators[short], rate, begin, int(ends[short]) - begin))
            positions = np.concatenate([positions, np.full((len(generators), more.size), ends.max())], axis=1)
            positions[short, positions.shape[1] - more.size :] = more
    positions[positions >= ends[:, None]] = -1
    return positions


def _bernoulli_positions(generator: Generator, rate: float, begin: int, size: int) -> list[np.ndarray]:
    """Return the successes among `size` independent trials from `begin` on, by the geometric gaps between them."""
    end = begin + size
    if rate == 1.0:
        return [np.arange(begin, end)]
    chunks, last = [], begin - 1
    while last < end - 1:
        expected = (end - 1 - last) * rate
        gaps = generator.geometric(rate, int(expected + 4 * math.sqrt(expected) + 8))
        np.minimum(gaps, size + 1, out=gaps)  # two functions, because clip takes longer than all the rest
        np.maximum(gaps, 1, out=gaps)  # a gap of 0 is a rounding error
        gaps[0] += last
        positions = gaps.cumsum()
        chunks.append(positions[: positions.searchsorted(end)])
        last = int(positions[-1])
    return chunks
