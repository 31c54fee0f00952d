"""Book-keeping of parameters that no layer rule serves, by the torch functions that they are passed to.

A tensor that is computed from parameters and constants alone is *record-free*: a view of a weight, a table of positions
that was looked up, a class token that was expanded. The gradient of a record reaches such a tensor where it meets a
tensor of records: a sum, a product, a linear map. There the gradient is kept per record, and pulled back to the
parameters through the record-free part of the graph.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from inosgm.training.gradients.per_record import (
    Lookups,
    Outer,
    PerRecord,
    PulledBack,
    Rows,
    Single,
    like,
    total,
    wide,
)
from inosgm.training.gradients.precision import WIDE


class NotPerRecord(ValueError):
    """Raised when a layer is used in a way that hides its records from book-keeping; other engines remain."""


@dataclass(frozen=True, eq=False)
class RecordFree:
    """A tensor that depends on no record.

    Attributes:
        tensor: The tensor.
        roots: The trainable parameters that it is computed from; for each, whether only entries were moved or left
            out, so that the gradient keeps its length when it is pulled back.
        source: The record-free tensor that it is an expansion of, if it is one.
        table: The table and the indices that it was looked up by, if it was.
        turned: The matrix that it is the transpose of, if it is one.
        affine: The constant, the weight and the bias that it is the linear map of, if it is one: the first state of a
            recurrent layer is such a constant.
        cut_from: The tensor whose rows were cut to make it, if they were: row k of one is from row k of the other.
    """

    tensor: Tensor
    roots: dict[int, bool]
    source: "RecordFree | None" = None
    table: "tuple[RecordFree, Tensor] | None" = None
    turned: "RecordFree | None" = None
    affine: "tuple[Tensor, RecordFree | None, RecordFree | None] | None" = None
    cut_from: "RecordFree | None" = None


Gradient = Callable[[tuple[Tensor, ...], Tensor], PerRecord]
"""(inputs that were kept, gradients of the output) -> the gradients of a record-free tensor, one per record."""

Keep = Callable[[str, Tensor, Sequence[Tensor], Sequence[tuple[int, Any]]], None]
"""(name of the function, its output, inputs to keep, rules by parameter): see `_Tape.keep`."""


@dataclass(eq=False)
class Meeting:
    """A call of a torch function in which record-free tensors with parameters meet tensors of records.

    A rule calls `run`, and `meets` once for each record-free argument.
    """

    flow: "ParameterFlow"
    function: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def records(self) -> int:
        """The number of records."""
        return self.flow.records

    def free(self, value: Any) -> RecordFree | None:
        """Return what is known about an argument if it is record-free and has trainable parameters."""
        known = self.flow.known(value)
        return known if known is not None and known.roots else None

    def run(self) -> Any:
        """Call the function."""
        return self.function(*self.args, **self.kwargs)

    def refuse(self, why: str) -> NotPerRecord:
        """Return the error that sends the model to another engine."""
        return NotPerRecord(f"a parameter is used in `{self.name}` in a way that book-keeping cannot follow: {why}")

    def meets(self, output: Tensor, pairs: Iterable[tuple[RecordFree | None, Sequence[Tensor], Gradient]]) -> None:
        """Arrange that gradients of record-free tensors are kept, given the inputs and the rule of each."""
        for free, inputs, gradient in pairs:
            if free is not None and output.requires_grad:
                rules = [(root, partial(self._gradient, gradient, free, root)) for root in free.roots]
                self.flow.keep(self.name, output, inputs, rules)

    def _gradient(
        self, gradient: Gradient, free: RecordFree, root: int, _: Any, inputs: tuple[Tensor, ...], output_grads: Tensor
    ) -> PerRecord:
        return self.flow.pull_back(gradient(inputs, output_grads), free, root)

    def reduced(self, output_grads: Tensor, free: RecordFree) -> PerRecord:
        """Return the gradients of a tensor that was broadcast to the shape of the output."""
        shape, values, n = free.tensor.shape, wide(output_grads), self.records
        if values.shape[:1] != (n,):
            raise self.refuse("its output does not begin with the records of the batch")
        ahead = values.ndim - len(shape)
        if ahead < 0:
            raise self.refuse("its output has fewer axes than the parameter")
        own = ahead == 0  # then its first axis is aligned with the records
        axes = [
            axis
            for axis in range(1, values.ndim)
            if axis < ahead or (shape[axis - ahead] == 1 and values.shape[axis] != 1)
        ]
        values = values.sum(axes, keepdim=True) if axes else values
        if not own:
            return Rows(values.reshape(n, *shape))
        if shape[0] == 1:
            return Rows(values.reshape(n, *shape))
        return _Diagonal(values.reshape(n, *shape[1:]))


class ParameterFlow(TorchFunctionMode):
    """Follows record-free tensors through one forward pass, and keeps gradients where they meet records.

    Args:
        records: The number of records.
        model: The model, whose buffers and frozen parameters are constants.
        loose: The ids of the parameters that are followed.
        keep: Keeps a call for the backward pass.
        rules: Rules by the name of a function.
        learning: Whether uses of other parameters outside of their layers are collected in `strays`.
    """

    def __init__(
        self,
        records: int,
        model: nn.Module,
        loose: Iterable[int],
        keep: Keep,
        rules: "dict[str, Callable[[Meeting], Any]]",
        *,
        learning: bool,
    ) -> None:
        super().__init__()
        self.records, self.keep, self._rules, self.learning = records, keep, rules, learning
        self._loose = set(loose)
        self._free: dict[int, RecordFree] = {}
        self._trained: dict[int, Tensor] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                self._trained[id(parameter)] = parameter
            roots = {id(parameter): True} if id(parameter) in self._loose else {}
            self._free[id(parameter)] = RecordFree(parameter, roots)
        for buffer in model.buffers():
            self._free[id(buffer)] = RecordFree(buffer, {})
        self.inside: list[list[int]] = []
        self.strays: set[int] = set()

    def known(self, value: Any) -> RecordFree | None:
        """Return what is known about a value if it is a record-free tensor."""
        return self._free.get(id(value))

    def follows(self, values: Iterable[Any]) -> bool:
        """Return whether no tensor among some values depends on records, or one of them on parameters alone."""
        free = [self._free.get(id(value)) for value in values if isinstance(value, Tensor)]
        return all(each is not None for each in free) or any(each is not None and each.roots for each in free)

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in _leaves((*args, *kwargs.values())) if isinstance(leaf, Tensor)]
        if self.inside:
            result = function(*args, **kwargs)
            if self.learning and any(id(tensor) in self._loose for tensor in tensors) and _has_tensor(result):
                self.strays.update(self.inside[-1])  # a layer whose weight is computed from other parameters
            return result
        name = _name(function)
        free = [self._free.get(id(tensor)) for tensor in tensors]
        only_first = name in _FORM_OF_SECOND and free[0] is not None
        if only_first or all(each is not None for each in free) or name in _FACTORIES:
            result = self._mark(name, function(*args, **kwargs), args, kwargs, tensors)
            self._note_strays(tensors, result)
            return result
        if not any(each is not None and each.roots for each in free):
            result = function(*args, **kwargs)
            self._forget_written(name, result, args)
            self._note_strays(tensors, result)
            return result
        if name in _QUERIES:
            return function(*args, **kwargs)
        meeting = Meeting(self, function, name, tuple(args), kwargs)
        if not torch.is_grad_enabled():
            return meeting.run()
        result = self._rules.get(name, self._rules[""])(meeting)
        self._forget_written(name, result, args)
        self._note_strays(tensors, result)
        return result

    def _note_strays(self, tensors: Iterable[Tensor], result: Any) -> None:
        """Note which parameters are used outside of their layer; asking for a type or a shape is no use."""
        if self.learning:
            strays = [id(each) for each in tensors if id(each) in self._trained and id(each) not in self._loose]
            if strays and _has_tensor(result):
                self.strays.update(strays)

    def pull_back(self, gradients: PerRecord, free: RecordFree, root: int) -> PerRecord:
        """Return the gradients of a parameter, given those of a tensor that was computed from it."""
        if isinstance(gradients, _Diagonal):
            return self._pull_diagonal(gradients.values, free, root)
        parameter = self._trained[root]
        if free.tensor is parameter:
            return gradients
        if free.turned is not None and isinstance(gradients, Outer | Single):
            swapped = type(gradients)(gradients.output_grads, gradients.inputs)
            return self.pull_back(swapped, free.turned, root)
        if free.tensor.dtype not in WIDE:
            raise NotPerRecord("a tensor that is computed from parameters is in half precision")
        values = gradients.rows()
        moved = free.roots[root]
        if free.table is not None:
            table, indices = free.table
            moved = table.roots.get(root, False) and torch.unique(indices).numel() == indices.numel()
        return PulledBack(values, free.tensor, parameter, moved)

    def _pull_diagonal(self, values: Tensor, free: RecordFree, root: int) -> PerRecord:
        """Return the gradients of a parameter if row k of a record-free tensor was given to record k alone."""
        n = self.records
        if free.source is not None:
            meeting = Meeting(self, torch.Tensor.expand, "expand", (), {})
            return self.pull_back(meeting.reduced(values, free.source), free.source, root)
        if free.table is not None:
            table, indices = free.table
            size = table.tensor.shape[0]
            looked_up = Lookups(indices.reshape(n, -1), values.reshape(n, -1, values.shape[-1]), size)
            return self.pull_back(looked_up, table, root)
        if free.affine is not None:
            constant, weight, bias = free.affine
            given, grads = (each.reshape(n, -1, each.shape[-1]) for each in (constant, values))
            parts = []
            if weight is not None and root in weight.roots:
                parts.append(self.pull_back(Outer(like(grads, given), grads), weight, root))
            if bias is not None and root in bias.roots:
                parts.append(self.pull_back(Rows(wide(grads).sum(1)), bias, root))
            return total(parts)
        if free.cut_from is not None:
            (whole,) = torch.autograd.grad(
                free.tensor, free.cut_from.tensor, like(free.tensor, values), retain_graph=True
            )
            return self._pull_diagonal(whole, free.cut_from, root)
        raise NotPerRecord("a tensor that is computed from parameters has a row for each record")

    def _mark(self, name: str, result: Any, args: Sequence[Any], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """Note that results are record-free."""
        given = [self._free[id(tensor)] for tensor in tensors if id(tensor) in self._free]
        for leaf in _leaves(result):
            if not isinstance(leaf, Tensor):
                continue
            if len(tensors) == 1 and leaf is tensors[0]:  # nothing to do, as for `contiguous`
                continue
            roots: dict[int, bool] = {}
            if leaf.requires_grad:
                one = sum(bool(each.roots) for each in given) == 1
                for each in given:
                    keeps = one and _keeps_length(name, args, each.tensor, leaf)
                    roots |= {root: moved and keeps and root not in roots for root, moved in each.roots.items()}
            about: dict[str, Any] = {}
            if name in ("expand", "repeat", "expand_as", "tile") and given:
                about["source"] = given[0] if _only_first_grows(name, given[0].tensor, leaf) else None
            elif name in ("t", "T", "mT", "transpose", "swapaxes") and leaf.ndim == 2 and given:
                about["turned"] = given[0] if leaf.shape == given[0].tensor.shape[::-1] else None
            elif name == "embedding":
                indices, weight = lookup_arguments(args, kwargs)
                table = self._free.get(id(weight))
                about["table"] = (table, indices) if table and lookup_padding(args, kwargs, weight) is None else None
            elif name in ("chunk", "split", "getitem", "narrow") and leaf.shape[:1] == given[0].tensor.shape[:1]:
                about["cut_from"] = given[0] if len(given) == 1 and _keeps_length(name, args, leaf, leaf) else None
            elif name == "linear" and len(args) >= 2 and not kwargs and not self._free[id(args[0])].roots:
                own = [self._free.get(id(each)) for each in (*args[1:], None)[:2]]
                about["affine"] = (args[0], *own)
            self._free[id(leaf)] = RecordFree(leaf, roots, **about)
        return result

    def _forget_written(self, name: str, result: Any, args: Sequence[Any]) -> None:
        """Note that a tensor was overwritten with values of records."""
        for leaf in (*_leaves(result), *(args[:1] if name == "setitem" else ())):
            if id(leaf) in self._free and id(leaf) not in self._trained:
                del self._free[id(leaf)]


@dataclass(frozen=True, eq=False)
class _Diagonal(Rows):
    """Gradients (n, ...) of a tensor whose row k reaches record k alone."""

    values: Tensor = field()


def _only_first_grows(name: str, before: Tensor, after: Tensor) -> bool:
    """Return whether an expansion repeats the whole tensor along its first axis, and entries along axes of length 1."""
    if name in ("repeat", "tile"):  # repeats blocks: entries of an axis longer than 1 would be permuted
        ahead = after.ndim - before.ndim
        return all(a == b or b == 1 for a, b in zip(after.shape[ahead:], before.shape, strict=True))
    return True


def lookup_arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return indices and table of a call of `F.embedding` or `torch.embedding`, whose orders differ."""
    first, second = (*args, *(kwargs[name] for name in ("input", "weight", "indices") if name in kwargs))[:2]
    if isinstance(first, Tensor) and first.is_floating_point():
        first, second = second, first
    return first, second


