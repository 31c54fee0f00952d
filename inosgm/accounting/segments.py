"""Segments of equal sampled Gaussian steps, and menus of steps among which released values choose."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate


@dataclass(frozen=True, init=False, eq=False)
class Segment:
    """Consecutive steps, each a sampled Gaussian mechanism with the same sample rate and noise multiplier.

    If released values choose the next step from a finite menu that was fixed beforehand, the segment holds the menu:
    one row per owner and one column per choice. Every step then costs an upper bound on all of its choices.

    Args:
        sample_rate: In [0, 1]; one number or one per owner, or a row of them per owner. A rate of 0 costs nothing.
        noise_multiplier: Above 0; one number or one per owner, or a row of them per owner.
        steps: A whole number >= 0; one number or one per owner.

    Raises:
        ValueError: if a number is out of range; the message names it.

    >>> Segment(0.01, 1.0, 100)
    Segment(sample_rate=0.01, noise_multiplier=1.0, steps=100.0)
    >>> Segment([[0.01, 0.02]], [[1.0, 1.6]], 100)
    Segment(sample_rate=[[0.01 0.02]], noise_multiplier=[[1.  1.6]], steps=100.0)
    """

    sample_rate: np.ndarray
    noise_multiplier: np.ndarray
    steps: np.ndarray

    def __init__(self, sample_rate: ArrayLike, noise_multiplier: ArrayLike, steps: ArrayLike) -> None:
        rates = checked_numbers("sample_rate", sample_rate, "lie in [0, 1]", least=0, most=1)
        multipliers = checked_numbers("noise_multiplier", noise_multiplier, "be > 0", above=0)
        count = checked_numbers("steps", steps, "be whole numbers >= 0", least=0, whole=True)
        if max(rates.ndim, multipliers.ndim) > 2 or count.ndim > 1:
            raise ValueError(
                "a segment holds one number, one per owner, or, in sample_rate and noise_multiplier, a row per owner, "
                f"got arrays of {rates.ndim}, {multipliers.ndim} and {count.ndim} dimensions"
            )
        if max(rates.ndim, multipliers.ndim) == 2:
            rates, multipliers = _menus(rates, multipliers)
        _set_fields(self, rates, multipliers, count)

    @property
    def is_menu(self) -> bool:
        """Whether each step was chosen from several."""
        return self.sample_rate.ndim == 2

    def rows(self, rows: np.ndarray) -> "Segment":
        """Return the given rows of a segment that holds one entry per owner."""
        return unchecked_segment(self.sample_rate[rows], self.noise_multiplier[rows], self.steps[rows])

    def rows_of(self, size: int) -> "Segment":
        """Return the segment with one entry for each of `size` owners."""
        shape = (size, *self.sample_rate.shape[1:])
        rates, multipliers = np.broadcast_to(self.sample_rate, shape), np.broadcast_to(self.noise_multiplier, shape)
        return unchecked_segment(rates, multipliers, np.broadcast_to(self.steps, (size,)))

    def columns(self) -> list[np.ndarray]:
        """Return columns of one entry per owner; two owners have the same cost if all their entries are equal."""
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


@dataclass(frozen=True, init=False, eq=False)
class Spent(Segment):
    """What an adaptive ledger has committed to, as the Gaussian mechanism that leaves as much of the budget to a plan.

    A plan that counts it as its past enters the filter of the ledger as one more event. Its sampled steps therefore
    count as the Gaussian mechanism that dominates them up to `slack` (one number per owner), if the owner has a past.
    """

    slack: np.ndarray

    def __init__(self, noise_multiplier: np.ndarray, slack: np.ndarray) -> None:
        """Make the past of each owner; an infinite multiplier is that of an owner without a past."""
        begun = np.isfinite(noise_multiplier)
        super().__init__(begun, np.where(begun, noise_multiplier, 1.0), np.ones(begun.size))
        object.__setattr__(self, "slack", slack)

    def rows(self, rows: np.ndarray) -> "Spent":
        """Return the given rows."""
        return self._like(super().rows(rows), self.slack[rows])

    def rows_of(self, size: int) -> "Spent":
        """Return the segment with one entry for each of `size` owners."""
        return self._like(super().rows_of(size), np.broadcast_to(self.slack, (size,)))

    def columns(self) -> list[np.ndarray]:
        """Return columns of one entry per owner."""
        return [*super().columns(), self.slack]

    def _like(self, segment: Segment, slack: np.ndarray) -> "Spent":
        other = object.__new__(Spent)
        object.__setattr__(other, "slack", slack)
        _set_fields(other, *segment._values())
        return other


def unchecked_segment(rate: np.ndarray, multiplier: np.ndarray, steps: np.ndarray) -> Segment:
    """Return a segment of arrays that were validated before."""
    return _set_fields(object.__new__(Segment), rate, multiplier, steps)


def _set_fields(segment: Segment, rate: np.ndarray, multiplier: np.ndarray, steps: np.ndarray) -> Segment:
    for name, values in (("sample_rate", rate), ("noise_multiplier", multiplier), ("steps", steps)):
        object.__setattr__(segment, name, values)  # the dataclass is frozen
    return segment


def _menus(rates: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both with one row per owner and one column per choice; one number per owner serves all its choices."""
    wide = [values[:, None] if values.ndim == 1 else values for values in (rates, multipliers)]
    try:
        menu_rates, menu_multipliers = np.broadcast_arrays(*wide)
    except ValueError:
        raise ValueError(
            "sample_rate and noise_multiplier must hold a row per owner and a column per choice, got shapes "
            f"{rates.shape} and {multipliers.shape}"
        ) from None
    if not menu_rates.shape[1]:
        raise ValueError("a menu must hold a choice at least, got none")
    return menu_rates, menu_multipliers


def undominated(sample_rates: np.ndarray, noise_multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the choices of one menu that no other dominates by a higher rate and less noise, by rising rates.

    >>> undominated(np.array([0.1, 0.3, 0.2, 0.2, 0.0]), np.array([2.0, 4.0, 3.0, 5.0, 1.0]))
    (array([0.1, 0.2, 0.3]), array([2., 3., 4.]))
    """
    order = np.lexsort([noise_multipliers, -sample_rates])
    rates, multipliers = sample_rates[order], noise_multipliers[order]
    least = np.minimum.accumulate(multipliers)
    kept = (np.append(True, multipliers[1:] < least[:-1]) & (rates > 0))[::-1]
    return rates[::-1][kept], multipliers[::-1][kept]


def without_dominated(segment: Segment) -> Segment:
    """Return the segment with menus of undominated choices only; a rate of 0, which costs nothing, pads each row."""
    if not segment.is_menu:
        return segment
    rates, multipliers = np.zeros_like(segment.sample_rate), np.ones_like(segment.noise_multiplier)
    for row, menu in enumerate(zip(segment.sample_rate, segment.noise_multiplier, strict=True)):
        kept_rates, kept_multipliers = undominated(*menu)
        rates[row, : kept_rates.size], multipliers[row, : kept_rates.size] = kept_rates, kept_multipliers
    width = max(int((rates > 0).sum(axis=1).max(initial=0)), 1)
    return unchecked_segment(rates[:, :width], multipliers[:, :width], segment.steps)


def checked_numbers(
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
    """Return values of any shape as read-only float64; raise for the first one outside of the limits."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {values!r}") from None
    good = np.isfinite(array) & (array > above) & (array >= least) & (array < below) & (array <= most)
    if whole:
        good &= array == np.floor(array)
    _validate.each(name, array.reshape(-1), good.reshape(-1), rule)
    array.setflags(write=False)
    return array
