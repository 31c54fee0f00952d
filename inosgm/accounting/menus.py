"""Menus: steps of which the next one is chosen by what was released, at a price that no choice exceeds."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from inosgm.accounting.segments import Segment, _numbers, _unchecked


def equal_cost_multipliers(sample_rates: ArrayLike, reference_rate: ArrayLike, reference_multiplier: ArrayLike) -> Any:
    """Return the noise multipliers with which a step at each rate costs what it does at the reference.

    It is the limit of many steps, q^2 (exp(1 / m^2) - 1) = const, and not an epsilon: of the choices of one menu
    those with small rates and little noise cost more than the others while steps are few.

    Args:
        sample_rates: In (0, 1].
        reference_rate: In (0, 1].
        reference_multiplier: Above 0.

    Returns:
        A number for numbers; an array for arrays, which are broadcast.

    Raises:
        ValueError: naming the argument that cannot be.

    >>> equal_cost_multipliers([0.005, 0.01, 0.02], 0.01, 1.0).round(3)
    array([0.696, 1.   , 1.673])
    """
    wanted = _numbers("sample_rates", sample_rates, "lie in (0, 1]", above=0, most=1)
    rate = _numbers("reference_rate", reference_rate, "lie in (0, 1]", above=0, most=1)
    inverse = _numbers("reference_multiplier", reference_multiplier, "be > 0", above=0) ** -2.0
    # log(1 + (q0 / q)^2 (exp(s) - 1)), s = 1 / m0^2, where the exponential does not overflow and beyond
    part = 2 * np.log(rate / wanted)
    small = np.log1p(np.exp(part) * np.expm1(np.minimum(inverse, 500.0)))
    large = np.logaddexp(0.0, part + inverse)
    return np.asarray(np.where(inverse < 500, small, large) ** -0.5)[()]


def undominated(sample_rates: np.ndarray, noise_multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the choices of one menu that no other exceeds in its rate and undercuts in its noise, by rising rates.

    >>> undominated(np.array([0.1, 0.3, 0.2, 0.2, 0.0]), np.array([2.0, 4.0, 3.0, 5.0, 1.0]))
    (array([0.1, 0.2, 0.3]), array([2., 3., 4.]))
    """
    order = np.lexsort([noise_multipliers, -sample_rates])
    rates, multipliers = sample_rates[order], noise_multipliers[order]
    least = np.minimum.accumulate(multipliers)
    kept = (np.append(True, multipliers[1:] < least[:-1]) & (rates > 0))[::-1]
    return rates[::-1][kept], multipliers[::-1][kept]


def pruned(segment: Segment) -> Segment:
    """Return a segment of whose menus only the undominated choices cost something: a rate of 0 costs nothing."""
    if not segment.is_menu:
        return segment
    rates, multipliers = np.zeros_like(segment.sample_rate), np.ones_like(segment.noise_multiplier)
    for row, menu in enumerate(zip(segment.sample_rate, segment.noise_multiplier, strict=True)):
        kept, their = undominated(*menu)
        rates[row, : kept.size], multipliers[row, : kept.size] = kept, their
    wide = max(int((rates > 0).sum(axis=1).max(initial=0)), 1)
    return _unchecked(rates[:, :wide], multipliers[:, :wide], segment.steps)
