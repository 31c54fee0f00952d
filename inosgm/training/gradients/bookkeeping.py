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
from inosgm.training.gradients.layers import Rule, has_own_rule, rules_for
from inosgm.training.gradients.per_record import PerRecord, like, norms_of, total
from inosgm.training.gradients.precision import without_autocast


class NotPerRecord(ValueError):
    """A layer was used in a way that hides its records from book-keeping; another engine can serve the model."""


class BookKeeping(Engine):
    """Keeps what each layer was given and the slopes of what it returned; gradients and norms follow from them.

    Each layer is served by Gram matrices or by instantiated gradients, whichever takes fewer operations for its shape,
    and no gradient is computed twice. For one forward pass each layer has a `forward` of its own that takes notes; then
    the model is as it was.

    **Guarantee.** Norms are not below the truth beyond float roundings of a single sum: what cancellation between
    positions could hide is added. It assumes that row k of every layer is record k, which `engine_for` tries and the
    engine cannot know. What it can see is refused with NotPerRecord: a layer whose tensors do not begin with as many
    rows as there are records, and, in the first pass of a mode, a parameter that is used outside of its layer.

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
        n = _records(inputs)
        if not n:
            return self._of_nothing(inputs, targets)
        tape = _Tape(n)
        try:
            outputs, losses = self._forward(tape, _detached(inputs), targets)
            if losses.shape != (n,):
                raise ValueError("loss must give one number per record")
            with without_autocast(self.device):  # rules compute norms in the backward pass
                norms = tape.play_back(losses)
        finally:
            tape.ends.clear()  # they hold the graph, whose hooks hold the tape
        parts = [tape.parts.get(id(parameter)) for parameter in self.parameters]
        return _Kept(self.parameters, losses.detach(), _detached(outputs), norms, parts)

    def _laid_out(self, inputs: Any) -> Any:
        """Return the inputs in the memory layout that suits the model, whose parameters stay as they are."""
        return tree_map(_images_last, inputs) if self._on_images else inputs

    def _forward(self, tape: "_Tape", inputs: Any, targets: Any) -> tuple[Any, Tensor]:
        """Run the model with an ear at its layers; the first time in a mode, count the uses of each parameter."""
        model = self._model
        unchecked = model.training not in self._checked
        uses = _Uses(self.parameters if unchecked else ())
        before = [vars(layer.module).get("forward") for layer in self._layers]
        try:
            for layer in self._layers:  # a forward of its own costs less than a hook, and comes before those of users
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
        """Refuse a parameter that something else than its layers used: its gradient would be incomplete."""
        foreign = {p for layer in self._layers if not has_own_rule(layer.module) for p, _ in layer.rules}
        for name, parameter in self._model.named_parameters():
            if uses[id(parameter)] > tape.calls.get(id(parameter), 0) and id(parameter) not in foreign:
                raise NotPerRecord(f"parameter {name} is used outside of its layer, where book-keeping cannot see it")

    def _of_nothing(self, inputs: Any, targets: Any) -> Gradients:
        """Return the gradients of no record, with outputs in the form that a record would have."""
        one_input, one_target = tree_map(_one_of_zeros, (inputs, targets))  # many models cannot reshape no records
        with torch.no_grad(), self._precision():
            outputs = apply(self._model, one_input)
            losses = self._loss(outputs, one_target)
        empty = tree_map(lambda leaf: leaf[:0] if isinstance(leaf, Tensor) else leaf, outputs)
        norms = torch.zeros(0, dtype=torch.float64, device=losses.device)
        return _Kept(self.parameters, losses[:0], empty, norms, [None] * len(self.parameters))


@dataclass(frozen=True, eq=False)
class _Layer:
    """A module with rules for its own trainable parameters, which are known by their id: tensors are slow to find."""

    module: nn.Module
    rules: list[tuple[int, Rule]]


@dataclass(eq=False, slots=True)
class _Call:
    """One call of a layer: what it was given, and the versions of that, which change when it is overwritten."""

    layer: _Layer
    inputs: tuple[Tensor, ...]
    versions: list[int]


@dataclass(eq=False)
class _Tape:
    """What the layers did in one forward pass, and what follows from it in the backward pass."""

    records: int
    parts: dict[int, PerRecord] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    ends: list[tuple[GradientEdge, _Call | None]] = field(default_factory=list)
    _waiting: dict[int, list[PerRecord]] = field(default_factory=dict)
    _factors: list[tuple[Tensor, ...]] = field(default_factory=list)

    def record(self, layer: _Layer, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a layer, note what it was given, and see to it that the slopes of what it returns are kept."""
        output = forward(*args, **kwargs)
        for parameter, _ in layer.rules:
            self.calls[parameter] = self.calls.get(parameter, 0) + 1
        if not isinstance(output, Tensor) or not output.requires_grad:
            return output  # inside of no_grad: no gradient comes from here
        inputs = tuple(given for given in (*args, *kwargs.values()) if isinstance(given, Tensor))
        kept = tuple(given.detach() for given in inputs)
        call = _Call(layer, kept, [given._version for given in kept])
        # edge and hook are about the output as it is now, whatever overwrites it later
        if output.ndim == 2:  # slopes of one position are small, and kept anyway: they may as well come all at once
            self.ends.append((get_gradient_edge(output), call))
            return output
        if not any(given.requires_grad for given in inputs):
            self.ends.append((get_gradient_edge(output), None))  # the backward pass may stop here
        output.register_hook(partial(self._receive, call))  # type: ignore[no-untyped-call]
        return output

    def play_back(self, losses: Tensor) -> Tensor:
        """Run the backward pass, of which no weight gradients are asked, and return the norms in float64."""
        if losses.requires_grad and self.ends:
            edges, calls = zip(*self.ends, strict=True)
            found = torch.autograd.grad(losses, edges, torch.ones_like(losses), allow_unused=True)
            for call, slopes in zip(calls, found, strict=True):
                if call is not None and slopes is not None:
                    self._receive(call, slopes)
        for parameter in list(self._waiting):  # some output of its layers led nowhere
            self._settle(parameter)
        if not self._factors:
            return losses.new_zeros(self.records, dtype=torch.float64)
        return norms_of(self._factors)

    def _receive(self, call: _Call, slopes: Tensor) -> None:
        """Turn the inputs and slopes of a call into gradients of its parameters: also a tensor hook."""
        self._check(call, slopes)
        for parameter, rule in call.layer.rules:
            waiting = self._waiting.setdefault(parameter, [])
            waiting.append(rule(call.layer.module, call.inputs, slopes))
            if len(waiting) == self.calls[parameter]:
                self._settle(parameter)
        call.inputs = ()

    def _settle(self, parameter: int) -> None:
        """Add up what all calls said about a parameter, and keep it in its cheapest form."""
        part = self.parts[parameter] = total(self._waiting.pop(parameter)).cheapest()
        self._factors.append(part.factors())

    def _check(self, call: _Call, slopes: Tensor) -> None:
        kind = type(call.layer.module).__name__
        if not call.inputs:
            raise RuntimeError(f"a {kind} was differentiated twice: book-keeping serves one backward pass per batch")
        for tensor in (*call.inputs, slopes):
            if tensor.ndim < 1 + (tensor is slopes) or tensor.shape[0] != self.records:
                raise NotPerRecord(
                    f"a {kind} works on a tensor that does not begin with the records of the batch: keep them as the "
                    "first axis, or choose another engine"
                )
        if call.versions != [given._version for given in call.inputs]:
            raise NotPerRecord(f"what a {kind} was given was overwritten in place, so its gradient is lost")


