"""Which records of a table take part in a statistic: each record decides by its own columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from inosgm._internal import validate as _validate
from inosgm.owners import Label
from inosgm.statistics.conditions import Condition
from inosgm.statistics.files.columns import LABELS, Form, Where, missing_in

Column = str | Condition
"""A column of a table by its name, or a condition: a column of zeros and ones."""


def types_of(columns: Sequence[Column], form: Form) -> dict[str, pa.DataType]:
    """Return the columns of a table that some columns are read from, and the type that each is parsed as from text."""
    types: dict[str, pa.DataType] = {}
    for column in columns:
        types |= column.types if isinstance(column, Condition) else {column: form.arrow}
    return types


def checked_keys(keys: Any) -> tuple[Label, ...]:
    """Return the names of groups, which differ as text.

    Raises:
        ValueError: for none, or one twice.
    """
    if isinstance(keys, str) or not len(keys):
        raise ValueError(f"keys must be a list of names of groups, got {keys!r}")
    names = tuple(keys)
    if len(set(map(str, names))) < len(names):
        raise ValueError(f"keys must differ, got {_validate.some(names)}")
    return names


class Missing(StrEnum):
    """What happens to a record that lacks a value: the table is refused, or the record takes no part.

    With `count`, the number of such records is released as well, which costs a part of the budget.
    """

    refuse = "refuse"
    drop = "drop"
    count = "count"  # type: ignore[assignment]  # text has a method of this name


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which records of a table take part in a statistic, and which group each is in; every record decides by itself.

    Attributes:
        where: The condition that a record must satisfy.
        missing: What happens to a record that lacks a value.
        by: The column that names the group of a record.
        keys: The public names of groups; None if names are private.
    """

    where: Condition | None = None
    missing: Missing = Missing.refuse
    by: str | None = None
    keys: tuple[Label, ...] | None = None

    @classmethod
    def of(
        cls,
        where: "str | Condition | None",
        missing: str,
        by: str | None = None,
        keys: Sequence[Label] | None = None,
    ) -> Self:
        """Read the options of a question.

        Raises:
            ValueError: for a condition that cannot be read, another way to treat missing values, and keys that are no
                list of different names.
        """
        if keys is not None and by is None:
            raise ValueError("keys are the names of groups: by must name the column that has them")
        names = None if keys is None else checked_keys(keys)
        if missing not in list(Missing):
            raise ValueError(f"missing must be one of {', '.join(Missing)}, got {missing!r}")
        condition = Condition(where) if isinstance(where, str) else where
        if condition is not None and not isinstance(condition, Condition):
            raise TypeError(f"where must be a condition such as \"sex == 'F'\", got {condition!r}")
        return cls(where=condition, missing=Missing(missing), by=by, keys=names)

    @property
    def partial(self) -> bool:
        """Whether some records may take no part; how many do is then private."""
        return self.where is not None or self.missing is not Missing.refuse

    @property
    def some(self) -> bool:
        """Whether a question is not simply about all records."""
        return self.partial or self.by is not None

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns that it reads, and the type that each is parsed as from text."""
        return {
            **({} if self.where is None else self.where.types),
            **({} if self.by is None else {self.by: pa.string()}),
        }

    def read(self, batch: pa.RecordBatch, columns: Sequence[Column], form: Form, where: Where) -> "Selected":
        """Return the values of the records of a batch that take part."""
        kept = missing = None
        if self.partial:
            taking = np.ones(batch.num_rows, dtype=bool) if self.where is None else self.where.satisfied(batch)
            if self.missing is not Missing.refuse:
                names = [*(types_of(columns, form)), *([] if self.by is None else [self.by])]
                missing = taking & np.any([missing_in(batch.column(name)) for name in names], axis=0)
                taking = taking & ~missing
            kept = np.flatnonzero(taking)
            batch = batch.filter(pa.array(taking))
            where = renumbered(where, kept)
        read = [
            column.satisfied(batch).astype(np.float64)
            if isinstance(column, Condition)
            else form(column, batch.column(column), where)
            for column in columns
        ]
        groups = None if self.by is None else LABELS(self.by, batch.column(self.by), where)
        return Selected(read[0] if len(read) == 1 else np.stack(read, axis=1), kept, missing, groups)


EVERYBODY = Selection()


class Selected(NamedTuple):
    """The values of the records of a batch that take part; the other fields are as for `TableBatch`."""

    values: np.ndarray
    kept: np.ndarray | None = None
    missing: np.ndarray | None = None
    groups: np.ndarray | None = None


def renumbered(where: Where, kept: np.ndarray) -> Where:
    """Return a function that describes the row of a record that takes part, given its position among those."""
    return lambda position: where(int(kept[position]))
