"""The input of attacks: scores of all records of the pool by every shadow model, and the members of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Shadows:
    """Scores of shadow models. NOT PRIVATE: they are as secret as the records.

    Attributes:
        scores: One row per shadow model, one column per record of the pool, float32; larger for a more confident model.
        members: The records that each model was trained on, in the same form.
        owners: The owner of each record, as a position in `labels`.
        labels: The labels of the owners.
        asked: The number of shadow models that the audit wants; there may be fewer.
        numbers: The numbers of these models, ascending; the first ones if not given.

    Raises:
        ValueError: for scores, members and owners that do not fit together.
    """

    scores: np.ndarray
    members: np.ndarray
    owners: np.ndarray
    labels: tuple[str | int, ...]
    asked: int
    numbers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.numbers is None:
            object.__setattr__(self, "numbers", tuple(range(len(self.scores))))
        numbers = np.array(self.numbers)
        if numbers.shape != self.scores.shape[:1] or (np.diff(numbers) <= 0).any():
            raise ValueError(f"numbers must be one per shadow model, ascending: got {self.numbers}")
        if self.scores.ndim != 2 or self.members.shape != self.scores.shape:
            raise ValueError(
                "scores and members must have a row per shadow model and a column per record: got "
                f"{self.scores.shape} and {self.members.shape}"
            )
        if self.members.dtype != np.bool_:
            raise ValueError(f"members must be truth values, got {self.members.dtype}")
        if self.owners.shape != self.scores.shape[1:]:
            raise ValueError(f"owners must be one per record: got {self.owners.size} for {self.scores.shape[1]}")
        if self.owners.size and not 0 <= self.owners.min() <= self.owners.max() < len(self.labels):
            raise ValueError(f"owners must be positions in the {len(self.labels)} labels")

    def rows_of(self, targets: Sequence[int] | None) -> np.ndarray:
        """Return the rows of shadow models by their numbers, or all rows if no numbers are given.

        Raises:
            ValueError: for numbers of shadow models that do not exist, or are given twice.
        """
        known = {number: row for row, number in enumerate(self.numbers or ())}
        if targets is None:
            return np.arange(self.count)
        missing = [target for target in targets if target not in known]
        if missing or not len(targets) or len(set(targets)) < len(targets):
            there = f"{self.count} shadow models are there"
            there += f", and {missing[0]!r} is not one of them" if missing else ""
            raise ValueError(f"targets must be different numbers of shadow models, got {targets!r}: {there}")
        return np.array([known[target] for target in targets], dtype=np.int64)

    @property
    def count(self) -> int:
        """The number of shadow models."""
        return len(self.scores)

    @property
    def records(self) -> int:
        """The number of records in the pool."""
        return self.owners.size