def lookup_padding(args: Sequence[Any], kwargs: dict[str, Any], weight: Tensor) -> int | None:
    """Return the index whose gradient torch leaves out, or None."""
    index = args[2] if len(args) > 2 else kwargs.get("padding_idx")
    if index is None or (index == -1 and isinstance(args[0], Tensor) and args[0].is_floating_point()):
        return None  # torch.embedding says -1 for none
    return int(index) % weight.shape[0]


_QUERIES = {"get", "size", "dim", "numel", "shape", "dtype", "device", "is_floating_point", "type", "requires_grad"}
"""Functions that do not read values."""

_FACTORIES = {
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
    "new_tensor",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
}
"""Functions whose result depends on the form of their argument alone."""

_SAME = {
    "radd": "add",
    "iadd": "add",
    "rmul": "mul",
    "imul": "mul",
    "multiply": "mul",
    "isub": "sub",
    "subtract": "sub",
    "mm": "matmul",
    "concat": "cat",
    "concatenate": "cat",
}
"""Functions with several names."""

_FORM_OF_SECOND = {"to", "type_as", "view_as", "reshape_as"}
"""Functions whose result depends on the values of their first argument, and on the form of the second alone."""

_MOVES = {
    "view_as",
    "reshape_as",
    "view",
    "reshape",
    "transpose",
    "t",
    "T",
    "mT",
    "permute",
    "swapaxes",
    "movedim",
    "unsqueeze",
    "squeeze",
    "flatten",
    "unflatten",
    "getitem",
    "narrow",
    "select",
    "chunk",
    "split",
    "unbind",
    "tensor_split",
    "contiguous",
    "to",
    "float",
    "double",
    "type_as",
    "clone",
}
"""Functions that move or leave out entries, or change their type."""


def _name(function: Callable[..., Any]) -> str:
    """Return the name of a torch function without underscores; a property is named after itself."""
    name: str = getattr(function, "__name__", "")
    if name == "__get__":
        return str(getattr(getattr(function, "__self__", None), "__name__", "get"))
    name = name.strip("_")
    return _SAME.get(name, name)


def _keeps_length(name: str, args: Sequence[Any], before: Tensor, after: Tensor) -> bool:
    """Return whether a function of one tensor with parameters moves entries, leaves some out, or adds constants."""
    if name == "getitem":  # positions given as a tensor or a list may repeat
        return not any(isinstance(index, Tensor | list) for index in _as_tuple(args[1]))
    return name in _MOVES or (name in ("add", "sub") and after.shape == before.shape and _plain(args))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _plain(args: Sequence[Any]) -> bool:
    """Return whether a sum has two terms and no factor."""
    return len(args) == 2


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested arguments of a call."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _has_tensor(result: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in _leaves(result))
