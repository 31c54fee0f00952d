"""Book-keeping: per-record norms and the weighted gradient from one forward and one backward pass."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, Gradients, PerRecordLoss, apply
from inosgm.training.gradients.batches import detached, size
from inosgm.training.gradients.instantiated import no_gradients
from inosgm.training.gradients.layers import Rule, has_own_rule, rules_for
from inosgm.training.gradients.per_record import PerRecord, like, norms_of, total
from inosgm.training.gradients.precision import without_autocast


class NotPerRecord(ValueError):
    """Raised when a layer is used in a way that hides its records from book-keeping; other engines remain."""


class BookKeeping(Engine):
    """Keeps the inputs and the output gradients of every layer, and computes norms and weighted sums from them.

    Each layer is served by Gram matrices or by instantiated gradients, whichever takes fewer operations for its shape,
    and no gradient is computed twice. During one forward pass the `forward` of each layer is replaced by one that also
    records the call; afterwards the original is put back.

    **Guarantee.** Norms are below the true ones by the rounding errors of a single sum at most: a bound on what
    cancellation between positions could hide is added. The engine assumes that row k of every layer is record k, which
    `engine_for` tests. It raises NotPerRecord for a layer whose tensors do not begin with as many rows as there are
    records and, in the first pass of a mode, for a parameter that is used outside of its layer.

    Args:
        model: A module whose trainable parameters belong to layers with a rule: see `unsupported`.
        loss: Takes outputs and targets, gives one loss per record.
        autocast: The precision of the forward pass; norms and sums are in float32 or better all the same.

    Raises:
        NotPerRecord: for a model with a layer that has no rule.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> engine = BookKeeping(model, lambda outputs, targets: outputs[:, 0] * targets)
    >>> gradients = engine.gradients(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([1.0, 2.0]))
    >>> gradients.norms()
    tensor([5., 4.], dtype=torch.float64)
    >>> gradients.weighted_sum(torch.tensor([1.0, 0.5]))
    [tensor([[3., 6.]])]
    """

    def __init__(self, model: nn.Module, loss: PerRecordLoss, *, autocast: torch.dtype | None = None) -> None:
        super().__init__(model, loss, autocast=autocast)
        reason = self.unsupported(model)
        if reason is not None:
            raise NotPerRecord(reason)
        every = [(module, rules_for(module)) for module in model.modules()]
        self._layers = [
            _Layer(module, _pairs(module, rules)) for module, rules in every if rules and not isinstance(rules, str)
        ]
        self._on_images = any(isinstance(module, nn.Conv2d) for module in model.modules())
        self._checked: set[bool] = set()

    @classmethod
    def unsupported(cls, model: nn.Module) -> str | None:
        """Return why book-keeping cannot serve a model, naming the first layer without a rule, or None if it can."""
        every = [(name, module, rules_for(module)) for name, module in model.named_modules()]
        served = {p for _, module, rules in every if not isinstance(rules, str) for p, _ in _pairs(module, rules)}
        for name, module, rules in every:
            own = module.parameters(recurse=False)  # DPLSTM lists parameters of its cells as its own
            if isinstance(rules, str) and any(p.requires_grad and id(p) not in served for p in own):
                return f"book-keeping cannot serve {name or 'the model'} ({type(module).__name__}): {rules}"
        return None

    def gradients(self, inputs: Any, targets: Any) -> Gradients:
        """Return the gradients of a batch, which may hold no record at all.

        Raises:
            NotPerRecord: when a layer was used in a way that hides its records.
            ValueError: when the loss does not give one number per record.
        """
        n = size(inputs)
        if not n:
            return no_gradients(self, inputs, targets)
        tape = _Tape(n)
        try:
            outputs, losses = self._forward(tape, detached(inputs), targets)
            if losses.shape != (n,):
                raise ValueError("loss must give one number per record")
            with without_autocast(self.device):  # because rules compute norms in the backward pass
                norms = tape.play_back(losses)
        finally:
            tape.ends.clear()  # breaks a reference cycle: they hold the graph, whose hooks hold the tape
        parts = [tape.parts.get(id(parameter)) for parameter in self.parameters]
        return BookKeptGradients(self.parameters, losses.detach(), detached(outputs), norms, parts)

    def _laid_out(self, inputs: Any) -> Any:
        """Return the inputs in the memory layout that is fastest for the model; parameters keep theirs."""
        return tree_map(_images_last, inputs) if self._on_images else inputs

    def _forward(self, tape: "_Tape", inputs: Any, targets: Any) -> tuple[Any, Tensor]:
        """Run the model and record the calls of its layers; in the first pass of a mode, count uses of parameters."""
        model = self._model
        unchecked = model.training not in self._checked
        uses = _Uses(self.parameters if unchecked else ())
        before = [vars(layer.module).get("forward") for layer in self._layers]
        try:
            for layer in self._layers:  # replacing forward costs less than a hook, and runs before the hooks of users
                vars(layer.module)["forward"] = partial(tape.record, layer, layer.module.forward)
            with self._precision(), uses if unchecked else nullcontext():
                outputs = apply(model, self._laid_out(inputs))
                losses = self._loss(outputs, targets)
        finally:
            for layer, forward in zip(self._layers, before, strict=True):
                if forward is None:
                    vars(layer.module).pop("forward", None)
                else:
                    vars(layer.module)["forward"] = forward
        if unchecked:
            self._check(uses.counts, tape)
            self._checked.add(model.training)
        return outputs, losses

    def _check(self, uses: Counter[int], tape: "_Tape") -> None:
        """Raise for a parameter that is used outside of its layers: its gradient would be incomplete."""
        foreign = {p for layer in self._layers if not has_own_rule(layer.module) for p, _ in layer.rules}
        for name, parameter in self._model.named_parameters():
            if uses[id(parameter)] > tape.calls.get(id(parameter), 0) and id(parameter) not in foreign:
                raise NotPerRecord(f"parameter {name} is used outside of its layer, where book-keeping cannot see it")


@dataclass(frozen=True, eq=False)
class _Layer:
    """A module with the rules of its own trainable parameters, keyed by id because hashing tensors is slow."""

    module: nn.Module
    rules: list[tuple[int, Rule]]


@dataclass(eq=False, slots=True)
class _Call:
    """One call of a layer: its inputs, and their version counters, which show whether they were overwritten."""

    layer: _Layer
    inputs: tuple[Tensor, ...]
    versions: list[int]


@dataclass(eq=False)
class _Tape:
    """Records the calls of layers in one forward pass, and computes gradients from them in the backward pass."""

    records: int
    parts: dict[int, PerRecord] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    ends: list[tuple[GradientEdge, _Call | None]] = field(default_factory=list)
    _waiting: dict[int, list[PerRecord]] = field(default_factory=dict)
    _factors: list[tuple[Tensor, ...]] = field(default_factory=list)

    def record(self, layer: _Layer, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a layer, keep its inputs, and arrange that the gradients of its output are kept."""
        output = forward(*args, **kwargs)
        for parameter, _ in layer.rules:
            self.calls[parameter] = self.calls.get(parameter, 0) + 1
        if not isinstance(output, Tensor) or not output.requires_grad:
            return output  # inside of no_grad, where no gradient arises
        inputs = tuple(given for given in (*args, *kwargs.values()) if isinstance(given, Tensor))
        kept = tuple(given.detach() for given in inputs)
        call = _Call(layer, kept, [given._version for given in kept])
        # edge and hook refer to the output as it is now, even if it is overwritten later
        if output.ndim == 2:  # gradients of one position are small and kept anyway, so they may arrive all at once
            self.ends.append((get_gradient_edge(output), call))
            return output
        if not any(given.requires_grad for given in inputs):
            self.ends.append((get_gradient_edge(output), None))  # the backward pass may stop here
        output.register_hook(partial(self._receive, call))  # type: ignore[no-untyped-call]
        return output

    def play_back(self, losses: Tensor) -> Tensor:
        """Run the backward pass without computing weight gradients, and return the norms in float64."""
        if losses.requires_grad and self.ends:
            edges, calls = zip(*self.ends, strict=True)
            gradients = torch.autograd.grad(losses, edges, torch.ones_like(losses), allow_unused=True)
            for call, output_grads in zip(calls, gradients, strict=True):
                if call is not None and output_grads is not None:
                    self._receive(call, output_grads)
        for parameter in list(self._waiting):  # an output of its layers did not reach the loss
            self._settle(parameter)
        if not self._factors:
            return losses.new_zeros(self.records, dtype=torch.float64)
        return norms_of(self._factors)

    def _receive(self, call: _Call, output_grads: Tensor) -> None:
        """Turn inputs and output gradients of a call into gradients of its parameters; also used as a tensor hook."""
        self._check(call, output_grads)
        for parameter, rule in call.layer.rules:
            waiting = self._waiting.setdefault(parameter, [])
            waiting.append(rule(call.layer.module, call.inputs, output_grads))
            if len(waiting) == self.calls[parameter]:
                self._settle(parameter)
        call.inputs = ()

    def _settle(self, parameter: int) -> None:
        """Add up the gradients of a parameter from all calls, and keep them in their cheapest form."""
        part = self.parts[parameter] = total(self._waiting.pop(parameter)).cheapest()
        self._factors.append(part.factors())

    def _check(self, call: _Call, output_grads: Tensor) -> None:
        kind = type(call.layer.module).__name__
        if not call.inputs:
            raise RuntimeError(f"a {kind} was differentiated twice: book-keeping serves one backward pass per batch")
        for tensor in (*call.inputs, output_grads):
            if tensor.ndim < 1 + (tensor is output_grads) or tensor.shape[0] != self.records:
                raise NotPerRecord(
                    f"a {kind} works on a tensor that does not begin with the records of the batch: keep them as the "
                    "first axis, or choose another engine"
                )
        if call.versions != [given._version for given in call.inputs]:
            raise NotPerRecord(f"the input of a {kind} was overwritten in place, so its gradient is lost")


