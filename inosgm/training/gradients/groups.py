"""Gradients of units: records that belong together have one gradient, which is never made from one per record.

For book-keeping, the records of a unit are more positions of one record: sums over them are taken where sums over
positions are, by Gram matrices or instantiated gradients, whichever takes fewer operations.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from inosgm.training.gradients.convolution import Windows, WindowsOfUnits
from inosgm.training.gradients.per_record import (
    Lookups,
    Outer,
    PerRecord,
    PulledBack,
    Rows,
    Single,
    TiedTable,
    norms_of,
)

FEW_PLACES = 1.25
"""Largest number of places per record, those for nobody included, for which units of all sizes are padded to one."""

FEW_SIZES = 4
"""Largest number of different sizes of units each of which is a class of its own."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The units of a batch: the gradient of a unit is a share times the sum of those of its records.

    Args:
        index: The place of the unit of each record, from 0, ascending and without gaps.
        shares: The share of each unit.
    """

    index: Tensor
    shares: Tensor

    @classmethod
    def of(cls, groups: np.ndarray, shares: np.ndarray, device: torch.device) -> "Groups":
        """Return the units of records on a device."""
        return cls(torch.as_tensor(groups, device=device), torch.as_tensor(shares, device=device))

    @property
    def count(self) -> int:
        """The number of units."""
        return int(self.shares.shape[0])

    @cached_property
    def sizes(self) -> list[int]:
        """The number of records of each unit."""
        return torch.bincount(self.index, minlength=self.count).tolist()

    @cached_property
    def members(self) -> int:
        """The largest number of records of a unit."""
        return max(self.sizes, default=0)

    @cached_property
    def _places(self) -> Tensor | None:
        """The place of each record where every unit has as many places; None if every unit has as many records."""
        if self.count * self.members == self.index.shape[0]:
            return None
        sizes = torch.tensor(self.sizes, device=self.index.device)
        begins = (sizes.cumsum(0) - sizes)[self.index]
        return self.index * self.members + torch.arange(self.index.shape[0], device=self.index.device) - begins

    @cached_property
    def _known(self) -> dict[frozenset[int], list[tuple[Tensor, Tensor, "Groups"]]]:
        """What `classes` has found, by the sizes that prefer Gram matrices: layers ask again and again."""
        return {}

    def classes(self, prefers_gram: Callable[[int], bool]) -> list[tuple[Tensor, Tensor, "Groups"]]:
        """Units of one form together, with their places, those of their records, and the units by themselves.

        The form of a unit is a function of its own size, so that nobody's norm depends on who else is there: gradients
        of a single record, Gram matrices, or rows. Units of a form are one class if that wastes few places. Otherwise
        sizes in a class differ by a factor of 2 at most. All units together are no classes, but an empty list.

        Args:
            prefers_gram: Whether a unit of some size has Gram matrices.
        """
        gram = frozenset(size for size in set(self.sizes) if size > 1 and prefers_gram(size))
        if gram not in self._known:
            sizes = np.array(self.sizes)
            kinds = np.zeros((2, sizes.size), dtype=np.int64)
            kinds[0] = np.where(sizes == 1, 0, np.where(np.isin(sizes, list(gram)), 1, 2))
            for form in np.unique(kinds[0]).tolist():
                units = kinds[0] == form
                kinds[1, units] = _kinds(sizes[units])
            self._known[gram] = self._cut(np.unique(kinds, axis=1, return_inverse=True)[1].reshape(-1))
        return self._known[gram]

    def _cut(self, kinds: np.ndarray) -> list[tuple[Tensor, Tensor, "Groups"]]:
        """Return the units of each kind, as `classes` does."""
        found = []
        of_unit = torch.as_tensor(kinds, device=self.index.device)
        for kind in range(int(kinds.max(initial=0)) + 1) if kinds.any() else ():
            units = (of_unit == kind).nonzero()[:, 0]
            records = (of_unit[self.index] == kind).nonzero()[:, 0]
            index = torch.searchsorted(units, self.index[records])
            found.append((units, records, Groups(index, self.shares[units])))
        return found

    def seeds(self, losses: Tensor) -> Tensor:
        """Return the factor of each record's loss, with which a backward pass begins."""
        return self.shares[self.index].to(losses.dtype)

    def padded(self, values: Tensor) -> Tensor:
        """Return values (n, T, ...) of records as those of units, (count, members * T, ...), with zeros for nobody."""
        shape = (self.count, self.members * values.shape[1], *values.shape[2:])
        return self.spread(values).reshape(shape)

    def spread(self, values: Tensor) -> Tensor:
        """Return values (n, ...) of records with a place for each member of each unit, (count * members, ...)."""
        if self._places is None:
            return values
        spread = values.new_zeros((self.count * self.members, *values.shape[1:]))
        return spread.index_copy_(0, self._places, values)

    def summed(self, values: Tensor) -> Tensor:
        """Return the sums (count, ...) over the records of each unit."""
        if self._places is None:
            return values.reshape(self.count, self.members, *values.shape[1:]).sum(1)
        return values.new_zeros((self.count, *values.shape[1:])).index_add_(0, self.index, values)


