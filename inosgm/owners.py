"""Owners: who holds which record, and which (epsilon, delta) each owner grants."""

import csv
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, Self, TextIO

import array_api_compat
import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.labels import RECORD
from inosgm._internal.labels import Label as Label


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Owners:
    """Who holds which record, and which (epsilon, delta) each owner grants for one of its units of privacy.

    The unit of privacy is ONE RECORD of an owner, added or removed: an owner with many records grants its
    budget for each of them, not for all of them together. With `unit_of_record` it is ONE UNIT, such as a patient,
    added or removed WITH ALL ITS RECORDS: the budget is granted for each unit. Give every record of an owner the same
    unit to protect the owner as a whole.

    Labels, the number of units of each owner and the budgets are PUBLIC: plans, ledgers and reports show them, so a
    label must not itself be a secret. The ids of units, and how many records a unit has, are shown nowhere: unit ids
    only say which records belong together, and in which order units are numbered.

    Args:
        of_record: The label of the owner of each record, all strings or all whole numbers: a list, a numpy
            array, a pandas or pyarrow column, a torch tensor.
        epsilon: What each owner grants: a mapping from label (a pandas Series is one, by its index), an
            array in the order of the SORTED labels, or one number for everybody.
        delta: In the same forms.
        unit_of_record: The id of the unit of each record, in the forms of `of_record`. A unit has one owner. If not
            given, every record is a unit.
        unit_name: What a unit is called in plans, ledgers and reports, in the singular: "patient", say.

    Attributes:
        labels: The distinct labels, sorted; `epsilon[i]`, `delta[i]` and `sizes[i]` belong to `labels[i]`.
        sizes: Number of units of each owner: of its records if every record is a unit.
        unit_name: The name of the unit; "record" if every record is a unit.
        of_record: Position in `labels` of the owner of each record; an error where owners were read from a file, or
            given by numbers of records, and nobody has stated that the data are in that order (`rows_in_order`).

    Raises:
        ValueError: naming the owner or position and what to change.
        TypeError: for labels or budgets of the wrong kind.

    >>> owners = Owners(of_record=["b", "a", "b"], epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> owners.labels, owners.sizes.tolist(), owners.epsilon.tolist(), owners.of_record.tolist()
    (('a', 'b'), [1, 2], [1.0, 5.0], [1, 0, 1])
    >>> visits = Owners(of_record=["b", "a", "b"], epsilon=1.0, delta=1e-5, unit_of_record=[7, 3, 7])
    >>> visits.sizes.tolist(), visits.unit_of_record.tolist(), visits.owner_of_unit.tolist()
    ([1, 1], [1, 0, 1], [0, 1])
    """

    labels: tuple[Label, ...]
    sizes: np.ndarray
    epsilon: np.ndarray
    delta: np.ndarray
    unit_name: str
    _units: tuple[np.ndarray, np.ndarray] | None
    """The position of the unit of each record, and of the owner of each unit; None if every record is a unit."""
    _turns: np.ndarray
    """The order of owners in the data, if only sizes were given."""
    _unstated: np.ndarray
    """The order of owners in a file, used if the caller states that the data are in this order."""

    def __init__(
        self,
        *,
        of_record: Any,
        epsilon: Any,
        delta: Any,
        unit_of_record: Any = None,
        unit_name: str | None = None,
    ) -> None:
        labels, index = _index_labels("of_record", of_record)
        if not labels:
            raise ValueError("of_record must hold the owner of at least one record, got none")
        name = _unit_name(unit_name, unit_of_record is not None)
        units = None if unit_of_record is None else _units("unit_of_record", unit_of_record, index, labels)
        self._grant_records(labels, index, epsilon, delta, units, name)

    def _grant_records(
        self,
        labels: tuple[Label, ...],
        index: np.ndarray,
        epsilon: Any,
        delta: Any,
        units: tuple[np.ndarray, np.ndarray] | None,
        name: str,
    ) -> None:
        """Set everything, given the owner of each record and maybe its unit."""
        holders = index if units is None else units[1]
        sizes = np.bincount(holders, minlength=len(labels))
        self._grant(labels, sizes, epsilon, delta, of_record=index, _units=units, unit_name=name)

    def _grant(self, labels: tuple[Label, ...], sizes: np.ndarray, epsilon: Any, delta: Any, **of_records: Any) -> None:
        """Set the sizes and the budgets of all owners."""
        values = {
            "unit_name": RECORD,
            "_units": None,
            "labels": labels,
            "sizes": sizes,
            "epsilon": _per_owner("epsilon", epsilon, labels),
            "delta": _per_owner("delta", delta, labels),
            **of_records,
        }
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    @classmethod
    def of_units(cls, owner_of_unit: Any, *, epsilon: Any, delta: Any, unit_name: str = RECORD) -> Self:
        """Return owners of units that have one record each, for what only counts units.

        Args:
            owner_of_unit: The label of the owner of each unit.
            epsilon: As for the class, like delta.
            delta: What each owner grants.
            unit_name: The name of the units; "record" makes plain owners.

        >>> Owners.of_units(["a", "b", "b"], epsilon=1.0, delta=1e-5, unit_name="patient")
        <Owners: 2 owners, 3 patients, 1 budgets, epsilon 1 to 1>
        """
        if unit_name == RECORD:
            return cls(of_record=owner_of_unit, epsilon=epsilon, delta=delta)
        ids = np.arange(len(owner_of_unit))
        return cls(of_record=owner_of_unit, epsilon=epsilon, delta=delta, unit_of_record=ids, unit_name=unit_name)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        owner: str = "owner",
        epsilon: str | float | Mapping[Any, float] = "epsilon",
        delta: str | float | Mapping[Any, float] = "delta",
        records: str | None = "records",
        unit: str | None = None,
        rows_in_order: bool = False,
    ) -> Self:
        """Read owners from a table: a pandas or pyarrow table, or a mapping from names to columns.

        A row is a record, in the order of the data. If the table has the column `records`, a row is an owner
        instead, with that many records. Such numbers do not say whose a row of the data is: either a column of the
        data names owners, or `rows_in_order` states that the records of the first owner come first, then those of the
        second, and so on. Without either, plans and ledgers can be made, and nothing that looks at records.

        Args:
            table: The table.
            owner: The column that holds the labels.
            epsilon: The column that holds the budgets; a number or a mapping from label says them directly.
            delta: In the same forms.
            records: The column that counts the records of an owner; None says that every row is a record.
            unit: The column that holds the id of the unit of a record, and names the unit; every record is a unit if
                not given. A row is a record then.
            rows_in_order: States that the data are sorted like the table, where the table counts records.

        Raises:
            ValueError: for a column that is missing, an owner whose rows disagree, an impossible number.

        >>> table = {"owner": ["x", "y"], "epsilon": [1, 2], "records": [3, 1]}
        >>> Owners.from_table(table, delta=1e-5).sizes.tolist()
        [3, 1]
        """
        names = _column_names(table)
        counted, budgeted = records is not None and records in names, ("epsilon", "delta")
        if counted and unit is not None:
            raise ValueError(
                f"unit must be left out for a table with a column {records!r}: its rows are owners, and say nothing "
                "about units (records=None if a row is a record)"
            )
        for argument, column in (("owner", owner), ("epsilon", epsilon), ("delta", delta), ("unit", unit)):
            if isinstance(column, str) and column not in names:
                remedy = f"rename the one that holds it, or pass its name as {argument}="
                remedy += ", or the number itself" * (argument in budgeted) + " (--delta)" * (argument == "delta")
                shown = ", ".join(map(repr, names[:10])) or "no columns"
                raise ValueError(f"the table has no column {column!r} for {argument}, only {shown}: {remedy}")
        labels, index = _index_labels(f"column {owner!r}", table[owner])
        if not labels:
            raise ValueError("the table must have at least one row, got none")
        if counted and len(labels) < index.size:
            twice = labels[int(np.argmax(np.bincount(index)))]
            raise ValueError(
                f"a table with a column {records!r} must have one row per owner, got several of {twice!r}: "
                "add up their records, or leave that column out (records=None) if a row is a record"
            )
        budgets = {
            argument: _agreed(column, _numbers(f"column {column!r}", table[column]), labels, index)
            if isinstance(column, str)
            else column
            for argument, column in (("epsilon", epsilon), ("delta", delta))
        }
        owners = cls.__new__(cls)
        if counted:
            counts = _counts(str(records), table[records], index.size)
            order = "_turns" if rows_in_order or len(labels) == 1 else "_unstated"  # all rows are of the only owner
            owners._grant(labels, counts[np.argsort(index)], **budgets, **{order: index})
        else:
            units = None if unit is None else _units(f"column {unit!r}", table[unit], index, labels)
            name = _unit_name(unit, unit is not None)
            owners._grant_records(labels, index, budgets["epsilon"], budgets["delta"], units, name)
        return owners

    @classmethod
    def from_csv(
        cls,
        path: str | PathLike[str] | TextIO,
        *,
        owner: str = "owner",
        epsilon: str | float | Mapping[Any, float] = "epsilon",
        delta: str | float | Mapping[Any, float] = "delta",
        records: str | None = "records",
        unit: str | None = None,
        rows_in_order: bool = False,
    ) -> Self:
        """Read owners from a CSV file whose first line names the columns, in UTF-8, separated by commas.

        The file is named by its path, or open already.

        Rows and arguments mean what they mean in `from_table`: by default the file has the columns `owner`,
        `epsilon` and `delta` and a row per record, or also `records` and a row per owner. Labels become whole
        numbers where every one of them is written like one (7, not 07), and stay text otherwise.

        The file lies beside the data and may be sorted in another way, so `rows_in_order` must state that it is not,
        also where it has a row per record, unless a column of the data names owners.

        Raises:
            ValueError: naming the file and what is wrong in it.
            OSError: for a file that cannot be read.
        """
        wanted = {column for column in (owner, epsilon, delta, records, unit) if isinstance(column, str)}
        labelled = (owner, unit)
        try:
            columns = _read_csv(path, wanted)
            columns = {name: values if name in labelled else _parse(name, values) for name, values in columns.items()}
            if owner in columns:
                columns[owner] = _whole_numbers(columns[owner])
            how: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "records": records, "unit": unit}
            owners = cls.from_table(columns, owner=owner, **how, rows_in_order=rows_in_order)
            return owners if rows_in_order else owners._without_order()
        except (ValueError, TypeError) as error:
            name = path if isinstance(path, str | PathLike) else path.name
            why = "it must be text in UTF-8" if isinstance(error, UnicodeDecodeError) else _by_row(str(error))
            raise ValueError(f"{name} does not describe owners: {why}") from None

    def _without_order(self) -> Self:
        """Return the same owners without the order of the data."""
        if "of_record" not in self.__dict__ or len(self.labels) == 1:
            return self
        other = copy(self)
        object.__setattr__(other, "_unstated", other.__dict__.pop("of_record"))
        return other

    def _order(self) -> np.ndarray:
        """Return whose records come first, second and so on, where only sizes were given.

        Raises:
            ValueError: if it is not stated that the data are in this order.
        """
        if "_unstated" not in self.__dict__:
            return self._turns
        labels = [repr(self.labels[place]) for place in self._unstated[:2].tolist()]
        words = ("the first row belongs to ", ", the second to ")
        if self._unstated.size < self.n_records:
            words = (f"the first {self.sizes[self._unstated[0]]} rows belong to ", ", those after them to ")
        meaning = "".join(word + label for word, label in zip(words, labels, strict=True))
        raise ValueError(
            "owners do not say whose each row of the data is: name the column that does (owner=, --owner-column), "
            "or state that rows are in the order of the owners (rows_in_order=True, --rows-in-order): "
            f"{meaning}, and so on"
        )

    @cached_property
    def of_record(self) -> np.ndarray:
        """Position in `labels` of the owner of each record; made when first asked for, where only sizes were given."""
        turns = self._order()
        of_record = np.repeat(turns, self.sizes[turns])
        of_record.setflags(write=False)
        return of_record

    def of_range(self, start: int, stop: int) -> np.ndarray:
        """Return `of_record[start:stop]`, without all the others where only sizes were given."""
        if "of_record" in self.__dict__:
            return self.of_record[start:stop]
        return self._order()[np.searchsorted(self._ends, np.arange(start, stop), side="right")]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The position of every label in `labels`; whole numbers as text, as files write them."""
        return {str(label): position for position, label in enumerate(self.labels)}

    @cached_property
    def _ends(self) -> np.ndarray:
        """The number of records up to and with each owner, where only sizes were given."""
        return np.cumsum(self.sizes[self._order()])

    @property
    def n_records(self) -> int:
        """The number of records; private if units have several, since it changes with a unit."""
        return self.n_units if self._units is None else self._units[0].size

    @property
    def n_units(self) -> int:
        """The number of units of privacy."""
        return int(self.sizes.sum())

    @property
    def has_units(self) -> bool:
        """Whether `unit_of_record` was given: a unit may have several records."""
        return self._units is not None

    @property
    def unit_of_record(self) -> np.ndarray:
        """Position of the unit of each record, in the order of the sorted unit ids; its own if every record is a unit.

        An error where `of_record` is one.
        """
        if self._units is None:
            return np.arange(self.n_records)
        return self._units[0][: self.of_record.size]

    @property
    def owner_of_unit(self) -> np.ndarray:
        """Position in `labels` of the owner of each unit."""
        return self.of_record if self._units is None else self._units[1]

    @property
    def budgets(self) -> np.ndarray:
        """The distinct (epsilon, delta) pairs, one per row, sorted: what follows costs per budget."""
        return self._grouped[0]

    @property
    def budget_of_owner(self) -> np.ndarray:
        """The row of `budgets` of each owner."""
        return self._grouped[1]

    @cached_property
    def _grouped(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.lexsort((self.delta, self.epsilon))
        pairs = np.stack([self.epsilon, self.delta], axis=1)[order]
        starts = np.concatenate([[True], np.any(pairs[1:] != pairs[:-1], axis=1)])
        group = np.empty(order.size, dtype=np.int64)
        group[order] = np.cumsum(starts) - 1
        budgets = pairs[starts]
        budgets.setflags(write=False)
        group.setflags(write=False)
        return budgets, group

    @cached_property
    def units_are_records(self) -> bool:
        """Whether every record is a unit of its own, in the order of the units, with or without a name for units."""
        return self._units is None or np.array_equal(self._units[0], np.arange(self._units[0].size))

    def require_records(self, what: str) -> None:
        """Raise for owners with units of several records, which something cannot protect.

        Raises:
            ValueError: saying what to do.
        """
        if not self.units_are_records:
            raise ValueError(
                f"{what} protects single records, and owners have units (one {self.unit_name} with all its records): "
                "make one record of each unit first, by inosgm.statistics.combine_rows for numbers, or leave "
                "unit_of_record out, and promise less (Plan.group_privacy)"
            )

    def granting(self, share: float) -> Self:
        """Return the same owners, who grant a share of their epsilon at the same delta.

        >>> Owners(of_record=["a"], epsilon=4.0, delta=1e-5).granting(0.25).epsilon
        array([1.])
        """
        other = copy(self)
        epsilon = self.epsilon * _validate.number("share", share, above=0, most=1)
        epsilon.setflags(write=False)
        object.__setattr__(other, "epsilon", epsilon)
        other.__dict__.pop("_grouped", None)
        return other

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Owners)
            and self.labels == other.labels
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ("epsilon", "delta", "sizes"))
            and ("_unstated" in self.__dict__) == ("_unstated" in other.__dict__)
            and ("_unstated" in self.__dict__ or np.array_equal(self.of_record, other.of_record))
            and (self.unit_name, self.has_units) == (other.unit_name, other.has_units)
            and (
                self._units is None
                or "_unstated" in self.__dict__
                or np.array_equal(self.unit_of_record, other.unit_of_record)
            )
        )

    def __hash__(self) -> int:
        return hash((self.epsilon.tobytes(), self.delta.tobytes(), self.n_units))

    def __repr__(self) -> str:
        counts = f"{len(self.labels)} owners, {self.n_units} {self.unit_name}s, {len(self.budgets)} budgets"
        return f"<Owners: {counts}, epsilon {self.epsilon.min():g} to {self.epsilon.max():g}>"


def _unit_name(name: str | None, given: bool) -> str:
    """Return the name of the unit; "unit" if units have none."""
    if not given:
        if name is not None:
            raise ValueError(f"unit_name must be left out without unit_of_record: every record is a unit, got {name!r}")
        return RECORD
    if name is None:
        return "unit"
    if not isinstance(name, str) or not name.isprintable() or not name.strip() or name == RECORD:
        raise ValueError(f"unit_name must be a word for one unit, such as 'patient' (not 'record'), got {name!r}")
    return name


def _units(name: str, values: Any, of_record: np.ndarray, labels: tuple[Label, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of the unit of each record, and of the owner of each unit, which must be one."""
    ids, index = _index_labels(name, values, secret=True)
    if index.size != of_record.size:
        raise ValueError(f"{name} must hold one unit per record: got {index.size} for {of_record.size} records")
    first = np.empty(len(ids), dtype=np.int64)
    first[index[::-1]] = np.arange(index.size)[::-1]
    owners = of_record[first]
    differs = of_record != owners[index]
    if differs.any():
        record = int(np.argmax(differs))
        before = int(first[index[record]])
        raise ValueError(
            f"{name} must give a unit one owner, but the records at position {before} and at position {record} are of "
            f"one unit, and belong to {labels[of_record[before]]!r} and {labels[of_record[record]]!r}: give them "
            "different units, or one owner"
        )
    owners.setflags(write=False)
    index.setflags(write=False)
    return index, owners


