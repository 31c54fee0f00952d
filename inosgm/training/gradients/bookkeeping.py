"""Book-keeping: per-record norms and the weighted gradient from one forward and one backward pass."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, Gradients, PerRecordLoss, apply
from inosgm.training.gradients.batches import detached, size
from inosgm.training.gradients.function_rules import FUNCTION_RULES
from inosgm.training.gradients.groups import Groups, grouped
from inosgm.training.gradients.instantiated import no_gradients
from inosgm.training.gradients.layers import Rule, refused_option, rules_for
from inosgm.training.gradients.parameter_flow import NotPerRecord, ParameterFlow
from inosgm.training.gradients.per_record import PerRecord, like, norms_of, total
from inosgm.training.gradients.precision import without_autocast
from inosgm.training.gradients.randomness import random_state, set_random_state


class BookKeeping(Engine):
    """Keeps the inputs and the output gradients of every layer, and computes norms and weighted sums from them.

    Each layer is served by Gram matrices or by instantiated gradients, whichever takes fewer operations for its shape,
    and no gradient is computed twice. During one forward pass the `forward` of each layer is replaced by one that also
    records the call; afterwards the original is put back. Parameters of modules without a rule, and parameters that are
    used outside of their layer, are followed through the torch functions that they are passed to (`parameter_flow`).

    **Guarantee.** Norms are below the true ones by the rounding errors of a single sum at most: a bound on what
    cancellation between positions could hide is added. The engine assumes that row k of every layer is record k, which
    `engine_for` tests. It raises NotPerRecord for a layer or a function whose tensors do not begin with as many rows as
    there are records.

    Args:
        model: A module; `unsupported` says what it may not have.
        loss: Takes outputs and targets, gives one loss per record.
        autocast: The precision of the forward pass; norms and sums are in float32 or better all the same.

    Raises:
        NotPerRecord: for a model with an embedding whose gradient depends on an option.

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
        self._layers: list[_Layer] = []
        self._loose = {id(parameter) for parameter in self.parameters}
        for name, module in model.named_modules():
            rules = rules_for(module)
            if isinstance(rules, str) or not rules:
                continue
            self._layers.append(_Layer(module, name, _pairs(module, rules)))
            self._loose -= {parameter for parameter, _ in self._layers[-1].rules}
        self._on_images = any(isinstance(module, nn.Conv2d) for module in model.modules())
        self._checked: set[bool] = set()

    @classmethod
    def unsupported(cls, model: nn.Module) -> str | None:
        """Return why book-keeping cannot serve a model, naming the first layer, or None if it may be able to."""
        for name, module in model.named_modules():
            reason = refused_option(module)
            if reason is not None:
                return f"book-keeping cannot serve {name or 'the model'} ({type(module).__name__}): {reason}"
        return None

    def gradients(self, inputs: Any, targets: Any, groups: Groups | None = None) -> Gradients:
        """Return the gradients of a batch, which may hold no record at all; those of units if there are groups.

        Raises:
            NotPerRecord: when a layer was used in a way that hides its records.
            ValueError: when the loss does not give one number per record.
        """
        n = size(inputs)
        if not n:
            return no_gradients(self, inputs, targets)
        tape = _Tape(n, groups)
        try:
            outputs, losses, tape = self._forward(tape, detached(inputs), targets)
            if losses.shape != (n,):
                raise ValueError("loss must give one number per record")
            with without_autocast(self.device):  # because rules compute norms in the backward pass
                norms = tape.play_back(losses)
        finally:
            tape.ends.clear()  # breaks a reference cycle: they hold the graph, whose hooks hold the tape
        parts = [tape.parts.get(id(parameter)) for parameter in self.parameters]
        return BookKeptGradients(self.parameters, losses.detach(), detached(outputs), norms, parts)

    def losses(self, inputs: Any, targets: Any) -> Tensor:
        """Return the losses of a batch, by a forward pass alone, drawing what `gradients` would."""
        _, losses, tape = self._forward(_Tape(size(inputs)), detached(inputs), targets)
        tape.ends.clear()
        return losses.detach()

    def followed(self) -> frozenset[int]:
        """Return the ids of the parameters that are followed through torch functions, as far as is known."""
        return frozenset(self._loose)

    def _laid_out(self, inputs: Any) -> Any:
        """Return the inputs in the memory layout that is fastest for the model; parameters keep theirs."""
        return tree_map(_images_last, inputs) if self._on_images else inputs

    def _forward(self, tape: "_Tape", inputs: Any, targets: Any) -> tuple[Any, Tensor, "_Tape"]:
        """Run the model and record the calls of its layers.

        The first pass of a mode runs again, with the same random numbers, until every parameter is followed that is
        used outside of its layer.
        """
        training = self._model.training
        state = None if training in self._checked else random_state(self.device)
        while True:
            outputs, losses, strays = self._run_recorded(tape, inputs, targets, learning=state is not None)
            if not strays:
                self._checked.add(training)
                return outputs, losses, tape
            assert state is not None
            self._follow(strays)
            tape.ends.clear()
            tape = _Tape(tape.records, tape.groups)
            set_random_state(state, self.device)

    def _follow(self, strays: set[int]) -> None:
        """Follow parameters through functions, and all others of their layers."""
        for layer in [layer for layer in self._layers if any(parameter in strays for parameter, _ in layer.rules)]:
            strays = strays | {parameter for parameter, _ in layer.rules}
        self._layers = [layer for layer in self._layers if not any(parameter in strays for parameter, _ in layer.rules)]
        self._loose |= strays

    def _run_recorded(
        self, tape: "_Tape", inputs: Any, targets: Any, *, learning: bool
    ) -> tuple[Any, Tensor, set[int]]:
        """Return outputs, losses and, when learning, the parameters that are used outside of their layers."""
        flow = None
        if learning or self._loose:
            flow = ParameterFlow(tape.records, self._model, self._loose, tape.keep, FUNCTION_RULES, learning=learning)
        tape.flow = flow
        before = [vars(layer.module).get("forward") for layer in self._layers]
        try:
            for layer in self._layers:  # replacing forward costs less than a hook, and runs before the hooks of users
                assert layer.module is not None
                vars(layer.module)["forward"] = partial(tape.record, layer, layer.module.forward)
            with self._precision(), nullcontext() if flow is None else flow:
                outputs = apply(self._model, self._laid_out(inputs))
                losses = self._loss(outputs, targets)
        finally:
            tape.flow = None
            for layer, forward in zip(self._layers, before, strict=True):
                if forward is None:
                    vars(layer.module).pop("forward", None)
                else:
                    vars(layer.module)["forward"] = forward
        return outputs, losses, flow.strays if learning and flow is not None else set()


