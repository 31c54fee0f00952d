"""A data set: training records, held-out records, and the names of their classes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from inosgm._internal.overlap import share_records

EVERY = 5
"""Without a published split, every fifth record of a class is held out."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """Training records, held-out records, and the names of their classes.

    Images are float32 in [0, 1] with the axes record, channel, row, column; tables are float32; texts are int64 codes,
    padded with 0. Nothing is scaled by statistics of the data, which would be an unpaid release: only by constants.

    Args:
        name: What it is called.
        x: One record per row.
        y: The class of each record, a position in `classes`.
        x_test: Held-out records.
        y_test: Their classes.
        classes: The names of the classes.
        categories: The category of each class, for data that groups its classes; otherwise empty.

    Raises:
        ValueError: if records and classes do not pair up, or held-out records are training records: what is computed
            on held-out ones is public.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part, records, labels in (("", self.x, self.y), ("_test", self.x_test, self.y_test)):
            if labels.shape != records.shape[:1]:
                raise ValueError(f"y{part} must be one class per record: got {labels.shape} for {records.shape}")
            if labels.size and not 0 <= labels.min() <= labels.max() < len(self.classes):
                raise ValueError(f"y{part} must lie in [0, {len(self.classes)}), one of the classes of {self.name}")
            object.__setattr__(self, f"y{part}", labels.astype(np.int64, copy=False))
        if self.categories and len(self.categories) != len(self.classes):
            raise ValueError(f"categories must be one per class: got {len(self.categories)} for {len(self.classes)}")
        if share_records((self.x, self.y), (self.x_test, self.y_test)):
            raise ValueError(
                f"x_test and y_test of {self.name} must hold no training records, and share memory with x and y: what "
                "is computed on held-out records is public. Hold some out, such as x[800:] beside x[:800]"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return tuple(self.x.shape[1:])

    def only(self, classes: Sequence[str]) -> Self:
        """Return the records of some classes, which are numbered in the order given.

        Raises:
            ValueError: for a class that the data does not have.
        """
        unknown = [name for name in classes if name not in self.classes]
        if unknown:
            raise ValueError(f"classes must be among those of {self.name}, got {unknown[0]!r}: {self.classes}")
        old = [self.classes.index(name) for name in classes]
        number = np.full(len(self.classes), -1)
        number[old] = np.arange(len(old))
        train, test = number[self.y] >= 0, number[self.y_test] >= 0
        return replace(
            self,
            x=self.x[train],
            y=number[self.y[train]],
            x_test=self.x_test[test],
            y_test=number[self.y_test[test]],
            classes=tuple(classes),
            categories=tuple(self.categories[i] for i in old) if self.categories else (),
        )

    def __repr__(self) -> str:
        counts = f"{len(self.y)} + {len(self.y_test)} records of shape {self.input_shape}"
        return f"<Dataset {self.name}: {counts}, {len(self.classes)} classes>"


def held_out(x: np.ndarray, y: np.ndarray, *, name: str, classes: Sequence[str]) -> Dataset:
    """Make a data set of records without a published split: every fifth record of each class is held out.

    >>> data = held_out(np.arange(12.0)[:, None], np.repeat([0, 1], 6), name="twelve", classes=["a", "b"])
    >>> data.x_test.ravel(), data.y_test
    (array([ 4., 10.]), array([0, 1]))
    """
    test = np.zeros(len(y), dtype=bool)
    for label in range(len(classes)):
        test[np.flatnonzero(y == label)[EVERY - 1 :: EVERY]] = True
    return Dataset(name=name, x=x[~test], y=y[~test], x_test=x[test], y_test=y[test], classes=tuple(classes))
