"""Steering: what chooses the shares of the next step from a plan's menu, by released values alone."""

from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.planning.plan import Plan
from inosgm.planning.steering import Steering


class _Following(Steering):
    """Follows losses at a temperature."""

    def __init__(self, *, every: int, temperature: float) -> None:
        self.every = _validate.count("every", every, least=1)
        self._temperature = _validate.number("temperature", temperature, above=0)

    def _raised(self, weights: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """Return weights times exp(temperature * loss), but for a common factor."""
        return np.asarray(weights * np.exp(self._temperature * (losses - losses.max())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(every={self.every}, temperature={self._temperature})"


class AdaptiveShares(_Following):
    """Gives groups with higher losses more of the batch: ASC (asc.txt Alg. 2).

    After each release m_g becomes proportional to m_g exp(temperature * L_g), with the sum of a batch and none above
    the size of its group. The sensitivity of a group is that of the next rate of its menu. Without replacement the
    numbers are whole, by the rounding of asc.txt App. B.

    Args:
        plan: A plan of `plan_asc`.
        every: Steps between releases of losses.
        temperature: How fast shares follow losses (eta).
    """

    def __init__(self, plan: Plan, *, every: int, temperature: float) -> None:
        super().__init__(every=every, temperature=temperature)
        self._sizes, self._batch = plan.sizes.astype(np.float64), plan.expected_batch
        self._whole = plan.sampling == "without_replacement"
        self._counts = plan.sample_rates * self._sizes

    def shares(self, plan: Plan, coins: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rates m_g / n_g, and the sensitivities that go with them."""
        if plan.menu is None:
            raise ValueError("plan must have a menu: make it with plan_asc")
        rates = self._counts / self._sizes
        rows = (plan.menu.sample_rates < rates * (1 - 1e-12)).sum(axis=0)  # rates of a menu ascend
        rows = np.minimum(rows, plan.menu.choices - 1)
        groups = np.arange(rates.size)
        return np.minimum(rates, plan.menu.sample_rates[rows, groups]), plan.menu.sensitivities[rows, groups]

    def learn(self, losses: np.ndarray, coins: np.random.Generator) -> None:
        """Move records of a batch to groups with higher losses."""
        counts = self._raised(self._counts, losses)
        if self._whole:
            self._counts = rounded(self._batch * counts / counts.sum(), self._sizes, self._batch, coins)
        else:
            self._counts = capped(counts, self._sizes, self._batch)

    def state(self) -> Any:
        """Return the numbers of records."""
        return self._counts.tolist()

    def restore(self, state: Any) -> None:
        """Go on with these numbers of records."""
        self._counts = np.array(state)


class ChosenGroup(_Following):
    """Draws each batch from one group, chosen at random, those with higher losses more often: aZB (asc.txt Alg. 3).

    Args:
        plan: A plan of `plan_chosen_group`.
        every: Steps between releases of losses.
        temperature: How fast probabilities follow losses (eta).
    """

    def __init__(self, plan: Plan, *, every: int, temperature: float) -> None:
        super().__init__(every=every, temperature=temperature)
        self._probabilities = np.full(plan.sizes.size, 1 / plan.sizes.size)

    def shares(self, plan: Plan, coins: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the rate of one group, and 0 for all others."""
        group = coins.choice(self._probabilities.size, p=self._probabilities)
        return np.where(np.arange(self._probabilities.size) == group, plan.sample_rates, 0.0), plan.sensitivities

    def learn(self, losses: np.ndarray, coins: np.random.Generator) -> None:
        """Let groups with higher losses be chosen more often."""
        weights = self._raised(self._probabilities, losses)
        self._probabilities = weights / weights.sum()

    def state(self) -> Any:
        """Return the probabilities."""
        return self._probabilities.tolist()

    def restore(self, state: Any) -> None:
        """Go on with these probabilities."""
        self._probabilities = np.array(state)


def rounded(counts: np.ndarray, sizes: np.ndarray, batch: float, coins: np.random.Generator) -> np.ndarray:
    """Return whole numbers that sum to a batch: to the nearest, halves to even, and what is missing at random.

    As in asc.txt App. B: who gives one up has one at least; and nobody gets more than its group has.

    >>> rounded(np.array([2.5, 3.5, 4.0]), np.full(3, 100.0), 10, np.random.default_rng(0))
    array([2., 4., 4.])
    """
    found = np.minimum(np.rint(counts), sizes)
    while (missing := round(batch - found.sum())) != 0:
        able = np.flatnonzero(found < sizes if missing > 0 else found > 0)
        found[coins.choice(able)] += np.sign(missing)
    return np.asarray(found)


def capped(counts: np.ndarray, sizes: np.ndarray, batch: float) -> np.ndarray:
    """Return numbers of records in the same proportions that sum to a batch, none above what a group has (m_g <= n_g).

    >>> capped(np.array([1.0, 1.0, 2.0]), np.array([100, 5, 100]), 40.0)
    array([11.66666667,  5.        , 23.33333333])
    """
    full = np.zeros(counts.size, dtype=bool)
    while True:
        left = batch - sizes[full].sum()
        found = np.where(full, sizes, counts * left / max(counts[~full].sum(), 1e-300))
        over = (found > sizes) & ~full
        if not over.any():
            return np.asarray(found, dtype=np.float64)
        full |= over
