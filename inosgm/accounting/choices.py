"""Menus: steps of which the next one is chosen by what was released, at a price that no choice exceeds."""

import numpy as np

from inosgm.accounting.segments import Segment, _unchecked


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
