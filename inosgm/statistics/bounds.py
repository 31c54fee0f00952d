"""Numbers within public bounds, and the checks of columns."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from inosgm._internal import validate as _validate

HOW_TO_KNOW_BOUNDS = (
    "choose them without looking at the data, or pay for them with private_bounds (inosgm stats bounds); the smallest "
    "and the largest value of the data would show two records"
)


@dataclass(frozen=True)
class Bounds:
    """The public bounds of a column; values beyond them are moved to the nearer one.

    >>> Bounds.of((0, 100)).shares(np.array([0.0, 50.0, 250.0]))
    array([-1.,  0.,  1.])
    """

    low: float
    high: float

    @classmethod
    def of(cls, bounds: Any) -> Self:
        """Read two numbers, the smaller one first.

        Raises:
            ValueError: for anything else.
        """
        if isinstance(bounds, cls):
            return bounds
        try:
            low, high = (_validate.number("bounds", bound) for bound in bounds)
        except (TypeError, ValueError):
            raise ValueError(
                f"bounds must be two numbers, the smaller one first, got {bounds!r}: {HOW_TO_KNOW_BOUNDS}"
            ) from None
        if not low < high:
            raise ValueError(f"bounds must be the smaller number first, then the larger one, got {low:g} and {high:g}")
        if not high / 2 - low / 2 > 0:
            raise ValueError(f"bounds must be further apart than the smallest float64, got {low:g} and {high:g}")
        return cls(low, high)

    @property
    def middle(self) -> float:
        """Half way between the bounds."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half of the distance between the bounds."""
        return self.high / 2 - self.low / 2

    def notes(self, value: float) -> tuple[str, ...]:
        """Return what to say about an estimate that lies at or beyond a bound."""
        if self.low < value < self.high:
            return ()
        name, bound = ("lower", self.low) if value <= self.low else ("upper", self.high)
        return (
            f"the answer lies at or beyond the {name} bound, {bound:g}: the noise is as large as what is measured, or "
            "the bounds are too close and cut values off",
        )

    def shares(self, values: Any) -> np.ndarray:
        """Return values as distances from the middle in units of half the range: numbers in [-1, 1]."""
        return np.clip((numbers(values) - self.middle) / self.half, -1.0, 1.0)


def numbers(values: Any) -> np.ndarray:
    """Return one or several columns of numbers as float64; finite ones stay finite."""
    array = _validate.numeric("values", values)
    if array.dtype.itemsize > 8:  # extended precision has larger numbers, which float64 would make infinite
        most = np.finfo(np.float64).max
        array = np.where(np.isfinite(array), np.clip(array, -most, most), array)
    return array.astype(np.float64, copy=False)


def require_numbers(values: Any, name: str = "values", columns: int | None = None) -> None:
    """Raise for columns with anything but finite numbers; the message has the position, never the value.

    Raises:
        TypeError: for text and other things that are no numbers.
        ValueError: for missing or infinite values, and for another number of columns.
    """
    array = numbers(values)
    expected = "one number per record" if columns is None else f"{columns} numbers per record"
    if array.ndim != (1 if columns is None else 2) or (columns is not None and array.shape[1] != columns):
        raise ValueError(f"{name} must be {expected}, got shape {array.shape}")
    bad = ~np.isfinite(array) if columns is None else ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name} must be finite numbers, got a missing or infinite one at position {int(np.argmax(bad))}: fill it "
            "in, or leave such records out"
        )


def open_fraction(name: str, value: Any) -> float:
    """Return the value if it lies in (0, 1); raise otherwise.

    Raises:
        ValueError: for numbers outside (0, 1).
    """
    number = _validate.number(name, value, above=0)
    if number >= 1:
        raise ValueError(f"{name} must be below 1 (a part, not a percentage), got {value!r}")
    return number


def require_indicator(batch: Any) -> None:
    """Raise for anything but zeros and ones; the message has the position, never the value."""
    require_numbers(batch)
    values = numbers(batch)
    bad = (values != 0) & (values != 1)
    if bad.any():
        raise ValueError(
            f"values must be 0 or 1, true or false, got something else at position {int(np.argmax(bad))}: compare the "
            "column with something first (a condition), or count groups (group-counts)"
        )
