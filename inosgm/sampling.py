"""Poisson batches: every record tosses its own coin, in time proportional to the batch."""

import math
from typing import Any

import array_api_compat
import numpy as np

from inosgm._validate import Array


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
        gaps = np.minimum(generator.geometric(rate, int(expected + 4 * math.sqrt(expected) + 8)), size + 1)
        positions = last + np.cumsum(gaps)
        chunks.append(positions[positions < size])
        last = int(positions[-1])
    return np.concatenate(chunks)


def gather(data: Any, positions: np.ndarray) -> Any:
    """Pick records by position: from an array, a table, a list of records, or a tuple or dict of columns."""
    if isinstance(data, dict):
        return {name: gather(column, positions) for name, column in data.items()}
    if isinstance(data, tuple):
        return tuple(gather(column, positions) for column in data)
    if isinstance(data, list):
        return [data[position] for position in positions]
    if hasattr(data, "iloc"):  # pandas
        return data.iloc[positions]
    return data[_index_for(data, positions)]


def records_in(data: Any) -> int:
    """Count the records of anything that `gather` takes.

    Raises:
        ValueError: when the columns differ in length.
    """
    if isinstance(data, dict | tuple):
        lengths = {records_in(column) for column in (data.values() if isinstance(data, dict) else data)}
        if len(lengths) != 1:
            raise ValueError(f"the columns of data must be equally long, got lengths {sorted(lengths)}")
        return lengths.pop()
    return len(data)


def _index_for(data: Array, positions: np.ndarray) -> Array:
    if array_api_compat.is_torch_array(data):
        return array_api_compat.array_namespace(data).asarray(positions, device=data.device)
    return positions
