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
        self._groups = list(zip(np.ldexp(1.0, -powers), ends - sizes, sizes, strict=True))

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""
        places = [begin + _bernoulli_positions(generator, int(size), float(rate)) for rate, begin, size in self._groups]
        candidates = self._records[np.concatenate([*places, np.empty(0, dtype=np.int64)])]
        kept = generator.random(candidates.size) < self._keep[self._owners[candidates]]
        return np.sort(candidates[kept])


def _bernoulli_positions(generator: np.random.Generator, size: int, rate: float) -> np.ndarray:
    """Return the successes among `size` independent trials, by the geometric gaps between them."""
    if rate == 1.0:
        return np.arange(size)
    chunks, last = [np.empty(0, dtype=np.int64)], -1
    while last < size - 1:
        expected = (size - 1 - last) * rate
        gaps = generator.geometric(rate, int(expected + 4 * math.sqrt(expected) + 8))
        positions = last + np.cumsum(np.clip(gaps, 1, size + 1))  # a gap of 0 is a rounding error
        chunks.append(positions[positions < size])
        last = int(positions[-1])
    return np.concatenate(chunks)