class _Uses(TorchFunctionMode):
    """Counts how often each parameter is passed to a torch function that returns a tensor."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__()
        self._parameters = {id(parameter) for parameter in parameters}
        self.counts: Counter[int] = Counter()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) for leaf in _leaves(result)):
            for leaf in _leaves((args, kwargs)):
                if id(leaf) in self._parameters:
                    self.counts[id(leaf)] += 1
        return result


@dataclass(frozen=True, eq=False)
class BookKeptGradients(Gradients):
    """The gradients of a batch, each parameter's in the form that is cheapest for its layer."""

    reruns: ClassVar[bool] = False
    parameters: tuple[nn.Parameter, ...]
    losses: Tensor
    outputs: Any
    _norms: Tensor
    _parts: list[PerRecord | None]

    def norms(self) -> Tensor:
        """Return the norm of each record's gradient over all parameters, in float64."""
        return self._norms

    @torch.no_grad()
    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Return the sum of weights_k g_k, one tensor per trainable parameter; weight 0 leaves a record out."""
        weights, parts = torch.as_tensor(weights, device=self._norms.device), self._parts
        if weights.shape != self._norms.shape:
            raise ValueError("weights must be one number per record")
        weights = weights.to(torch.promote_types(self.losses.dtype, torch.float32))
        if not math.isfinite(self._norms.sum().item()):  # 0 * nan is nan, so such records must be removed
            kept = self._norms.isfinite().nonzero()[:, 0]
            weights, parts = weights[kept], [part and part.take(kept) for part in parts]
        with without_autocast(weights.device):
            return [
                torch.zeros_like(parameter) if part is None else like(parameter, part.weighted_sum(weights))
                for parameter, part in zip(self.parameters, parts, strict=True)
            ]


def _pairs(module: nn.Module, rules: Mapping[str, Rule]) -> list[tuple[int, Rule]]:
    return [(id(module.get_parameter(name)), rule) for name, rule in rules.items()]


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested arguments of a call."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _images_last(leaf: Any) -> Any:
    """Return images with their channels last in memory, where convolutions and pooling on a CPU are faster."""
    if not isinstance(leaf, Tensor) or leaf.ndim != 4 or leaf.device.type != "cpu":
        return leaf
    _, channels, height, width = leaf.shape
    if channels == 1 and leaf.is_contiguous():  # same order in memory, so changing the strides is enough
        return leaf.as_strided(leaf.shape, (height * width, 1, width, 1))
    return leaf.to(memory_format=torch.channels_last)
