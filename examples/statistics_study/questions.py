"""What is asked of which table. Bounds are round numbers that were chosen with these public tables known."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from examples.statistics_study.ways import INDIVIDUAL, STRATIFIED, STRICTEST


def _as_it_is(_: np.ndarray, value: Any) -> np.ndarray:
    return np.asarray(value, dtype=np.float64).ravel()


def _size_of_truth(_: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(truth))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A statistic of some columns.

    Attributes:
        statistic: Its name, as the library calls it.
        table: Of which table.
        columns: Of which of its columns.
        parameters: Public parameters.
        truth: What the answer would be without privacy, every record with the same weight.
        stratified: Whether it can also be answered owner by owner.
        note: What makes it another question than that with the same statistic and columns, in words.
        read: In which form an answer is compared with the truth, given the data.
        scale: What errors are given in units of, given the data and the truth in that form.
    """

    statistic: str
    table: str
    columns: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    truth: Callable[[np.ndarray], Any]
    stratified: bool = False
    note: str = ""
    read: Callable[[np.ndarray, Any], np.ndarray] = _as_it_is
    scale: Callable[[np.ndarray, np.ndarray], float] = _size_of_truth

    @property
    def of(self) -> str:
        """Of what, in words."""
        return ", ".join([*self.columns, *([self.note] if self.note else [])])

    def takes(self, way: str) -> bool:
        """Say whether it can be answered in one of our ways."""
        return way in (INDIVIDUAL, STRICTEST) or (way == STRATIFIED and self.stratified)


BOUNDS: dict[tuple[str, str], tuple[float, float]] = {
    ("cps1988", "wage"): (0.0, 20_000.0),
    ("nmes1988", "visits"): (0.0, 100.0),
    ("nmes1988", "hospital"): (0.0, 10.0),
    ("adult", "hours_per_week"): (0.0, 100.0),
    ("adult", "capital_gain"): (0.0, 100_000.0),
    ("adult", "age"): (0.0, 100.0),
    ("breast cancer", "mean area"): (0.0, 3000.0),
    ("diabetes", "progression"): (0.0, 400.0),
}


def _column(statistic: str, table: str, column: str, truth: Callable[[np.ndarray], Any], **more: Any) -> Question:
    """Ask about one bounded column."""
    stratified, note = more.pop("stratified", False), more.pop("note", "")
    return Question(
        statistic=statistic,
        table=table,
        columns=(column,),
        parameters={"bounds": BOUNDS[table, column], **more},
        truth=truth,
        stratified=stratified,
        note=note,
    )


QUESTIONS: tuple[Question, ...] = (
    *(_column("mean", table, column, np.mean, stratified=True) for table, column in BOUNDS),
)