class _Uses(TorchFunctionMode):
    """Counts how often a parameter is given to a function of torch that returns a tensor."""

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
class _Kept(Gradients):
    """Gradients of a batch in the forms that the layers were best served with."""

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
        weights, parts = _paired(weights, self._norms.shape[0], self._norms.device), self._parts
        weights = weights.to(torch.promote_types(self.losses.dtype, torch.float32))
        if not math.isfinite(self._norms.sum().item()):  # 0 * nan is nan: such records must not be there at all
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
    """Walk through nested arguments of a call."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _records(inputs: Any) -> int:
    """Count the records of a batch by its first tensor."""
    if isinstance(inputs, Tensor):
        return len(inputs)
    return int(next(leaf.shape[0] for leaf in _leaves(inputs) if isinstance(leaf, Tensor)))


def _detached(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def _images_last(leaf: Any) -> Any:
    """Return images with their channels last in memory, where convolutions and pooling on a CPU are faster."""
    if not isinstance(leaf, Tensor) or leaf.ndim != 4 or leaf.device.type != "cpu":
        return leaf
    _, channels, height, width = leaf.shape
    if channels == 1 and leaf.is_contiguous():  # the same numbers in the same order: only torch must be told
        return leaf.as_strided(leaf.shape, (height * width, 1, width, 1))
    return leaf.to(memory_format=torch.channels_last)


def _one_of_zeros(leaf: Any) -> Any:
    return leaf.new_zeros((1, *leaf.shape[1:])) if isinstance(leaf, Tensor) else leaf


def _paired(weights: Any, records: int, device: torch.device) -> Tensor:
    """Return weights as a tensor with one number per record."""
    result = torch.as_tensor(weights, device=device)
    if result.shape != (records,):
        raise ValueError("weights must be one number per record")
    return result
