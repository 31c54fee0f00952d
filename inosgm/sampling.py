"""Poisson batches: every record tosses its own coin, in time proportional to the batch."""

import math

import numpy as np


class PoissonSampler:
    """Draws batches in which each record enters independently with its owner's sample rate.

    **Guarantee.** The coins are independent and, in exact arithmetic, have exactly the rates given. Owners are
    put together by the power of two above their rate: positions are drawn at that power by geometric gaps and
    kept with probability rate / power, which is at least 1/2 and exact in float64. A draw therefore costs about
    twice the expected batch, plus one pass over the (at most a few dozen) powers, whatever the number of records
    and of distinct rates.

    Args:
        sample_rates: One rate in (0, 1] per owner.
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
        self._records = np.argsort(halvings, kind="stable")
        powers, sizes = np.unique(halvings, return_counts=True)
        ends = np.cumsum(sizes)
        bounds = zip((ends - sizes).tolist(), sizes.tolist(), strict=True)
        self._groups = [(rate, *bound) for rate, bound in zip(np.ldexp(1.0, -powers).tolist(), bounds, strict=True)]

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""
        places = [part for group in self._groups for part in _bernoulli_positions(generator, *group)]
        candidates = self._records[np.concatenate(places)] if places else self._records[:0]
        kept = candidates[generator.random(candidates.size) < self._keep[self._owners[candidates]]]
        kept.sort()
        return kept


def _bernoulli_positions(generator: np.random.Generator, rate: float, begin: int, size: int) -> list[np.ndarray]:
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