def _kinds(sizes: np.ndarray) -> np.ndarray:
    """Return the class of each unit by its size: one for all if padding them to one size wastes few places."""
    if sizes.size * sizes.max() <= FEW_PLACES * sizes.sum():
        return np.zeros_like(sizes)
    return sizes if np.unique(sizes).size <= FEW_SIZES else np.frexp(sizes - 1)[1]


def grouped(part: PerRecord, groups: Groups) -> PerRecord:
    """Return the gradients of a parameter for units, given those of records whose losses have the shares as factors."""
    if isinstance(part, Rows):  # which are summed without places
        return Rows(groups.summed(part.values))
    if isinstance(part, PulledBack):
        return replace(part, values=groups.summed(part.values)).cheapest()
    classes = groups.classes(part.prefers_gram)
    if not classes:
        return _of_one_form(part, groups)
    of_classes = [_of_one_form(part.take(records), some) for _, records, some in classes]
    # lookups of a row by the records of a unit may cancel, and are added up before those of others
    records = None if isinstance(part, Lookups) else (part, groups.index)
    return UnitClasses(of_classes, [units for units, _, _ in classes], records)


def _of_one_form(part: PerRecord, groups: Groups) -> PerRecord:
    """Return the gradients of units that have one form."""
    if groups.members == 1:
        return part.cheapest()
    part = part.spread() if isinstance(part, Single) else part
    whole = _padded(part, groups)
    return whole if part.prefers_gram(groups.members) else Rows(whole.rows())


def _padded(part: PerRecord, groups: Groups) -> PerRecord:
    """Return the gradients of units, all of which have the places of the largest one."""
    match part:
        case Outer():
            return Outer(groups.padded(part.inputs), groups.padded(part.output_grads))
        case Lookups():
            return Lookups(groups.padded(part.indices), groups.padded(part.output_grads), part.size)
        case TiedTable():
            lookups, product = _padded(part.lookups, groups), _padded(part.product, groups)
            assert isinstance(lookups, Lookups)
            assert isinstance(product, Outer)
            return TiedTable(lookups, product)
        case Windows():
            inputs, output_grads = groups.spread(part.inputs), groups.spread(part.output_grads)
            return WindowsOfUnits(replace(part, inputs=inputs, output_grads=output_grads), groups.members)
    return Rows(groups.summed(part.rows()))


@dataclass(frozen=True, eq=False)
class UnitClasses(PerRecord):
    """Gradients of units in classes by their sizes: units of very different sizes would waste places.

    Args:
        parts: The gradients of each class.
        places: The places of the units of each class among all units.
        records: The gradients of the records, and the unit of each: one product of matrices sums them faster than one
            for each class, where a class has no rows.
    """

    parts: list[PerRecord]
    places: list[Tensor]
    records: tuple[PerRecord, Tensor] | None = None

    def factors(self) -> tuple[Tensor, ...]:
        """Return the norms of all units."""
        norms = [norms_of([part.factors()]) for part in self.parts]
        return (self._in_order(norms)[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum over the classes."""
        total, rest = None, weights.clone()
        for part, units in zip(self.parts, self.places, strict=True):
            if self.records is None or isinstance(part, Rows):
                some = part.weighted_sum(weights[units])
                total = some if total is None else total + some
                rest[units] = 0
        if self.records is not None and len(self.parts) > sum(isinstance(part, Rows) for part in self.parts):
            records, index = self.records
            some = records.weighted_sum(rest[index])
            total = some if total is None else total + some
        assert total is not None
        return total

    def rows(self) -> Tensor:
        """Return the gradients of all units as one tensor."""
        return self._in_order([part.rows() for part in self.parts])

    def take(self, kept: Tensor) -> "UnitClasses":
        """Return the gradients of some units."""
        parts, places = [], []
        for part, units in zip(self.parts, self.places, strict=True):
            where = torch.isin(kept, units)
            parts.append(part.take(torch.searchsorted(units, kept[where])))
            places.append(where.nonzero()[:, 0])
        return UnitClasses(parts, places)

    def _in_order(self, values: list[Tensor]) -> Tensor:
        """Return values of the units of each class, in the order of the units."""
        return torch.cat(values)[torch.cat(self.places).argsort()]
