"""Tail importance functions: which part of an ordered batch is down-weighted, and how softly."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np
from scipy import special

from inosgm._internal import validate as _validate
from inosgm._internal.validate import Array
from inosgm.mechanism.piecewise_cubic import Pieces, rounding_of_sums

LONGEST_KEPT_TAIL = 2**16
"""Most records in a tail whose weights are kept for the next batch: half a megabyte."""


class Tail(ABC):
    """A non-increasing importance in [0, 1] over the last `length` units of sensitivity of an ordered batch.

    With w(u) the importance at distance u from the least important end (1 from `length` on), W(x) is its
    integral over [0, x]. A tail is checked when it is made; an invalid one cannot exist.
    """

    length: float

    @cached_property
    def pieces(self) -> Pieces:
        """w as a checked piecewise cubic: what weights are computed from."""
        return self._pieces()

    def equal_weights(self, sensitivity: float) -> np.ndarray | None:
        """Return the weights of the least important records of a batch in which all have the same sensitivity.

        They depend on the rank alone, so they are computed once and kept for the next batch: bit for bit those of
        `tail_weights`, because a sum over the first ranks does not depend on how many follow.

        Args:
            sensitivity: C of every record.

        Returns:
            One weight for each rank in the tail, from the least important on, and None for a long tail.
        """
        known, weights = self._equal
        if known != sensitivity:
            fits = self.length < (LONGEST_KEPT_TAIL - 2) * sensitivity  # false for sensitivity 0
            records = int(self.length / sensitivity) + 2 if fits else 0
            weights = tail_weights(np, np.full(records, sensitivity), self) if fits else None
            vars(self)["_equal"] = sensitivity, weights
        return weights

    @cached_property
    def _equal(self) -> tuple[float, np.ndarray | None]:
        return -1.0, None

    def W(self, x: Array) -> Array:
        """Integrate the importance over the last x units of sensitivity.

        Args:
            x: Numbers >= 0, as a float, a numpy array or a torch tensor.

        Returns:
            W(x) in float64, in the kind of array given.

        >>> LinearTail(2.0).W(np.array([0.0, 1.0, 2.0, 3.0]))
        array([0.  , 0.25, 1.  , 2.  ])
        """
        xp, x = _validate.floats("x", x)
        if not bool(xp.all(x >= 0)):
            raise ValueError(f"x must be >= 0, got {x}: W integrates from the least important end upwards")
        return self._cumulative(x)

    def _cumulative(self, x: Array) -> Array:
        return self.pieces.integral(x)

    @abstractmethod
    def _pieces(self) -> Pieces: ...


def tail_weights(xp: Any, spans: Array, tail: Tail) -> Array:
    """Return the weights of the least important records, given the sensitivities of all, the least important first.

    Those that are left out, at the end, have weight 1. Axes before the last are batches apart, of which an empty place
    at the important end has sensitivity 0.
    """
    sums = spans.cumsum(-1)
    # every record that begins in the tail; plain sums are off by up to n roundings, and a record too many gets rho = 1
    size = int((sums <= tail.length * (1 + sums.shape[-1] * 2.0**-52)).sum(-1).max()) + 1
    spans = spans[..., :size]
    sums = xp.concat([0 * sums[..., :1], sums[..., :size]], axis=-1)
    lost = rounding_of_sums(xp, spans, sums)
    high = sums + lost
    return tail.pieces.means(high, lost - (high - sums), spans)


class _Lines(Tail):
    """A tail made of straight pieces, given from its important end: positions, and importances there."""

    def _pieces(self) -> Pieces:
        positions, importances = self._corners()
        knots, values = (positions[-1] - positions)[::-1], importances[::-1]
        return Pieces.hermite(knots, values[:-1], values[1:])

    @abstractmethod
    def _corners(self) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class NoTail(_Lines):
    """Keep every record at full weight: the plain sampled Gaussian mechanism (IDP-SGD in training).

    >>> float(NoTail().W(3.0))
    3.0
    """

    length: float = field(default=0.0, init=False)

    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1), np.ones(1)


@dataclass(frozen=True)
class LinearTail(_Lines):
    """Importance falls on a straight line from 1 to 0 over the tail; the same as BetaTail(1, 1, length).

    Args:
        length: How many units of sensitivity the tail holds; 0 keeps everything.

    >>> float(LinearTail(4.0).W(4.0))
    2.0
    """

    length: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", _length("length", self.length))

    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0.0, self.length]), np.array([1.0, 0.0])


@dataclass(frozen=True)
class HardTail(_Lines):
    """Give up the last `length` units of sensitivity altogether; the record on the border keeps its part.

    Args:
        length: How many units of sensitivity get weight 0.

    >>> float(HardTail(4.0).W(5.0))
    1.0
    """

    length: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", _length("length", self.length))

    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0.0, self.length]), np.zeros(2)


@dataclass(frozen=True)
class StepTail(_Lines):
    """Importance falls in equal steps (App. C.2.5 of the INO-SGD paper).

    Args:
        levels: The importance of each step, non-increasing in [0, 1]; the first is nearest the important records.
        step: How many units of sensitivity each level lasts.

    >>> StepTail([0.5, 0.25], step=2.0).length
    4.0
    """

    levels: Sequence[float]
    step: float
    length: float = field(init=False)

    def __post_init__(self) -> None:
        levels = _validate.vector("levels", self.levels)
        if not levels.size:
            raise ValueError("levels must hold at least one importance: NoTail() gives nothing up")
        _check_importances("levels", levels)
        object.__setattr__(self, "levels", tuple(levels.tolist()))
        object.__setattr__(self, "step", _length("step", self.step))
        object.__setattr__(self, "length", self.step * len(self.levels))

    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        edges = np.arange(len(self.levels) + 1) * self.step
        return np.repeat(edges, 2)[1:-1], np.repeat(self.levels, 2)


@dataclass(frozen=True)
class BetaTail(Tail):
    """Importance follows a Beta distribution function over the tail (Sec. 3.2 of the INO-SGD paper).

    w(u) = I_{u/length}(alpha, beta), the regularized incomplete beta function. A larger alpha gives more of the
    tail up, a larger beta keeps more of it; alpha = beta = 1 is a straight line.

    Weights are computed from a monotone piecewise cubic within 2e-11 of w (itself a valid tail, so the guarantee
    does not rest on that figure); `W` is the closed form.

    Args:
        alpha: First shape, in [0.01, 10000].
        beta: Second shape, in [0.01, 10000].
        length: How many units of sensitivity the tail holds; 0 keeps everything.

    >>> float(BetaTail(2, 1, length=3.0).W(3.0))
    1.0
    """

    alpha: float
    beta: float
    length: float

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, _validate.number(name, getattr(self, name), least=0.01, most=1e4))
        object.__setattr__(self, "length", _length("length", self.length))

    def _cumulative(self, x: Array) -> Array:
        if array_api_compat.is_torch_array(x):
            return array_api_compat.array_namespace(x).asarray(self._cumulative(x.cpu().numpy()), device=x.device)
        if not self.length:
            return x
        a, b, y = self.alpha, self.beta, np.minimum(x / self.length, 1.0)
        inside = y * special.betainc(a, b, y) - a / (a + b) * special.betainc(a + 1, b, y)
        return self.length * inside + np.maximum(x - self.length, 0.0)

    def _pieces(self) -> Pieces:
        if not self.length:
            return NoTail().pieces
        halves = self.length * 0.5 ** np.arange(1, 70)
        knots = np.unique(np.concatenate([[0.0], halves, self.length - halves]))
        while True:  # halve every piece whose cubic misses w by more than the tolerance
            value, slope = self._importance(knots), self._density(knots)
            table = Pieces.hermite(knots, value[:-1], value[1:], slope[:-1], slope[1:])
            probes = knots[:-1] + np.diff(knots) * np.array([[0.25], [0.5]])
            miss = np.abs(table.at(probes) - self._importance(probes)).max(axis=0) > 1e-11
            miss &= np.diff(knots) > self.length * 2.0**-69 + 4 * np.spacing(knots[1:])
            if not miss.any():
                return table
            knots = np.sort(np.concatenate([knots, probes[1][miss]]))

    def _importance(self, u: np.ndarray) -> Array:
        """w by whichever end is nearer, non-decreasing also in the last bit."""
        rest = self.length - u
        lower = special.betainc(self.alpha, self.beta, u / self.length)
        upper = 1 - special.betainc(self.beta, self.alpha, rest / self.length)
        return np.maximum.accumulate(np.where(u <= rest, lower, upper), axis=-1)

    def _density(self, u: np.ndarray) -> Array:
        log = special.xlogy(self.alpha - 1, u / self.length) + special.xlogy(
            self.beta - 1, (self.length - u) / self.length
        )
        return np.exp(log - special.betaln(self.alpha, self.beta)) / self.length


@dataclass(frozen=True)
class TableTail(_Lines):
    """Importance on straight lines between knots, or tabulated from any function with `TableTail.of`.

    Args:
        positions: Where the knots lie, from 0 at the important end, non-decreasing; a repeated position is a jump.
        importances: The importance at each knot, non-increasing in [0, 1].

    >>> TableTail([0.0, 1.0, 1.0, 3.0], [1.0, 0.8, 0.5, 0.0]).length
    3.0
    """

    positions: Sequence[float]
    importances: Sequence[float]
    length: float = field(init=False)

    def __post_init__(self) -> None:
        positions = _validate.vector("positions", self.positions)
        importances = _validate.vector("importances", self.importances)
        if positions.shape != importances.shape or not positions.size:
            raise ValueError(f"positions and importances must pair up, got {positions.size} and {importances.size}")
        if positions[0] != 0 or np.any(np.diff(positions) < 0):
            raise ValueError(f"positions must start at 0 and never fall, got {positions.tolist()}")
        _check_importances("importances", importances)
        object.__setattr__(self, "positions", tuple(positions.tolist()))
        object.__setattr__(self, "importances", tuple(importances.tolist()))
        object.__setattr__(self, "length", _length("the last position", positions[-1]))

    @classmethod
    def of(cls, function: Callable[[float], float], length: float, *, pieces: int = 1024) -> "TableTail":
        """Tabulate a function c -> importance on [0, length], c = 0 being the important end.

        **Guarantee.** The function is called only at the knots and its values there are checked; between them the
        tail is a straight line. What results is a valid tail whatever the function does elsewhere.

        Args:
            function: Takes a position in [0, length], returns an importance in [0, 1]; must not rise.
            length: Units of sensitivity that the tail holds.
            pieces: Number of straight pieces.

        Raises:
            ValueError: naming the first position where the function leaves [0, 1] or rises.

        >>> TableTail.of(lambda c: 1 - (c / 5) ** 2, length=5.0).length
        5.0
        """
        positions = np.linspace(0.0, _length("length", length), _validate.count("pieces", pieces, least=1) + 1)
        values = np.array([_validate.number(f"the function at c = {c:g}", function(float(c))) for c in positions])
        rises = np.diff(values, prepend=values[0]) > 0
        for bad, what in ((~((values >= 0) & (values <= 1)), "leaves [0, 1]"), (rises, "rises")):
            if bad.any():
                where = np.flatnonzero(bad)[0]
                raise ValueError(f"the function {what} at c = {positions[where]:g}, where it is {values[where]:g}")
        return cls(tuple(positions), tuple(values))

    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.positions), np.array(self.importances)


def _length(name: str, value: float) -> float:
    length = _validate.number(name, value, least=0, most=_validate.HUGE)
    if 0 < length < _validate.TINY:
        raise ValueError(f"{name} must be 0 or at least {_validate.TINY}, got {value!r}")
    return length


def _check_importances(name: str, values: np.ndarray) -> None:
    _validate.each(name, values, (values >= 0) & (values <= 1), "lie in [0, 1]")
    _validate.each(name, values, np.diff(values, prepend=values[:1]) <= 0, "not rise: the important end comes first")
