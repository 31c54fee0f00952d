"""Detection of models that reorder the records of a batch, by the operations that they call.

Book-keeping cannot follow such models: row k of a layer is no longer record k.
"""

import sys
from collections.abc import Callable, Container
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from inosgm._internal.trees import tree_leaves, tree_map
from inosgm.training.gradients.batches import synthetic, tensors_in

_SUMS_OF_PRODUCTS = {"mm", "bmm", "mv", "dot", "vdot", "addmm", "addmv", "addbmm", "baddbmm"}
_PLACED_BY_VALUES = {"embedding", "_embedding_bag", "take", "put", "masked_scatter", "_pack_padded_sequence"}
_RESHAPED = {"squeeze", "unsqueeze"}
_CAUTIOUS = {torch.ops.aten.all.default: False, torch.ops.aten.any.default: True}
"""Questions about all records, and the answer that a single record can cause."""
MAX_APART = 16
"""Largest number of questions whose answers are changed one by one: each takes a run for one record."""
SCALES = (-1e4, -30.0, 30.0, 1e4)
"""Scales of further synthetic records: bounds such as `x.clamp(-5, 5)` matter to large values only."""
_COUNT, _EQUALS = torch.ops.aten.sum.default, torch.ops.aten.eq.Scalar
"""The operations of `mask.sum() == mask.numel()`, another way to ask `mask.all()` (that of transformers)."""
_INTO_PYTHON = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__}


class Runs(Protocol):
    """What is watched: an engine, or something else that computes something of each record of a batch."""

    def run(self, inputs: Any, targets: Any) -> Any:
        """Return what it computes."""


def moves_records(engine: Runs, inputs: Any, targets: Any) -> bool:
    """Return whether model or loss call an operation that can order records by their values.

    Calls count, not their results, because synthetic records need not cause a reordering that real ones cause. An order
    that does not depend on values shows when the gradients of engines are compared.

    A model may ask whether something holds for all records, or for any, as code for masks does
    (`if attention_mask.all()`). Such a question moves no record, and both of its answers are tried. But one record may
    change the answer that all others get, so it must not matter to these: see `_answers_matter`. Every other number
    that is computed from all records counts as moving them: `x / x.max().clamp(min=1)` mixes records whose values
    synthetic ones do not have.
    """
    generator = torch.Generator().manual_seed(0)
    try:
        alone = _OrderWatch(synthetic((inputs, targets), 1, generator)).ran(engine)
        batch = synthetic((inputs, targets), prime_dividing_none(alone.lengths), generator)
        watch = _OrderWatch(batch).ran(engine)
    except Exception:  # a model that cannot be watched counts as one that reorders
        return True
    moved, asked = watch.moved, watch.asked
    for answer in (True, False) if asked and not moved else ():
        watch = _OrderWatch(batch, answer)
        with suppress(Exception):  # a model that rejects such records; what it did before counts
            watch.ran(engine)
        moved |= watch.moved
    return moved or (asked and _answers_matter(engine, inputs, targets))


def _answers_matter(engine: Runs, inputs: Any, targets: Any) -> bool:
    """Return whether a record may be treated otherwise because of the answer to a question that others cause.

    A record alone gets its own answers. Beside others, `all` may be false and `any` true instead, so a record must have
    the same losses and outputs if others cause the answer to any one question, or to all; a record of large values as
    well. They may lead to further questions, which are answered by the record itself in one run, and as others may
    cause it in another. A question that no synthetic record answers otherwise by itself was not tried, and counts as
    one that matters.
    """
    tried, asked = set[int](), set[int]()
    generator = torch.Generator().manual_seed(0)
    plain = [synthetic((inputs, targets), 1, generator) for _ in range(2)]
    same = [tree_map(partial(torch.full_like, fill_value=value), plain[0][0]) for value in (0, 1)]
    same += [tree_map(partial(_scaled, by=scale), plain[0][0]) for scale in SCALES]
    for batch in (*plain, *((column, plain[0][1]) for column in same)):
        results, ways = [], list[Container[int]]([()])
        for cautious in ways:  # which grows once, by what the first run has asked
            watch = _OrderWatch(batch, cautious=cautious)
            torch.manual_seed(0)
            try:
                results.append(tree_leaves(watch.ran(engine).results))
            except Exception:  # a model that rejects such records, or the ways do not fit together
                break
            asked |= watch.answers.keys()
            tried |= {number for number, own in watch.answers.items() if own}
            if cautious == ():
                numbers = list(watch.answers)
                ways += [*({number} for number in numbers[:MAX_APART]), frozenset(numbers), range(sys.maxsize)]
        if results and len(results) < len(ways):
            return True
        if results and not all(all(map(_alike, results[0], other)) for other in results[1:]):
            return True
    return not asked <= tried


