"""Classification of the random numbers of a model: drawn per record, shared by a forward pass, or without a seed.

A mask that all records of a logical batch share is harmless: it can be held fixed when a record is added. So are
independent masks of single records. A mask that some records of a batch share is not: one more record changes who
shares it, and the sum moves by more than one sensitivity, although the record itself may contribute nothing. A mask
that depends on a record's position in the batch, or is scaled by the masks of others, is harmful for the same reason.

In a batch that is run in micro-batches, one more record moves the boundaries of all of them. Numbers that all records
of a forward pass share must then come from one seed for all micro-batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from inosgm.training.gradients.base import Engine, PerRecordLoss, apply
from inosgm.training.gradients.batches import rows, size, tensors_in
from inosgm.training.gradients.functional import Functional
from inosgm.training.gradients.one_by_one import OneByOne
from inosgm.training.gradients.randomness import foreign_state, keep_foreign_state, random_state, same_state
from inosgm.training.gradients.record_order import prime_dividing_none
from inosgm.training.gradients.sandbox import perturbed, run_on_synthetic, sandbox

REPEATS = 4
"""Number of repetitions of a pass with the same seed: a source without a seed may repeat itself once by chance."""

SEEDS = range(1, 5)
"""Further seeds. Masks of 0 or 1, one per record, are equal for five records and five seeds with probability 1e-6."""

TOLERANCE = 1e-3
"""Relative difference up to which losses and norms are equal: batches of other sizes are rounded differently."""

REPEATED = 1e-5
"""The same for a repeated pass: 4,096 records that share a number then move the sum by 4 % of a sensitivity."""

EXTREMES = (0.0, 1 - 2.0**-24)
"""The smallest and the largest number that `torch.rand` gives in float32."""


class Chance(Enum):
    """The kinds of random numbers in a forward pass, by the records that share them."""

    NONE = "no random numbers"
    PER_RECORD = "random numbers of its own for every record"
    SHARED = "random numbers that all records of a forward pass share"
    BOTH = "random numbers of which only some are drawn for every record"
    ENTANGLED = "random numbers of which a record has others beside other records or at another position of a batch"
    UNSEEDED = "random numbers that do not come from torch's seed"


WHOLE = (Chance.NONE, Chance.PER_RECORD, Chance.SHARED, Chance.BOTH, Chance.UNSEEDED)
"""Kinds with which a batch can be run at once; the comparison of engines decides about numbers without a seed."""

IN_PARTS = (Chance.NONE, Chance.PER_RECORD, Chance.SHARED)
"""Kinds with which a batch can be run in micro-batches: shared numbers come from one seed for all of them."""


def chance_of(
    kind: type[Engine],
    model: nn.Module,
    loss: PerRecordLoss,
    inputs: Any,
    targets: Any,
    *,
    autocast: torch.dtype | None = None,
) -> Chance:
    """Return the kind of random numbers when an engine runs a model in training mode.

    The model runs on copies of one synthetic record, or of the first record of the batch if it rejects synthetic ones,
    with perturbed parameters if it accepts them, and is restored afterwards.

    Args:
        kind: The engine. `OneByOne` gives every record a forward pass of its own, and `Functional` has torch draw for
            every record: numbers from torch's seed are then PER_RECORD.
        model: The model.
        loss: Gives one loss per record.
        inputs: A batch, or all inputs.
        targets: What the loss compares with.
        autocast: The precision of the forward pass.
    """
    if issubclass(kind, OneByOne):
        return Chance.PER_RECORD
    with sandbox(model, loss=loss):
        engine = kind(model, loss, autocast=autocast)

        def results(inputs: Any, targets: Any) -> Tensor:
            gradients = engine.gradients(inputs, targets)
            return torch.stack([gradients.losses.double(), gradients.norms()])

        def losses(inputs: Any, targets: Any) -> Tensor:
            return engine.losses(inputs, targets).double()[None]

        mapped = issubclass(kind, Functional)
        return _classify_perturbed(model, results, (inputs, targets), engine.device, mapped=mapped, losses=losses)


def chance_in_evaluation(model: nn.Module, loss: PerRecordLoss, inputs: Any, targets: Any) -> Chance:
    """Return the kind of random numbers of a model in evaluation mode, determined as in `chance_of`."""

    def results(inputs: Any, targets: Any) -> Tensor:
        return loss(apply(model, inputs), targets).double()[None]

    with sandbox(model, loss=loss), torch.no_grad():
        model.eval()
        return _classify_perturbed(model, results, (inputs, targets), next(model.parameters()).device)


def refuse_chance(chance: Chance, *, in_parts: bool) -> None:
    """Raise if an engine cannot run a batch, at once or in micro-batches, because of the numbers that a model draws.

    Raises:
        ValueError: saying why, and what to do.
    """
    if chance is Chance.ENTANGLED:
        raise ValueError(
            f"engine must not be this one, because the model draws {chance.value}: one more record changes the numbers "
            "of others. Leave engine out, or take engine=OneByOne, which draws for every record"
        )
    if in_parts and chance not in IN_PARTS:
        raise ValueError(
            f"max_physical_batch must not be given with this engine, because the model draws {chance.value}: records "
            "of one part would share numbers that those of another do not have, and one more record moves the "
            "boundaries of all parts. Leave engine out, or take engine=OneByOne, which draws for every record; or "
            "leave max_physical_batch out"
        )


Results = Callable[[Any, Any], Tensor]
"""(inputs, targets) -> losses and other results, one column of numbers per record."""


def _classify_perturbed(
    model: nn.Module,
    results: Results,
    batch: Any,
    device: torch.device,
    *,
    mapped: bool = False,
    losses: Results | None = None,
) -> Chance:
    """Classify the random numbers of a function of batches, and restore global generators."""
    classify = partial(_classify, results, losses or results, device, mapped)
    # other kernels of attention draw their masks without a visible operation
    with keep_foreign_state(), sdpa_kernel(SDPBackend.MATH):
        try:
            with perturbed(model):
                return run_on_synthetic(classify, batch, 1)
        except Exception:  # a model that rejects perturbed parameters
            return run_on_synthetic(classify, batch, 1)


def _classify(results: Results, losses: Results, device: torch.device, mapped: bool, record: Any) -> Chance:
    """Classify by passes over copies of one record; with `mapped`, the engine gives each record its own pass.

    Passes that only repeat something compute `losses`, which takes a third of the time of all results.
    """

    def passed(
        records: int,
        seed: int = 0,
        instead: float | None = None,
        coins: "_RecordDraws | None" = None,
        results: Results = results,
    ) -> _Pass:
        return _Pass.of(results, rows(record, [0] * records), device, seed, instead, coins)

    def apart(minor: bool) -> bool:
        """Return whether a record alone has the same results with the numbers that it had in a batch."""
        try:
            for position in range(few):
                coins = _RecordDraws(whole.draws, position, few, minor)
                alone = passed(1, coins=coins)
                if coins.left or _differ(whole.results, alone.results, position, max(TOLERANCE, whole.rounding)):
                    return False
        except Exception:  # numbers of another shape or count, with which the model may fail as well
            return False
        return True

    lengths = passed(1).lengths
    few = prime_dividing_none(lengths)  # an axis whose length it divides is one of records
    more = prime_dividing_none(lengths, few + 1)
    whole, other = passed(few), passed(more)
    again, more_often = passed(few), [passed(few, results=losses) for _ in range(REPEATS - 1)]
    # another thread may draw from a global generator in some pass; a model does so in every pass with the same seed
    changed = _differ(whole.results, again.results, tolerance=REPEATED) or any(
        _differ(whole.results[:1], each.results, tolerance=REPEATED) for each in more_often
    )
    if changed or all(each.foreign for each in (whole, again, *more_often)):
        return Chance.UNSEEDED
    if not whole.draws:
        return Chance.ENTANGLED if whole.unseen else Chance.NONE
    if whole.shuffles or whole.repeats_rows([passed(few, seed=seed, results=losses) for seed in SEEDS]):
        return Chance.ENTANGLED
    if mapped:
        return Chance.PER_RECORD
    if not any(apart(minor) for minor in (False, True)):
        return Chance.ENTANGLED
    one = whole
    if any(draw.single for draw in one.draws) and not any(
        _differ(one.results, passed(few, instead=number).results) for number in EXTREMES
    ):
        # a threshold that no number passes, such as layer dropout with probability 0
        one, other = one.without_singles(), other.without_singles()
    by_record = [draw.by_record for each in (one, other) for draw in each.draws]
    if all(by_record):
        return Chance.PER_RECORD
    # the very same numbers whatever the size of the batch
    same = len(one.draws) == len(other.draws) and all(map(_Draw.same, one.draws, other.draws))
    return Chance.SHARED if same and not any(by_record) else Chance.BOTH


@dataclass(frozen=True, eq=False)
class _Draw:
    """The numbers that one operation has drawn, and whether one of their axes is that of the records."""

    values: list[Tensor]
    by_record: bool
    single: bool

    def same(self, other: "_Draw") -> bool:
        """Return whether another pass has drawn the same numbers."""
        pairs = zip(self.values, other.values, strict=True)
        return all(one.shape == two.shape and torch.equal(one, two) for one, two in pairs)

    @property
    def varies(self) -> bool:
        """Whether not all numbers are equal."""
        return any(bool((value != value.flatten()[0]).any()) for value in self.values if value.numel())


@dataclass(eq=False)
class _RecordDraws:
    """The numbers that one record of a pass was given, for a pass of that record alone.

    Args:
        draws: The numbers drawn in the pass.
        position: The position of the record.
        records: The number of records.
        minor: Whether the records are the faster part of an axis that they share with something else, such as time.
    """

    draws: Sequence[_Draw]
    position: int
    records: int
    minor: bool
    _given: int = 0

    @property
    def left(self) -> int:
        """The number of draws that were not used."""
        return len(self.draws) - self._given

    def give(self, drawn: Sequence[Tensor]) -> None:
        """Replace drawn numbers by those of the record.

        Raises:
            IndexError: if more is drawn than in the batch.
            ValueError: if it has another shape than what a record, or all of them, had there.
        """
        for tensor, value in zip(drawn, self.draws[self._given].values, strict=True):
            tensor.copy_(self._own(value, tensor.shape))
        self._given += 1

    def _own(self, value: Tensor, shape: torch.Size) -> Tensor:
        if value.shape == shape:  # all records share it
            return value
        axes = [axis for axis, length in enumerate(shape) if value.shape[axis : axis + 1] != (length,)]
        if value.ndim != len(shape) or len(axes) != 1 or value.shape[axes[0]] != self.records * shape[axes[0]]:
            raise ValueError("another shape")
        axis, factors = axes[0], (-1, self.records) if self.minor else (self.records, -1)
        split = value.reshape(*value.shape[:axis], *factors, *value.shape[axis + 1 :])
        return split.select(axis + self.minor, self.position)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pass:
    """The results and the draws of one pass.

    Attributes:
        results: The results of the records, one column each.
        draws: The numbers drawn from torch, in order.
        shuffles: Whether an order of the records was drawn.
        foreign: Whether numbers came from Python, numpy or a generator of the model's own.
        unseen: Whether torch's generators moved on although no operation was seen to draw.
        lengths: All lengths of axes.
        rounding: Relative difference that two ways of computing the same may have.
    """

    results: Tensor
    draws: Sequence[_Draw]
    shuffles: bool
    foreign: bool
    unseen: bool
    lengths: set[int]
    rounding: float

    @classmethod
    def of(
        cls,
        results: Results,
        batch: Any,
        device: torch.device,
        seed: int,
        instead: float | None,
        coins: _RecordDraws | None,
    ) -> "_Pass":
        """Run a pass from a seed; `instead` replaces single uniform numbers, `coins` all numbers."""
        watch = _DrawWatch(size(batch), instead, coins)
        foreign = foreign_state()
        torch.manual_seed(seed)
        before = random_state(device)
        with watch:
            outcome = results(*batch)
        return cls(
            results=outcome.detach(),
            draws=watch.draws,
            shuffles=watch.shuffles,
            foreign=watch.own_generator or foreign != foreign_state(),
            unseen=not watch.draws and not same_state(before, random_state(device)),
            lengths=watch.lengths,
            rounding=8 * watch.unit,  # a few roundings of the coarsest type in the pass
        )

    def without_singles(self) -> "_Pass":
        """Return the pass without single uniform numbers."""
        return replace(self, draws=[draw for draw in self.draws if not draw.single])

    def repeats_rows(self, others: Sequence["_Pass"]) -> bool:
        """Return whether numbers differ from record to record, and are the same in passes from other seeds.

        A model that sets the seed itself draws such numbers.
        """
        for position, draw in enumerate(self.draws):
            also = [each.draws[position] for each in others if position < len(each.draws)]
            if draw.by_record and draw.varies and len(also) == len(others) and all(map(draw.same, also)):
                return True
        return False


class _DrawWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the numbers that torch operations draw, the lengths of all axes and the coarsest precision."""

    def __init__(self, records: int, instead: float | None, coins: _RecordDraws | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._records, self._instead, self._coins = records, instead, coins
        self.draws: list[_Draw] = []
        self.shuffles = self.own_generator = False
        self.lengths: set[int] = set()
        self.unit = 0.0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = op(*args, **kwargs)
        tensors = list(tensors_in(result))
        self.lengths.update(length for tensor in tensors_in((args, kwargs, result)) for length in tensor.shape)
        self.unit = max(
            [self.unit, *(torch.finfo(tensor.dtype).eps for tensor in tensors if tensor.is_floating_point())]
        )
        if torch.Tag.nondeterministic_seeded in op.tags:
            self.own_generator |= any(isinstance(given, torch.Generator) for given in (*args, *kwargs.values()))
            by_record = any(length % self._records == 0 for tensor in tensors for length in tensor.shape if length)
            single = op is torch.ops.aten.rand.default and not by_record and result.numel() == 1
            self.shuffles |= by_record and op.overloadpacket is torch.ops.aten.randperm
            if self._coins is not None:
                self._coins.give(tensors)
            elif single and self._instead is not None:
                result.fill_(self._instead)
            self.draws.append(_Draw([tensor.clone() for tensor in tensors], by_record, single))
        return result


def _differ(one: Tensor, other: Tensor, position: int | None = None, tolerance: float = TOLERANCE) -> bool:
    """Return whether the results of the records differ, or those of the record at a position.

    Numbers are compared with the largest one of their kind.
    """
    scale = one.nan_to_num(0, 0, 0).abs().amax(1, keepdim=True) + 1e-9  # so that results of 0 can be compared
    one = one if position is None else one[:, position : position + 1]
    close = (one - other).abs() <= tolerance * scale
    return not bool(((one == other) | (one.isnan() & other.isnan()) | close).all())
