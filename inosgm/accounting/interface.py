"""The interface of an accountant."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from inosgm.accounting.segments import Segment


class Accountant(Protocol):
    """The cost of segments of steps; every row is an owner, and every array has one entry per row."""

    name: ClassVar[str]
    """The name in plans and files."""

    unit: ClassVar[str]
    """The neighbouring relation, "add/remove" or "replace-one". Epsilons of different units are not comparable."""

    precision: ClassVar[float]
    """Largest relative distance by which inverses stay below a budget."""

    confirms: ClassVar[bool]
    """Whether `confirm` is much cheaper than `epsilon`."""

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an upper bound on the epsilon of every row, and a hint for `confirm`."""
        ...

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return upper bounds on epsilon from hints: a quick bound, or the best one if `closely`."""
        ...