def _scaled(column: Any, by: float) -> Any:
    """Return floats in another scale; everything else as it is."""
    return column * by if isinstance(column, Tensor) and column.is_floating_point() else column


def _alike(one: Any, other: Any) -> bool:
    """Return whether two results are the same up to rounding."""
    if not isinstance(one, Tensor) or not one.is_floating_point():
        return not isinstance(one, Tensor) or torch.equal(one, other)
    tolerance = torch.finfo(one.dtype).eps ** 0.5
    scale = float(one.detach().abs().nan_to_num(0, 0).max()) if one.numel() else 0.0
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=tolerance * scale, equal_nan=True)


class _OrderWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the values of a batch, and detects operations by which values may choose a position among its records.

    An axis holds records if their number divides its length; the number is a prime that divides no other length.

    Args:
        batch: The batch.
        answer: What questions about all records are answered with; the truth if not given.
        cautious: Numbers of the uses of `all` and `any` that are false and true for all records, whatever they are.

    Attributes:
        moved: Whether values may have chosen a position.
        asked: Whether a question about all records was asked.
        answers: For each use of `all` and `any`, by its number, whether the answer was the other than the cautious one.
        results: What the engine returned.
    """

    def __init__(self, batch: Any, answer: bool | None = None, *, cautious: Container[int] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        columns = tree_leaves(batch)
        self._records = columns[0].shape[0]
        self._storages = {_storage(column)._cdata: _storage(column) for column in columns}
        self._about_all: dict[int, torch.UntypedStorage] = {}
        self._counts: dict[int, tuple[torch.UntypedStorage, int]] = {}  # of true values, among how many
        self._batch, self._answer, self._cautious = batch, answer, cautious
        self.answers: dict[int, bool] = {}
        self.results: Any = None
        self.lengths: set[int] = set()
        self.moved = self.asked = False

    def ran(self, engine: Runs) -> "_OrderWatch":
        """Run the batch, and return the watch."""
        with _Looks(self), self:
            self.results = engine.run(*self._batch)
        self.moved |= bool(self._counts)  # a count that was not compared may have been used without an operation
        return self

    def knows(self, tensor: Tensor) -> bool:
        """Return whether a tensor holds values that depend on the batch or on random numbers."""
        return _storage(tensor)._cdata in self._storages

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = op(*args, **kwargs)
        is_question = op is torch.ops.aten._local_scalar_dense.default and args[0].dtype == torch.bool
        if is_question and self._is_about_all(args[0]):
            self.asked = True
            return result if self._answer is None else self._answer
        known = any(map(self.knows, tensors_in((args, kwargs))))
        counted = self._compares_count(op, args, kwargs)
        if counted or (op in _CAUTIOUS and known and args[0].numel() and any(map(self._of_records, args[0].shape))):
            caused = False if counted else _CAUTIOUS[op]
            number = len(self.answers)
            self.answers[number] = bool(result) is not caused
            result = torch.full_like(result, caused) if number in self._cautious else result
        if counted:
            self._about_all[_storage(result)._cdata] = _storage(result)
        self._note_about_all(op, args, kwargs, result)
        self.lengths.update(length for tensor in tensors_in((args, kwargs, result)) for length in tensor.shape)
        self.moved |= known and (self._moves(op, args, kwargs) or self._reduces(op, args, result))
        if known or torch.Tag.nondeterministic_seeded in op.tags:
            self._storages.update((_storage(tensor)._cdata, _storage(tensor)) for tensor in tensors_in(result))
        return result

    def _compares_count(self, op: Any, args: Any, kwargs: Any) -> bool:
        """Return whether a count of true values is compared with their number; any other use of it moves records."""
        counts = [tensor for tensor in tensors_in((args, kwargs)) if _storage(tensor)._cdata in self._counts]
        if not counts:
            return False
        _, number = self._counts.pop(_storage(counts[0])._cdata)
        compared = op is _EQUALS and not isinstance(args[1], bool) and args[1] == number
        self.moved |= not compared
        return compared

    def _moves(self, op: Any, args: Any, kwargs: Any) -> bool:
        name = op.overloadpacket.__name__.removesuffix("_")
        if name in ("index", "index_put"):
            return self._picks(args[0], args[1], filled=name == "index_put" and args[2].numel() == 1)
        if {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.intersection(op.tags):
            return True  # Python sees the values, or they decide a shape
        if name in _SUMS_OF_PRODUCTS:
            return self._of_records(list(tensors_in(args))[-2].shape[-1])
        first = args[0] if args else None
        if not isinstance(first, Tensor) or op.is_view or name in _RESHAPED:
            return False
        if name in _PLACED_BY_VALUES:
            return self._of_records(first.numel())
        named = {argument.name: argument.default_value for argument in op._schema.arguments}
        named |= dict(zip(named, args, strict=False)) | kwargs
        return any(self._of_records(first.shape[axis]) for axis in _axes(named, first.ndim))

    def _reduces(self, op: Any, args: Any, result: Any) -> bool:
        """Return whether an operation makes one number of all records, which is no question about them."""
        first, made = args[0] if args else None, list(tensors_in(result))
        if not isinstance(first, Tensor) or not first.numel() or op.is_view or op in _CAUTIOUS:
            return False
        if op is _COUNT and first.dtype == torch.bool and any(map(self._of_records, first.shape)):
            self._counts[_storage(result)._cdata] = (_storage(result), first.numel())
            return False
        if op.overloadpacket.__name__.startswith("new_"):  # of the type of a tensor, whatever its values are
            return False
        return bool(made) and all(one.numel() == 1 for one in made) and any(map(self._of_records, first.shape))

    def _picks(self, tensor: Tensor, indices: Any, filled: bool) -> bool:
        """Return whether known values index records; filling what a mask selects with one number moves no record."""
        axis = 0
        for index in indices:
            mask = index is not None and index.dtype in (torch.bool, torch.uint8)
            ends = axis + (index.ndim if mask else 1)
            chooses = index is not None and self.knows(index) and not (mask and filled)
            if chooses and any(map(self._of_records, tensor.shape[axis:ends])):
                return True
            axis = ends
        return False

    def _is_about_all(self, tensor: Tensor) -> bool:
        return _storage(tensor)._cdata in self._about_all

    def _note_about_all(self, op: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note that a result says one thing about all records, or follows from such results."""
        if not isinstance(result, Tensor) or result.numel() != 1:
            return
        given = [tensor for tensor in tensors_in((args, kwargs)) if self.knows(tensor)]
        if op in _CAUTIOUS:
            about_all = any(map(self._of_records, args[0].shape))
        else:
            about_all = bool(given) and all(map(self._is_about_all, given))
        if about_all:
            self._about_all[_storage(result)._cdata] = _storage(result)

    def _of_records(self, length: int) -> bool:
        return length > 0 and length % self._records == 0


class _Looks(TorchFunctionMode):
    """Tells a watch about values that leave torch without an operation, such as `Tensor.numpy`."""

    def __init__(self, watch: _OrderWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _INTO_PYTHON and self._watch.knows(args[0]):
            self._watch.moved = True
        return function(*args, **(kwargs or {}))


def prime_dividing_none(lengths: set[int], least: int = 5) -> int:
    """Return the smallest prime from `least` on that divides no length, and thus no product of lengths."""
    return next(
        number
        for number in count(least)
        if all(number % divisor for divisor in range(2, number)) and all(length % number for length in lengths - {0})
    )


def _axes(named: dict[str, Any], ndim: int) -> list[int]:
    """Return the axes that an operation reduces or sorts along: all of them if it is called without `dim`."""
    if not ndim or not {"dim", "dims"} & named.keys():
        return []
    axes = named.get("dim", named.get("dims"))
    return [axes] if isinstance(axes, int) else list(axes or range(ndim))


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    """Return the memory that a tensor shares with its views."""
    return tensor.untyped_storage()
