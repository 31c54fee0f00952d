"""What a stage of a question sees of the records of a table: values, indicators, or values beside a group."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from inosgm.owners import Label
from inosgm.statistics.bounds import require_indicator
from inosgm.statistics.files.columns import LABELS, NUMBERS, Form
from inosgm.statistics.tables import TableBatch


@dataclass(frozen=True)
class View:
    """The values of the records that take part; the others add nothing and have no rank."""

    form: ClassVar[Form | None] = None
    """How columns are read; None for what the statistic takes."""

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return the values, and the positions of their records in the batch; None for all records."""
        return batch.values, batch.kept


AS_READ = View()


@dataclass(frozen=True)
class TakesPart(View):
    """1 for a record that takes part, 0 for others.

    Attributes:
        labels: Whether the question's columns hold labels.
        indicator: Whether values must be zeros and ones: they are checked before anything is paid for.
    """

    labels: bool = False
    indicator: bool = False

    @property
    def form(self) -> Form:  # type: ignore[override]
        """The form of the question's columns."""
        return LABELS if self.labels else NUMBERS

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return an indicator for every record."""
        self._check(batch)
        return _spread(batch, 1.0, 0.0), None

    def _check(self, batch: TableBatch) -> None:
        """Raise for anything but zeros and ones, where these are asked for."""
        if self.indicator:
            require_indicator(batch.values)


@dataclass(frozen=True)
class LacksValue(TakesPart):
    """1 for a record that satisfies the condition and lacks a value, 0 for others."""

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return an indicator for every record."""
        self._check(batch)
        lacks = np.zeros(batch.owners.size) if batch.missing is None else batch.missing.astype(np.float64)
        return lacks, None


@dataclass(frozen=True)
class Otherwise(View):
    """The values of the records that take part, moved into bounds, and one value for all others.

    Attributes:
        value: The value of the others.
        low: The smallest value that counts.
        high: The largest one.
    """

    value: float
    low: float = -np.inf
    high: float = np.inf

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return a value for every record."""
        return _spread(batch, np.clip(batch.values, self.low, self.high), self.value), None


@dataclass(frozen=True)
class OtherLabel(View):
    """The labels of the records that take part, and one label for all others."""

    label: Label

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return a label for every record."""
        if batch.kept is None:
            return batch.values, None
        signed = batch.values.dtype.kind == "i" and isinstance(self.label, int)
        labels = np.full(batch.owners.size, self.label, dtype=np.int64 if signed else object)
        labels[batch.kept] = batch.values
        return labels, None


@dataclass(frozen=True)
class Binned(View):
    """The number of the bin of each record that takes part, and the number of bins for all others.

    Attributes:
        edges: The edges of the bins, ascending; values beyond them are in the outer bins.
    """

    form: ClassVar[Form | None] = NUMBERS
    edges: tuple[float, ...]

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return the number of a bin for every record."""
        bins = np.searchsorted(np.array(self.edges[1:-1]), batch.values, side="right")
        return _spread(batch, bins, len(self.edges) - 1), None


def _spread(batch: TableBatch, values: Any, otherwise: float) -> np.ndarray:
    """Return the values of the records that take part, and another one for all others."""
    if batch.kept is None:
        return np.broadcast_to(values, batch.owners.size)
    spread = np.full(batch.owners.size, otherwise, dtype=np.result_type(values, otherwise))
    spread[batch.kept] = values
    return spread


@dataclass(frozen=True)
class Grouped(View):
    """Two columns: the values, and the position of each record's group among public keys; others have -1.

    Attributes:
        keys: The names of the groups.
    """

    form: ClassVar[Form | None] = NUMBERS
    keys: tuple[Label, ...]

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return a row for every record that takes part."""
        assert batch.groups is not None  # the table of such a question has a column of groups
        return np.stack([batch.values, positions_of(self.keys, batch.groups)], axis=1), batch.kept


@dataclass(frozen=True)
class GroupNames(TakesPart):
    """The name of the group of each record that takes part."""

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return a name for every record that takes part."""
        assert batch.groups is not None  # the table of such a question has a column of groups
        self._check(batch)
        return batch.groups, batch.kept


@dataclass(frozen=True)
class GroupBins(Grouped):
    """The number of the pair of group and bin of each record; one number more for all others.

    Attributes:
        keys: The names of the groups.
        edges: The edges of the bins, ascending.
    """

    edges: tuple[float, ...]

    def records(self, batch: TableBatch) -> tuple[Any, np.ndarray | None]:
        """Return the number of a pair for every record."""
        assert batch.groups is not None
        group = positions_of(self.keys, batch.groups)
        bins = np.searchsorted(np.array(self.edges[1:-1]), batch.values, side="right")
        others = len(self.keys) * (len(self.edges) - 1)
        return _spread(batch, np.where(group < 0, others, group * (len(self.edges) - 1) + bins), others), None


def positions_of(keys: Sequence[Label], labels: np.ndarray) -> np.ndarray:
    """Return the position of each label among keys, compared as text; -1 for others."""
    place = {str(key): position for position, key in enumerate(keys)}
    if labels.dtype.kind in "iu":
        distinct, inverse = np.unique(labels, return_inverse=True)
        return np.array([place.get(str(label), -1) for label in distinct.tolist()], dtype=np.int64)[inverse]
    return np.fromiter(map(place.get, labels.tolist(), repeat(-1)), np.int64, labels.size)
