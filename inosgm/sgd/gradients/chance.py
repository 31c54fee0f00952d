"""Random numbers of a model: one set per record, one set for all records of a forward pass, or from no known seed.

A batch that is run in parts needs to know. Which records are in a part depends on who else was drawn: one more record
moves the boundaries of all parts. Random numbers that records of a part share would then be shared by other records,
and the sum changes by more than one sensitivity, although the record itself may contribute nothing. A mask that all
records of a logical batch share is harmless: it can be held fixed when a record is added. So are independent masks
of single records.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from inosgm._tree import tree_leaves
from inosgm.sgd.gradients.base import Engine, PerRecordLoss, apply
from inosgm.sgd.gradients.batches import rows
from inosgm.sgd.gradients.functional import Functional
from inosgm.sgd.gradients.one_by_one import OneByOne
from inosgm.sgd.gradients.places import prime_to
from inosgm.sgd.gradients.randomness import foreign_kept, foreign_state, random_state, same_state
from inosgm.sgd.gradients.trial import on_synthetic, perturbed, trial

REPEATS = 4
"""How often a pass is repeated with the same seed: a source without a seed may happen to repeat itself once."""

SEEDS = range(1, 5)
"""Further seeds. Masks of 0 or 1, one per record, are alike for five records and five seeds with probability 1e-6."""

TOLERANCE = 1e-3
"""Losses and norms that differ by less, relative to the largest, are equal: half precision and GPUs round."""

EXTREMES = (0.0, 1 - 2.0**-24)
"""The least and the greatest number that `torch.rand` gives in float32."""


class Chance(Enum):
    """Who shares the random numbers of a forward pass."""

    NONE = "no random numbers"
    PER_RECORD = "random numbers of its own for every record"
    SHARED = "random numbers that all records of a forward pass share"
    MIXED = "random numbers of which only some are drawn for every record"
    UNSEEDED = "random numbers that do not come from torch's seed"


SERVED = (Chance.NONE, Chance.PER_RECORD, Chance.SHARED)
"""With these a batch can be run in parts: shared numbers are drawn from one seed for all parts."""


def chance_of(
    kind: type[Engine],
    model: nn.Module,
    loss: PerRecordLoss,
    inputs: Any,
    targets: Any,
    *,
    autocast: torch.dtype | None = None,
) -> Chance:
    """Say who shares the random numbers when an engine runs a model in training mode.

    The model is tried on copies of one synthetic record (of the first record of the batch, if it does not take
    synthetic ones), with parameters moved away from 0, and left as it was.

    Args:
        kind: The engine. `OneByOne` gives every record a forward pass of its own, and `Functional` has torch draw for
            every record: what the model draws from torch, they make PER_RECORD.
        model: The model.
        loss: Gives one loss per record.
        inputs: A batch, or all inputs.
        targets: What the loss compares with.
        autocast: The precision of the forward pass.
    """
    if issubclass(kind, OneByOne):
        return Chance.PER_RECORD
    with trial(model, loss=loss), perturbed(model):
        engine = kind(model, loss, autocast=autocast)

        def said(inputs: Any, targets: Any) -> Tensor:
            gradients = engine.gradients(inputs, targets)
            return torch.stack([gradients.losses.double(), gradients.norms()])

        found = _tried(said, (inputs, targets), engine.device)
    return Chance.PER_RECORD if issubclass(kind, Functional) and found is Chance.MIXED else found


def chance_in_evaluation(model: nn.Module, loss: PerRecordLoss, inputs: Any, targets: Any) -> Chance:
    """Say who shares the random numbers of a model in evaluation mode; tried as `chance_of` does."""

    def said(inputs: Any, targets: Any) -> Tensor:
        return loss(apply(model, inputs), targets).double()[None]

    with trial(model, loss=loss), perturbed(model), torch.no_grad():
        model.eval()
        return _tried(said, (inputs, targets), next(model.parameters()).device)


def refuse_in_parts(chance: Chance) -> None:
    """Raise if a batch cannot be run in parts by the engine that was asked for.

    Raises:
        ValueError: saying why, and what to do.
    """
    if chance not in SERVED:
        raise ValueError(
            f"max_physical_batch must not be given with this engine, because the model draws {chance.value}: records "
            "of one part would share numbers that those of another do not have, and one more record moves the "
            "boundaries of all parts. Leave engine out, or take engine=OneByOne, which draws for every record; or "
            "leave max_physical_batch out"
        )


Said = Callable[[Any, Any], Tensor]
"""(inputs, targets) -> what is said about each record, a column of numbers."""


def _tried(said: Said, batch: Any, device: torch.device) -> Chance:
    """Classify the random numbers of a function of batches, and leave global generators as they were."""
    with foreign_kept():
        return on_synthetic(partial(_classified, said, device), batch, 1)


def _classified(said: Said, device: torch.device, record: Any) -> Chance:
    def passed(records: int, seed: int = 0, instead: float | None = None) -> _Pass:
        return _Pass.of(said, rows(record, [0] * records), device, seed, instead)

    lengths = passed(1).lengths
    few = prime_to(lengths)  # an axis that these numbers divide is one of records
    more = prime_to(lengths, few + 1)
    one, other = passed(few), passed(more)
    again = [passed(few) for _ in range(REPEATS)]
    # another thread may draw from a global generator in some pass; a model does so in every pass with the same seed
    if all(each.foreign for each in (one, *again)) or any(_differ(one.said, each.said) for each in again):
        return Chance.UNSEEDED
    singles = any(draw.single for draw in one.draws)
    if singles and not any(_differ(one.said, passed(few, instead=number).said) for number in EXTREMES):
        # a threshold that no number passes, such as layer dropout with probability 0
        one, other = one.without_singles(), other.without_singles()
        if not one.draws:
            return Chance.PER_RECORD  # any seed will do, but numbers are drawn
    if not one.draws:
        return Chance.MIXED if one.unseen else Chance.NONE
    others = [passed(few, seed=seed).said for seed in SEEDS]
    matters = any(_differ(one.said, each) for each in others)
    alike = not any(_differ(each, each[:, :1].expand_as(each)) for each in (one.said, *others))
    if all(draw.by_record for each in (one, other) for draw in each.draws):
        return Chance.MIXED if matters and alike else Chance.PER_RECORD
    # the very same numbers whatever the size of the batch, and the same effect on all its records
    same = len(one.draws) == len(other.draws) and all(map(_Draw.same, one.draws, other.draws))
    return Chance.SHARED if same and alike else Chance.MIXED


@dataclass(frozen=True, eq=False)
class _Draw:
    """What one operation has drawn, and whether an axis of it is one of records."""

    values: list[Tensor]
    by_record: bool
    single: bool

    def same(self, other: "_Draw") -> bool:
        """Say whether another pass has drawn the same numbers."""
        pairs = zip(self.values, other.values, strict=True)
        return all(one.shape == two.shape and torch.equal(one, two) for one, two in pairs)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pass:
    """What happened in one pass.

    Attributes:
        said: What was said about the records, one column each.
        draws: What was drawn from torch, in order.
        foreign: Whether numbers came from Python, numpy or a generator of the model's own.
        unseen: Whether torch's generators moved on although no operation was seen to draw.
        lengths: All lengths of axes.
    """

    said: Tensor
    draws: Sequence[_Draw]
    foreign: bool
    unseen: bool
    lengths: set[int]

    @classmethod
    def of(cls, said: Said, batch: Any, device: torch.device, seed: int, instead: float | None) -> "_Pass":
        """Make a pass from a seed; with `instead`, single uniform numbers are replaced by it."""
        watch = _Watch(int(tree_leaves(batch)[0].shape[0]), instead)
        foreign = foreign_state()
        torch.manual_seed(seed)
        before = random_state(device)
        with watch:
            found = said(*batch)
        return cls(
            said=found.detach(),
            draws=watch.draws,
            foreign=watch.own_generator or foreign != foreign_state(),
            unseen=not watch.draws and not same_state(before, random_state(device)),
            lengths=watch.lengths,
        )

    def without_singles(self) -> "_Pass":
        """Return the pass without single uniform numbers."""
        return replace(self, draws=[draw for draw in self.draws if not draw.single])


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what operations of torch draw, and the lengths of all axes."""

    def __init__(self, records: int, instead: float | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._records, self._instead = records, instead
        self.draws: list[_Draw] = []
        self.own_generator = False
        self.lengths: set[int] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = op(*args, **kwargs)
        tensors = list(_tensors(result))
        self.lengths.update(length for tensor in _tensors((args, kwargs, result)) for length in tensor.shape)
        if torch.Tag.nondeterministic_seeded in op.tags:
            self.own_generator |= any(isinstance(given, torch.Generator) for given in (*args, *kwargs.values()))
            by_record = any(length % self._records == 0 for tensor in tensors for length in tensor.shape if length)
            single = op is torch.ops.aten.rand.default and not by_record and result.numel() == 1
            if single and self._instead is not None:
                result.fill_(self._instead)
            self.draws.append(_Draw([tensor.clone() for tensor in tensors], by_record, single))
        return result


def _tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _differ(one: Tensor, other: Tensor) -> bool:
    """Say whether something else is said about a record, compared with the largest number of its kind."""
    scale = one.nan_to_num(0, 0, 0).abs().amax(1, keepdim=True) + 1e-9
    same = (one == other) | (one.isnan() & other.isnan()) | ((one - other).abs() <= TOLERANCE * scale)
    return not bool(same.all())
