"""Choices: the finitely many ways in which a step of a plan may be made; released values choose one of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate


@dataclass(frozen=True, init=False, eq=False)
class Choices:
    """Sample rates and sensitivities of each owner to choose from, all public before the first step.

    The choice for the next step may depend on everything that was released before, and differ from owner to owner. A
    step is charged as if the worst choice had been made: the dominating pair of all choices of the owner.

    Args:
        sample_rates: One row per choice, one column per owner, in [0, 1].
        sensitivities: Likewise, above 0.

    Raises:
        ValueError: for tables of different shapes, and for rates or sensitivities out of range.

    >>> Choices(sample_rates=[[0.1, 0.2], [0.2, 0.4]], sensitivities=[[1, 1], [0.5, 0.5]]).count
    2
    """

    sample_rates: np.ndarray
    sensitivities: np.ndarray

    def __init__(self, *, sample_rates: ArrayLike, sensitivities: ArrayLike) -> None:
        rates, bounds = (np.array(values, dtype=np.float64) for values in (sample_rates, sensitivities))
        if rates.ndim != 2 or rates.shape != bounds.shape or not rates.size:
            raise ValueError(
                "sample_rates and sensitivities must be tables of one row per choice and one column per owner, got "
                f"shapes {rates.shape} and {bounds.shape}"
            )
        _validate.each("sample_rates", rates.ravel(), ((rates >= 0) & (rates <= 1)).ravel(), "lie in [0, 1]")
        within = (bounds >= _validate.TINY) & (bounds <= _validate.HUGE)
        _validate.each("sensitivities", bounds.ravel(), within.ravel(), f"lie in [{_validate.TINY}, {_validate.HUGE}]")
        for name, values in (("sample_rates", rates), ("sensitivities", bounds)):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @property
    def count(self) -> int:
        """The number of choices."""
        return len(self.sample_rates)

    def pay_for(self, sample_rates: np.ndarray, sensitivities: np.ndarray) -> np.ndarray:
        """Say of each owner whether a pair is one of its choices, or costs no more than one of them.

        A smaller rate with a smaller sensitivity costs no more, and a rate of 0 costs nothing: with H the hockey-stick
        curve of the Gaussian (convex, H(x) >= 1 - x, slope at least -1), the sampled one, q H(1 + t / q), rises with q.
        """
        within = (sample_rates <= self.sample_rates) & (sensitivities <= self.sensitivities)
        return np.asarray(within.any(axis=0) | (sample_rates == 0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choices) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("sample_rates", "sensitivities")
        )

    def __hash__(self) -> int:
        return hash((self.sample_rates.tobytes(), self.sensitivities.tobytes()))


Menu = Choices
"""The name that earlier versions had for `Choices`."""
