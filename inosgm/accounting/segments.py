"""What was done to the records of an owner: stretches of steps at one rate and one multiplier."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from inosgm import _validate


@dataclass(frozen=True, init=False, eq=False)
class Segment:
    """A stretch of steps, each a sampled Gaussian mechanism with the same sample rate and noise multiplier.

    Args:
        sample_rate: In [0, 1]; one number or one per owner. A rate of 0 costs nothing.
        noise_multiplier: Above 0; one number or one per owner.
        steps: A whole number >= 0; one number or one per owner.

    Raises:
        ValueError: naming the number that cannot be.

    >>> Segment(0.01, 1.0, 100)
    Segment(sample_rate=0.01, noise_multiplier=1.0, steps=100.0)
    """

    sample_rate: np.ndarray
    noise_multiplier: np.ndarray
    steps: np.ndarray

    def __init__(self, sample_rate: ArrayLike, noise_multiplier: ArrayLike, steps: ArrayLike) -> None:
        object.__setattr__(self, "sample_rate", _numbers("sample_rate", sample_rate, "lie in [0, 1]", least=0, most=1))
        object.__setattr__(self, "noise_multiplier", _numbers("noise_multiplier", noise_multiplier, "be > 0", above=0))
        object.__setattr__(self, "steps", _numbers("steps", steps, "be whole numbers >= 0", least=0, whole=True))

    def rows(self, rows: np.ndarray) -> "Segment":
        """Return some rows of a segment that holds one entry per owner."""
        return _unchecked(self.sample_rate[rows], self.noise_multiplier[rows], self.steps[rows])

    def rows_of(self, size: int) -> "Segment":
        """Return the segment with one entry for each of `size` owners."""
        return _unchecked(*(np.broadcast_to(values, (size,)) for values in self._values()))

    def __repr__(self) -> str:
        shown = [np.array2string(values, threshold=6) if values.ndim else str(values) for values in self._values()]
        return "Segment(sample_rate={}, noise_multiplier={}, steps={})".format(*shown)

    def _values(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.sample_rate, self.noise_multiplier, self.steps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Segment) and all(map(np.array_equal, self._values(), other._values()))

    def __hash__(self) -> int:
        return hash(tuple(values.tobytes() for values in self._values()))


def _unchecked(rate: np.ndarray, multiplier: np.ndarray, steps: np.ndarray) -> Segment:
    """Make a segment of arrays that have been checked before."""
    segment = object.__new__(Segment)
    for name, values in (("sample_rate", rate), ("noise_multiplier", multiplier), ("steps", steps)):
        object.__setattr__(segment, name, values)
    return segment


def _numbers(
    name: str,
    values: ArrayLike,
    rule: str,
    *,
    above: float = -np.inf,
    least: float = -np.inf,
    below: float = np.inf,
    most: float = np.inf,
    whole: bool = False,
) -> np.ndarray:
    """Return values of any shape as float64 after a look at every one of them."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {values!r}") from None
    good = np.isfinite(array) & (array > above) & (array >= least) & (array < below) & (array <= most)
    if whole:
        good &= array == np.floor(array)
    flat = array.reshape(-1)
    _validate.each(name, flat, good.reshape(-1), rule)
    array.setflags(write=False)
    return array
