"""Counts of records in bins with public edges, or in groups with public names."""

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.mechanism.contributions import Cells
from inosgm.owners import Label, Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import numbers, require_numbers
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.files.in_memory import column_of, is_whole
from inosgm.statistics.means import owner_means, owner_values
from inosgm.statistics.queries import single
from inosgm.statistics.statistic import Statistic


class _Counts(Statistic):
    """Counts of records in cells, of which each record is in one.

    The shares of all cells add up to 1. The released shares are projected onto that, which removes noise.
    """

    stratified: bool
    _size: int

    def _counted(self, what: str, **details: Any) -> Estimate:
        """Return the count of every cell, with the shares in the details."""
        (sums,) = self.observed
        rows = np.reshape(sums, (-1, self._size))
        sizes = self.plan.sizes
        if self.stratified:
            shares, errors = owner_means(self, rows)
            own, own_errors = sizes[:, None] * _whole(shares, sizes), sizes[:, None] * _known(errors)
            counts, spreads = own.sum(axis=0), np.linalg.norm(own_errors, axis=0)
            by_owner, bias = owner_values(self.plan, own, own_errors), 0.0
        else:
            records, by_owner = sizes.sum(), None
            counts = records * _whole(rows / self.total, records)[0]
            spreads = records * _known(np.full(self._size, self.noise / self.total))
            # Missing records are taken to be in all cells alike: all of them may be in one cell, or none.
            bias = min(self.missing, float(records)) * (1 - 1 / self._size)
        return self.estimated(
            counts,
            spreads,
            what,
            bias_bound=np.full(self._size, bias),
            by_owner=by_owner,
            shares=counts / sizes.sum(),
            **details,
        )


def _whole(shares: np.ndarray, sizes: Any) -> np.ndarray:
    """Return shares projected to add up to 1 in every row of an owner with records."""
    missing = np.where(np.asarray(sizes) > 0, 1 - shares.sum(axis=-1), 0.0)
    return np.asarray(shares + missing[..., None] / shares.shape[-1])


def _known(errors: np.ndarray) -> np.ndarray:
    """Return the standard errors of projected shares from those of independent ones."""
    return np.asarray(errors * np.sqrt(1 - 1 / errors.shape[-1]))


