"""Checks that name the argument and say what to do. Values are shown where they are public, and only there."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import array_api_compat.numpy
import numpy as np

Array = Any
"""A numpy array or a torch tensor."""

NUMBERS = (int, float, np.number)

TINY, HUGE = 1e-50, 1e50
"""Sensitivities and tail lengths lie between them, so that no product of a few of them leaves float64."""


def number(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> float:
    """Return value as a finite float with above < value and least <= value <= most."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not (math.isfinite(result) and above < result and least <= result <= most):
        limits = [f"> {above:g}"] * (above > -math.inf) + [f">= {least:g}"] * (least > -math.inf)
        limits += [f"<= {most:g}"] * (most < math.inf)
        raise ValueError(f"{name} must be finite{''.join(f' and {limit}' for limit in limits)}, got {value!r}")
    return result


def count(name: str, value: Any, *, least: int = 0) -> int:
    """Return value as an int that is at least `least`."""
    whole = isinstance(value, int | np.integer | float) and not isinstance(value, bool)
    if not whole or value != value or math.isinf(value) or int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def instance(name: str, value: Any, kind: type, advice: str) -> None:
    """Raise unless value is an instance of the kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, got {value!r}: {advice}")


def namespace(array: Array) -> Any:
    """Return the functions of the array API for an array: numpy has them itself, from version 2.1 on."""
    return np if type(array) is np.ndarray else array_api_compat.array_namespace(array)


def floats(name: str, values: Any, like: Array | None = None) -> tuple[Any, Array]:
    """Return the array namespace and the values in float64, where they are, or where `like` is; lists become numpy."""
    if type(values) is np.ndarray and (like is None or type(like) is np.ndarray):  # the usual cases, quickly
        if values.dtype == np.float64:
            return np, values
        if values.dtype.kind in "biuf":
            return np, values.astype(np.float64)
    values = values.detach() if array_api_compat.is_torch_array(values) else numeric(name, values)
    if like is not None and type(like) is not type(values):
        values = namespace(like).asarray(values, device=array_api_compat.device(like))
    xp = namespace(values)
    return xp, xp.astype(values, xp.float64, copy=False)


def numeric(name: str, values: Any) -> np.ndarray:
    """Return values as a numpy array of real numbers, missing ones of a pandas table as NaN.

    Values may be records: what is said about them does not show how long a text among them is.
    """
    if values is None:
        raise TypeError(f"{name} must be numbers, got None: is a `return` missing?")
    if hasattr(values, "to_numpy") and getattr(getattr(values, "dtype", None), "kind", "") in tuple("biuf"):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    if isinstance(values, list | tuple) and _holds_text(values):  # numpy would make room for the longest, N times
        raise TypeError(f"{name} must be numbers, got text")
    array = np.asarray(values)
    if array.dtype == object and array.size and all(isinstance(value, NUMBERS) for value in array.flat):
        array = np.array([_saturated(value) for value in array.flat]).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numbers, got {kind_of(array.dtype)}")
    return array


def kind_of(dtype: np.dtype[Any]) -> str:
    """Name the type of an array, without the width of text, which is the length of a record's text."""
    return "text" if dtype.kind in "UST" else f"values of type {dtype.name}"


def _holds_text(values: Sequence[Any]) -> bool:
    return any(isinstance(one, str | bytes) or (isinstance(one, list | tuple) and _holds_text(one)) for one in values)


def _saturated(value: float) -> float:
    """Return a number as float64; an integer beyond its range becomes the largest float64."""
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max


def vector(name: str, values: Any) -> np.ndarray:
    """Return public values as a read-only one-dimensional float64 array of finite numbers."""
    array = np.array(numeric(name, values), dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be a list of numbers, got shape {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(f"{name} must be finite, got {array[bad[0]]} at position {bad[0]}")
    array.setflags(write=False)
    return array


def each(name: str, values: np.ndarray, holds: np.ndarray, rule: str) -> None:
    """Raise for the first entry where the rule does not hold."""
    bad = np.flatnonzero(~holds)
    if bad.size:
        raise ValueError(f"{name} must {rule}, got {values[bad[0]]} at position {bad[0]}")


def some(labels: Sequence[Any]) -> str:
    """Show the first few labels."""
    return ", ".join(map(repr, labels[:5])) + ", ..." * (len(labels) > 5)