def labels_at(labels: Sequence[Label], places: np.ndarray) -> np.ndarray:
    """Return the label at each place: int64 if that holds all labels, objects otherwise.

    In float64, some whole numbers would be equal. An array of text has room for the longest label at every place, and
    leaves out zero bytes at the end of a label.
    """
    whole = all(not isinstance(label, str) and -(1 << 63) <= label < 1 << 63 for label in labels)
    distinct: np.ndarray = np.array(labels, dtype=np.int64 if whole else object)
    return np.asarray(distinct[places])


def _index_labels(name: str, values: Any, *, secret: bool = False) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return the sorted distinct labels and the position of each entry among them; no error shows a secret label."""
    if isinstance(values, str | bytes | Mapping | set | frozenset):
        raise TypeError(f"{name} must be one label per record, such as a list, got a {type(values).__name__}")
    if isinstance(values, np.ndarray) or not isinstance(values, Sequence):
        values = _as_numpy(name, values)
        if values.ndim != 1:
            raise ValueError(f"{name} must be one label per record, got shape {values.shape}")
        if values.dtype.kind in "iu":
            distinct, index = np.unique(values, return_inverse=True)
            return tuple(distinct.tolist()), index.astype(np.int64, copy=False)
        values = values.tolist()
    kinds = {kind: str if issubclass(kind, str) else _whole(kind) for kind in set(map(type, values))}
    if None in kinds.values() or len(set(kinds.values())) > 1:
        first = kinds[type(values[0])]
        wrong = [kind for kind, what in kinds.items() if what is None or what != first]
        where = next(i for i, value in enumerate(values) if type(value) in wrong)
        if secret:
            raise TypeError(
                f"{name} must be all strings or all whole numbers, got a {type(values[where]).__name__} at position "
                f"{where}: give every record a unit, and every unit one kind of id"
            )
        raise TypeError(
            f"{name} must be all strings or all whole numbers, got {values[where]!r} at position {where}"
            + (f" beside {values[0]!r}" if where else "")
            + ": give every record an owner, and every owner one kind of label"
        )
    distinct_labels = sorted({kinds[type(value)](value) for value in set(values)})  # type: ignore[misc]
    position = {label: i for i, label in enumerate(distinct_labels)}
    return tuple(distinct_labels), np.fromiter(map(position.__getitem__, values), np.int64, len(values))


def _whole(kind: type) -> type[int] | None:
    """Return int for the types of whole numbers; a bool is an answer, not a label."""
    return int if issubclass(kind, int | np.integer) and not issubclass(kind, bool) else None


def _as_numpy(name: str, values: Any) -> np.ndarray:
    """Return a column of any library as numpy, refusing missing values."""
    if array_api_compat.is_torch_array(values):
        return np.asarray(values.detach().cpu())
    missing = values.isna() if hasattr(values, "isna") else values.is_null() if hasattr(values, "null_count") else None
    if missing is not None and np.any(np.asarray(missing)):
        where = int(np.argmax(np.asarray(missing)))
        raise ValueError(f"{name} must have no missing values, got one at position {where}")
    return np.asarray(values)


def _per_owner(name: str, values: Any, labels: tuple[Label, ...]) -> np.ndarray:
    """Return one valid number per owner from any of the three forms."""
    if hasattr(values, "iloc") and hasattr(values, "index"):  # pandas: the index says whose number it is
        twice = values.index[values.index.duplicated()].tolist()
        if twice:
            raise ValueError(f"{name} must have one entry per owner, got several for {twice[0]!r}")
        values = dict(zip(values.index.tolist(), values.tolist(), strict=True))
    if isinstance(values, Mapping):
        unknown = sorted(set(values).difference(labels), key=repr)
        missing = sorted(set(labels).difference(values), key=repr)
        if missing:
            beside = f" (it has {unknown[0]!r}, which is not a label)" if unknown else ""
            raise ValueError(f"{name} must name every owner, got nothing for {_validate.some(missing)}{beside}: add it")
        if unknown:
            raise ValueError(
                f"{name} names {_validate.some(unknown)}, who holds no record: remove it, or correct the label"
            )
        values = [values[label] for label in labels]
    single = not isinstance(values, list | tuple) and np.ndim(values) == 0
    numbers = _numbers(name, [values] if single else values)
    if not single and numbers.size != len(labels):
        raise ValueError(f"{name} must be one number, or one per owner: got {numbers.size} for {len(labels)} owners")
    bad = ~(numbers > 0) | (numbers >= (1.0 if name == "delta" else np.inf))
    if bad.any():
        where = int(np.argmax(bad))
        rule = "lie in (0, 1)" if name == "delta" else "be finite and > 0"
        whose = "" if single else f" for owner {labels[where]!r}"
        remedy = "leave out the records of an owner who grants nothing" if name == "epsilon" else "1e-5 is common"
        raise ValueError(f"{name} must {rule}, got {numbers[where]}{whose}: {remedy}")
    return np.full(len(labels), numbers[0]) if single else numbers


def _numbers(name: str, values: Any) -> np.ndarray:
    """Return values as a new float64 vector; text, booleans and missing values are not numbers."""
    array = values if isinstance(values, list | tuple) else _as_numpy(name, values)
    try:
        array = np.asarray(array)
    except ValueError:
        raise TypeError(f"{name} must be a row of numbers, got {values!r}") from None
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.dtype.kind == "O" and all(isinstance(value, int | float | np.number) for value in array.tolist()):
        array = array.astype(np.float64)
    if array.dtype.kind not in "iuf" and array.size:
        raise TypeError(f"{name} must be numbers, got {array.tolist()[0]!r}, a {type(array.tolist()[0]).__name__}")
    return array.astype(np.float64)


def _agreed(name: str, values: np.ndarray, labels: tuple[Label, ...], index: np.ndarray) -> np.ndarray:
    """Return the one number that all rows of an owner state."""
    if values.size != index.size:
        raise ValueError(f"column {name!r} must have an entry per row, got {values.size} for {index.size}")
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"column {name!r} must be finite, got {values[row]} at position {row}")
    first = np.empty(len(labels), dtype=np.int64)
    first[index[::-1]] = np.arange(index.size)[::-1]
    stated = values[first]
    differs = values != stated[index]
    if differs.any():
        row = int(np.argmax(differs))
        owner = index[row]
        raise ValueError(
            f"owner {labels[owner]!r} has {name} {stated[owner]} at position {first[owner]} and "
            f"{values[row]} at position {row}: an owner grants one budget; give other budgets to other owners"
        )
    return stated


def _counts(name: str, values: Any, rows: int) -> np.ndarray:
    numbers = _numbers(f"column {name!r}", values)
    if numbers.size != rows:
        raise ValueError(f"column {name!r} must have an entry per row, got {numbers.size} for {rows}")
    bad = ~((numbers >= 1) & (numbers == np.floor(numbers)) & (numbers < 2**53))
    if bad.any():
        where = int(np.argmax(bad))
        raise ValueError(f"column {name!r} must be whole numbers >= 1, got {numbers[where]} at position {where}")
    return numbers.astype(np.int64)


def _column_names(table: Any) -> list[Any]:
    """Return the names of the columns of a pandas or pyarrow table, or of a mapping."""
    if isinstance(table, Mapping):
        return list(table)
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if names is None:
        raise TypeError(f"table must be a pandas or pyarrow table, or a mapping to columns, got {table!r}")
    return list(names)


def _read_csv(path: str | PathLike[str] | TextIO, wanted: set[str]) -> dict[str, Any]:
    """Return the wanted columns as lists of text."""
    with open(path, encoding="utf-8-sig", newline="") if isinstance(path, str | PathLike) else path as file:
        try:
            rows = csv.reader(file, strict=True)
            header = [name.strip() for name in next(rows, [])]
            if not header:
                raise ValueError("the file is empty: its first line must name the columns, as in owner,epsilon,delta")
            if len(set(header)) < len(header):
                raise ValueError(f"the first line must name every column once, got {header}")
            columns: dict[str, list[str]] = {name: [] for name in header}
            kept = [(columns[name].append, place) for place, name in enumerate(header) if name in wanted]
            for row in rows:
                if len(row) != len(header):
                    if not row:
                        continue  # an empty line
                    raise ValueError(f"line {rows.line_num} has {len(row)} fields, the first line has {len(header)}")
                for keep, place in kept:
                    keep(row[place].strip())
        except csv.Error as error:
            raise ValueError(f"line {rows.line_num}: {error}") from None
    if not any(columns.values()) and kept:
        raise ValueError("the file has no rows: write one per record, or one per owner with a column 'records'")
    return {**columns}


def _by_row(problem: str) -> str:
    """Return a problem with rows as people count them: the first is the one after the names of the columns."""
    return re.sub(r"at position (\d+)", lambda found: f"in row {int(found.group(1)) + 1}", problem)


def _parse(name: str, values: list[str]) -> list[float]:
    """Read numbers from text, naming the first that is none."""
    try:
        return list(map(float, values))
    except ValueError:
        for row, value in enumerate(values):
            try:
                float(value)
            except ValueError:
                raise ValueError(f"column {name!r} must be numbers, got {value!r} at position {row}") from None
        raise


def _whole_numbers(values: list[str]) -> list[str] | list[int]:
    """Return labels as whole numbers, of any size, if all are written as such; empty ones are refused."""
    if "" in values:
        raise ValueError(f"every row must name its owner, got an empty label at position {values.index('')}")
    try:
        whole = list(map(int, values))
    except ValueError:
        return values
    return whole if list(map(str, whole)) == values else values
