"""How far releases are from the truth."""

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Row:
    """The error of one way of answering one question, over many releases.

    Attributes:
        table: Where the data comes from.
        owners: What owners differ in, or "dealt out" if they have nothing to do with the values.
        factor: What all budgets were multiplied with.
        statistic: What was asked.
        of: Of which columns.
        way: How it was answered.
        releases: How often.
        scale: What errors are given in units of: the size of the truth, unless the question says otherwise.
        rmse: The root of the mean squared error against the true, unweighted statistic.
        bias: The part that does not go away by averaging, in the same units: the size of the mean error.
        deviation: The part that does.
    """

    table: str
    owners: str
    factor: float
    statistic: str
    of: str
    way: str
    releases: int
    scale: float
    rmse: float
    bias: float
    deviation: float

    @property
    def question(self) -> tuple[str, str, str]:
        """What was asked, whoever owns the rows and however it was answered."""
        return self.table, self.statistic, self.of


HEAD = [field.name for field in fields(Row)]


def measured(found: np.ndarray, truth: np.ndarray, scale: float, **about: Any) -> Row:
    """Compare releases, one per row, with the truth.

    >>> row = measured(np.array([[1.0], [3.0]]), np.array([1.0]), 1.0, table="", owners="", factor=1, statistic="",
    ...                of="", way="")
    >>> row.rmse, row.bias, row.deviation
    (1.4142135623730951, 1.0, 1.0)
    """
    errors = (found.reshape(len(found), -1) - truth.ravel()) / scale
    mean = errors.mean(axis=0)
    return Row(
        **about,
        releases=len(found),
        scale=scale,
        rmse=_size(errors),
        bias=_size(mean[None]),
        deviation=_size(errors - mean),
    )


def _size(errors: np.ndarray) -> float:
    """Return the root of the mean square of the lengths of rows."""
    return float(np.sqrt(np.square(errors).sum(axis=1).mean()))


def entries(row: Row) -> list[Any]:
    """Return a row for a CSV file."""
    return [f"{value:.6g}" if isinstance(value, float) else value for value in asdict(row).values()]
