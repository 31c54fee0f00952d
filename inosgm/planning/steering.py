"""Steering: the object that chooses the next step of a plan among its choices, from released values alone."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from inosgm.planning.plan import Plan


class Steering(ABC):
    """Chooses how the next batch is drawn and bounded, from public numbers and released values.

    **Guarantee.** It is given nothing else, and a mechanism makes no step with shares that its plan does not pay for,
    so whatever it chooses costs no more than the plan says.

    Attributes:
        every: After how many steps the mean loss of every owner's records is released.
    """

    every: int

    @abstractmethod
    def shares(self, plan: Plan, coins: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the sample rate and the sensitivity of every owner for the next step."""

    @abstractmethod
    def learn(self, losses: np.ndarray, coins: np.random.Generator) -> None:
        """Take note of what was released: the noisy mean loss of each owner's records."""

    @abstractmethod
    def state(self) -> Any:
        """Return all that was learnt, for JSON."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Go on from what `state` has returned."""