@dataclass(frozen=True, eq=False)
class _Layer:
    """A module with the rules of its own trainable parameters, keyed by id because hashing tensors is slow.

    A call of a torch function is recorded as a layer without a module, named after the function.
    """

    module: nn.Module | None
    name: str
    rules: Sequence[tuple[int, Rule]]

    @property
    def kind(self) -> str:
        """The type of the module, or the name of the function."""
        return self.name if self.module is None else type(self.module).__name__


@dataclass(eq=False, slots=True)
class _Call:
    """One call of a layer: its inputs, and their version counters, which show whether they were overwritten."""

    layer: _Layer
    inputs: tuple[Tensor, ...]
    versions: list[int]
    done: bool = False


@dataclass(eq=False)
class _Tape:
    """Records the calls of layers in one forward pass, and computes gradients from them in the backward pass."""

    records: int
    groups: Groups | None = None
    parts: dict[int, PerRecord] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    ends: list[tuple[GradientEdge, _Call | None]] = field(default_factory=list)
    flow: ParameterFlow | None = None
    _waiting: dict[int, list[PerRecord]] = field(default_factory=dict)
    _factors: list[tuple[Tensor, ...]] = field(default_factory=list)

    def record(self, layer: _Layer, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a layer, keep its inputs, and arrange that the gradients of its output are kept."""
        flow = self.flow
        if flow is None:
            output = forward(*args, **kwargs)
        else:
            own = [parameter for parameter, _ in layer.rules]
            flow.inside.append(own)
            try:
                output = forward(*args, **kwargs)
            finally:
                flow.inside.pop()
            if flow.follows((*args, *kwargs.values())):  # a table of positions, say: no record of the batch
                if not flow.learning:
                    raise NotPerRecord(f"a {layer.kind} was given records before, and is given none now")
                flow.strays.update(own)
        if not isinstance(output, Tensor) or not output.requires_grad:
            return output  # inside of no_grad, where no gradient arises
        inputs = tuple(given for given in (*args, *kwargs.values()) if isinstance(given, Tensor))
        self._keep(layer, output, inputs)
        return output

    def keep(self, name: str, output: Tensor, inputs: Sequence[Tensor], rules: Sequence[tuple[int, Rule]]) -> None:
        """Keep the inputs of a torch function, and arrange that the gradients of its output are kept."""
        self._keep(_Layer(None, name, rules), output, tuple(inputs))

    def _keep(self, layer: _Layer, output: Tensor, inputs: tuple[Tensor, ...]) -> None:
        for parameter, _ in layer.rules:
            self.calls[parameter] = self.calls.get(parameter, 0) + 1
        kept = tuple(given.detach() for given in inputs)
        call = _Call(layer, kept, [given._version for given in kept])
        # edge and hook refer to the output as it is now, even if it is overwritten later
        if output.ndim == 2:  # gradients of one position are small and kept anyway, so they may arrive all at once
            self.ends.append((get_gradient_edge(output), call))
            return
        if not any(given.requires_grad for given in inputs):
            self.ends.append((get_gradient_edge(output), None))  # the backward pass may stop here
        output.register_hook(partial(self._receive, call))  # type: ignore[no-untyped-call]

    def play_back(self, losses: Tensor) -> Tensor:
        """Run the backward pass without computing weight gradients, and return the norms in float64."""
        if losses.requires_grad and self.ends:
            edges, calls = zip(*self.ends, strict=True)
            seeds = torch.ones_like(losses) if self.groups is None else self.groups.seeds(losses)
            gradients = torch.autograd.grad(losses, edges, seeds, allow_unused=True)
            for call, output_grads in zip(calls, gradients, strict=True):
                if call is not None and output_grads is not None:
                    self._receive(call, output_grads)
        for parameter in list(self._waiting):  # an output of its layers did not reach the loss
            self._settle(parameter)
        if not self._factors:
            count = self.records if self.groups is None else self.groups.count
            return losses.new_zeros(count, dtype=torch.float64)
        return norms_of(self._factors)

    def _receive(self, call: _Call, output_grads: Tensor) -> None:
        """Turn inputs and output gradients of a call into gradients of its parameters; also used as a tensor hook."""
        self._check(call, output_grads)
        for parameter, rule in call.layer.rules:
            waiting = self._waiting.setdefault(parameter, [])
            waiting.append(rule(call.layer.module, call.inputs, output_grads))
            if len(waiting) == self.calls[parameter]:
                self._settle(parameter)
        call.inputs, call.done = (), True

    def _settle(self, parameter: int) -> None:
        """Add up the gradients of a parameter from all calls, and keep them in their cheapest form."""
        part = total(self._waiting.pop(parameter))
        part = self.parts[parameter] = part.cheapest() if self.groups is None else grouped(part, self.groups)
        self._factors.append(part.factors())

    def _check(self, call: _Call, output_grads: Tensor) -> None:
        kind = call.layer.kind
        if call.done:
            raise RuntimeError(f"a {kind} was differentiated twice: book-keeping serves one backward pass per batch")
        # functions have checked their inputs, in which records and positions may share an axis
        for tensor in () if call.layer.module is None else (*call.inputs, output_grads):
            if tensor.ndim < 1 + (tensor is output_grads) or tensor.shape[0] != self.records:
                raise NotPerRecord(
                    f"a {kind} works on a tensor that does not begin with the records of the batch: keep them as the "
                    "first axis, or choose another engine"
                )
        if call.versions != [given._version for given in call.inputs]:
            raise NotPerRecord(f"the input of a {kind} was overwritten in place, so its gradient is lost")


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


def _images_last(leaf: Any) -> Any:
    """Return images with their channels last in memory, where convolutions and pooling on a CPU are faster."""
    if not isinstance(leaf, Tensor) or leaf.ndim != 4 or leaf.device.type != "cpu":
        return leaf
    _, channels, height, width = leaf.shape
    if channels == 1 and leaf.is_contiguous():  # same order in memory, so changing the strides is enough
        return leaf.as_strided(leaf.shape, (height * width, 1, width, 1))
    return leaf.to(memory_format=torch.channels_last)
