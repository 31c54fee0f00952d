"""Gradients of units: records that belong together have one gradient, which is never made from one per record.

For book-keeping, the records of a unit are more positions of one record: sums over them are taken where sums over
positions are, by Gram matrices or instantiated gradients, whichever takes fewer operations.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from inosgm.training.gradients.convolution import Windows, WindowsOfUnits
from inosgm.training.gradients.per_record import Lookups, Outer, PerRecord, PulledBack, Rows, Single, TiedTable


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


def grouped(part: PerRecord, groups: Groups) -> PerRecord:
    """Return the gradients of a parameter for units, given those of records whose losses have the shares as factors."""
    if groups.members == 1:
        return part
    match part:
        case Rows():
            return Rows(groups.summed(part.values))
        case Single():
            return grouped(part.spread(), groups)
        case Outer():
            return Outer(groups.padded(part.inputs), groups.padded(part.output_grads))
        case Lookups():
            return Lookups(groups.padded(part.indices), groups.padded(part.output_grads), part.size)
        case PulledBack():
            return replace(part, values=groups.summed(part.values))
        case TiedTable():
            lookups, product = grouped(part.lookups, groups), grouped(part.product, groups)
            assert isinstance(lookups, Lookups)
            assert isinstance(product, Outer)
            return TiedTable(lookups, product)
        case Windows():
            inputs, output_grads = groups.spread(part.inputs), groups.spread(part.output_grads)
            return WindowsOfUnits(replace(part, inputs=inputs, output_grads=output_grads), groups.members)
    return Rows(groups.summed(part.rows()))