class Histogram(_Counts):
    """The number of records with a value in each of several bins with public edges.

    **What it estimates.** The number of records in each bin, over all records, each counting once. Where the records of
    owners with very small budgets count in part, as for `Mean`, what is missing is taken to be in all bins alike.
    Stratified: a histogram for each owner, and all of them together. With `assume_alike=True`: the number of records
    times shares in which a record weighs as much as its owner's sensitivity. Bins are closed on the left, the last
    one on both sides. Counts are neither rounded nor moved above 0, which keeps them unbiased; they add up to the
    number of records, which is public.

    **Bias.** That of the weights, at most `bias_bound`. Values beyond the outer edges count in the outer bins.

    **Guarantee.** That of `Statistic`, in one round: a record is in one bin, so all bins together cost as much as one.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        edges: The edges of the bins, ascending; one more than there are bins.
        stratified: Estimate a histogram for each owner.
        options: As for `Statistic`.

    Raises:
        ValueError: for fewer than two edges, and edges that do not ascend.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> estimate = Histogram(plan, [0, 0, 0, 0], edges=[0, 5, 10, 20], key=1).run([1.0, 2.0, 5.0, 99.0])
    >>> estimate.value.round(1), estimate.details["shares"].round(2)
    (array([2., 1., 1.]), array([0.5 , 0.25, 0.25]))
    """

    name = "histogram"
    key_name = "inosgm.statistics.histograms.Histogram"

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        edges: Sequence[float],
        stratified: bool = False,
        **options: Any,
    ) -> None:
        self.edges, self.stratified = _validate.vector("edges", edges), stratified
        if self.edges.size < 2 or not (self.edges[1:] > self.edges[:-1]).all():
            raise ValueError(
                f"edges must be two or more numbers that ascend, got {_validate.some(self.edges.tolist())}"
            )
        self._size = self.edges.size - 1
        super().__init__(plan, owners, bins=self._size, by_owner=stratified, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but finite numbers."""
        require_numbers(batch)

    def contributions(self, batch: Any) -> Cells:
        """Return 1 in the bin of each record."""
        values = numbers(batch)
        return Cells(np.ones(values.size), np.searchsorted(self.edges[1:-1], values, side="right"), self._size)

    def estimate(self) -> Estimate:
        """Return the counts."""
        return self._counted("number of records in every bin", edges=self.edges)


class GroupCounts(_Counts):
    """The number of records in each of several groups with public names.

    **What it estimates.** As for `Histogram`: counts over all records, which add up to their number and are neither
    rounded nor moved above 0. Names have to be known before: which names occur in the data is private.
    All others are counted together, in a cell of their own at the end.

    **Bias.** That of the weights, at most `bias_bound`.

    **Guarantee.** That of `Statistic`, in one round: a record is in one group, so all groups together cost as much as
    one.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        categories: The names, all text or all whole numbers.
        other: The name of the cell of all other names. None if there are no others: a record with another name is then
            an error, which reveals that there is one.
        stratified: Estimate the counts for each owner.
        options: As for `Statistic`.

    Raises:
        ValueError: for names that are given twice.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> counts = GroupCounts(plan, [0, 0, 0, 0], categories=["rent", "own"], key=1)
    >>> estimate = counts.run(["own", "free", "rent", "own"])
    >>> dict(zip(estimate.details["categories"].tolist(), estimate.value.round(1).tolist()))
    {'rent': 1.0, 'own': 2.0, 'other': 1.0}
    """

    name = "group-counts"
    key_name = "inosgm.statistics.histograms.GroupCounts"

    of_labels = True
    """Its records are labels, not numbers."""

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        categories: Sequence[Label],
        other: str | None = "other",
        stratified: bool = False,
        **options: Any,
    ) -> None:
        self.categories, self.other, self.stratified = _names(categories), other, stratified
        names = [str(name) for name in self.categories]
        if other is not None and (not isinstance(other, str) or other in names):
            raise ValueError(f"other must be text, and no name of a category, got {other!r}")
        self._names = [*names, *([] if other is None else [other])]
        self._cell_of = {name: cell for cell, name in enumerate(self.categories)}
        self._size = len(self._names)
        super().__init__(plan, owners, bins=self._size, by_owner=stratified, **options)

    def check(self, batch: Any) -> None:
        """Raise for labels that are missing, of another kind, or no category while there is no cell for others."""
        if self.other is not None:
            _require_labels(column_of(batch), text=isinstance(self.categories[0], str))
            return
        unknown = self._cells_of(batch) == len(self.categories)
        if unknown.any():
            raise ValueError(
                f"values must be categories ({_validate.some(self.categories)}), got another one at position "
                f"{int(np.argmax(unknown))}: name all categories, or count the others together"
            )

    def contributions(self, batch: Any) -> Cells:
        """Return 1 in the cell of each record."""
        cells = self._cells_of(batch)
        known = cells < self._size
        return Cells(known.astype(np.float64), np.where(known, cells, 0), self._size)

    def estimate(self) -> Estimate:
        """Return the counts."""
        return self._counted("number of records in every group", categories=np.array(self._names))

    def _cells_of(self, batch: Any) -> np.ndarray:
        """Return the position of each record's category; of others, the number of categories."""
        column = column_of(batch)
        _require_labels(column, text=isinstance(self.categories[0], str))
        if column.dtype.kind in "iu":
            return _cells_of_integers(column, self._cell_of)
        return np.fromiter(map(self._cell_of.get, column.tolist(), repeat(len(self._cell_of))), np.int64, column.size)


def _cells_of_integers(column: np.ndarray, cell_of: Mapping[Label, int]) -> np.ndarray:
    """Return the cell of each whole number, or the number of cells; the comparison is in the type of the column."""
    limits = np.iinfo(column.dtype)
    known = sorted(int(name) for name in cell_of if limits.min <= int(name) <= limits.max)
    if not known:
        return np.full(column.size, len(cell_of), dtype=np.int64)
    ordered = np.array(known, dtype=column.dtype)
    nearest = np.minimum(np.searchsorted(ordered, column), ordered.size - 1)
    return np.where(ordered[nearest] == column, np.array([cell_of[name] for name in known])[nearest], len(cell_of))


def _names(categories: Any) -> tuple[Label, ...]:
    """Return names that differ.

    Raises:
        TypeError: for anything but text, or whole numbers.
        ValueError: for none, or one twice.
    """
    if isinstance(categories, str) or not len(categories):
        raise ValueError(f"categories must be a list of names, got {categories!r}")
    names = [int(name) if is_whole(type(name)) else name for name in categories]
    kinds = {str if isinstance(name, str) else int if is_whole(type(name)) else None for name in names}
    if None in kinds or len(kinds) > 1:
        raise TypeError(f"categories must be all text or all whole numbers, got {_validate.some(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"categories must differ, got {_validate.some(names)}")
    return tuple(names)


def _require_labels(column: np.ndarray, *, text: bool) -> None:
    """Raise unless a column holds labels that are all text, or all whole numbers.

    Raises:
        TypeError: for a column of another kind.
        ValueError: for missing labels, single ones of another kind, and anything but one label per record.
    """
    if column.ndim != 1:
        raise ValueError(f"values must be one label per record, got shape {column.shape}")
    if not column.size or column.dtype.kind in ("UT" if text else "iu"):
        return
    if column.dtype != object:
        what, got = "text" if text else "whole numbers", _validate.kind_of(column.dtype)
        raise TypeError(f"values must be {what}, as the categories are, got {got}")
    wanted = {kind: issubclass(kind, str) if text else is_whole(kind) for kind in set(map(type, column))}
    if not all(wanted.values()):
        bad = next(position for position, label in enumerate(column) if not wanted[type(label)])
        raise ValueError(
            "values must be labels of the kind of the categories, got a missing or another one at position "
            f"{bad}: fill it in, or leave such records out"
        )


def private_histogram(
    values: Any, owners: Owners, *, edges: Sequence[float], stratified: bool = False, **options: Any
) -> Estimate:
    """Return the number of records with a value in each bin between public edges; see `Histogram`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_histogram(list(range(1000)), owners, edges=[0, 100, 500, 1000], key=1)
    >>> bool((abs(estimate.value - [100, 400, 500]) < 4 * estimate.standard_error).all())
    True
    """
    return answer_query(single(Histogram), values, owners, edges=edges, stratified=stratified, **options)


def private_group_counts(
    values: Any,
    owners: Owners,
    *,
    categories: Sequence[Label],
    other: str | None = "other",
    stratified: bool = False,
    **options: Any,
) -> Estimate:
    """Return the number of records in each group with a public name, and in all others; see `GroupCounts`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> values = ["rent", "rent", "own", "own", "free"] * 200
    >>> estimate = private_group_counts(values, owners, categories=["rent", "own"], key=1)
    >>> bool((abs(estimate.value - [400, 400, 200]) < 4 * estimate.standard_error).all())
    True
    """
    return answer_query(
        single(GroupCounts), values, owners, categories=categories, other=other, stratified=stratified, **options
    )
