"""What was done to the records of an owner: stretches of steps at one rate and one multiplier, or from one menu."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate


@dataclass(frozen=True, init=False, eq=False)
class Segment:
    """A stretch of steps, each a sampled Gaussian mechanism with the same sample rate and noise multiplier.

    Where the next step is chosen by what was released, from a finite menu that was fixed beforehand, the numbers
    are those of the menu, one row per owner and one column per choice, and every step costs what no choice exceeds.

    Args:
        sample_rate: In [0, 1]; one number or one per owner, or a row of them per owner. A rate of 0 costs nothing.
        noise_multiplier: Above 0; one number or one per owner, or a row of them per owner.
        steps: A whole number >= 0; one number or one per owner.

    Raises:
        ValueError: naming the number that cannot be.

    >>> Segment(0.01, 1.0, 100)
    Segment(sample_rate=0.01, noise_multiplier=1.0, steps=100.0)
    >>> Segment([[0.01, 0.02]], [[1.0, 1.6]], 100)
    Segment(sample_rate=[[0.01 0.02]], noise_multiplier=[[1.  1.6]], steps=100.0)
    """

    sample_rate: np.ndarray
    noise_multiplier: np.ndarray
    steps: np.ndarray

    def __init__(self, sample_rate: ArrayLike, noise_multiplier: ArrayLike, steps: ArrayLike) -> None:
        rates = _numbers("sample_rate", sample_rate, "lie in [0, 1]", least=0, most=1)
        multipliers = _numbers("noise_multiplier", noise_multiplier, "be > 0", above=0)
        count = _numbers("steps", steps, "be whole numbers >= 0", least=0, whole=True)
        if max(rates.ndim, multipliers.ndim) > 2 or count.ndim > 1:
            raise ValueError(
                "a segment holds one number, one per owner, or, in sample_rate and noise_multiplier, a row per owner, "
                f"got arrays of {rates.ndim}, {multipliers.ndim} and {count.ndim} dimensions"
            )
        if max(rates.ndim, multipliers.ndim) == 2:
            rates, multipliers = _menus(rates, multipliers)
        object.__setattr__(self, "sample_rate", rates)
        object.__setattr__(self, "noise_multiplier", multipliers)
        object.__setattr__(self, "steps", count)

    @property
    def is_menu(self) -> bool:
        """Whether every step was one of several."""
        return self.sample_rate.ndim == 2

    def rows(self, rows: np.ndarray) -> "Segment":
        """Return some rows of a segment that holds one entry per owner."""
        return _unchecked(self.sample_rate[rows], self.noise_multiplier[rows], self.steps[rows])

    def rows_of(self, size: int) -> "Segment":
        """Return the segment with one entry for each of `size` owners."""
        shape = (size, *self.sample_rate.shape[1:])
        return _unchecked(
            np.broadcast_to(self.sample_rate, shape),
            np.broadcast_to(self.noise_multiplier, shape),
            np.broadcast_to(self.steps, (size,)),
        )

    def columns(self) -> list[np.ndarray]:
        """Return columns with an entry per owner that make two owners equal if they are equal."""
        return [*self.sample_rate.T, *self.noise_multiplier.T, self.steps] if self.is_menu else list(self._values())

    def __repr__(self) -> str:
        shown = [np.array2string(values, threshold=6) if values.ndim else str(values) for values in self._values()]
        return "Segment(sample_rate={}, noise_multiplier={}, steps={})".format(*shown)

    def _values(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.sample_rate, self.noise_multiplier, self.steps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Segment) and all(map(np.array_equal, self._values(), other._values()))

    def __hash__(self) -> int:
        return hash(tuple((values.shape, values.tobytes()) for values in self._values()))


def _unchecked(rate: np.ndarray, multiplier: np.ndarray, steps: np.ndarray) -> Segment:
    """Make a segment of arrays that have been checked before."""
    segment = object.__new__(Segment)
    for name, values in (("sample_rate", rate), ("noise_multiplier", multiplier), ("steps", steps)):
        object.__setattr__(segment, name, values)
    return segment


def _menus(rates: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both with a row per owner; what has one number per owner is the same in all its choices."""
    wide = [values[:, None] if values.ndim == 1 else values for values in (rates, multipliers)]
    try:
        pair = np.broadcast_arrays(*wide)
    except ValueError:
        raise ValueError(
            "sample_rate and noise_multiplier must hold a row per owner and a column per choice, got shapes "
            f"{rates.shape} and {multipliers.shape}"
        ) from None
    if not pair[0].shape[1]:
        raise ValueError("a menu must hold a choice at least, got none")
    return pair[0], pair[1]


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
