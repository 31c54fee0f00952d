"""The rules of the book-keeping engine: gradients of parameters from inputs and output gradients of a layer."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from inosgm._internal.extras import require_extra
from inosgm.training.gradients.convolution import Windows
from inosgm.training.gradients.per_record import Lookups, Outer, PerRecord, Rows, Single, like, wide

Rule = Callable[[Any, tuple[Tensor, ...], Tensor], PerRecord]
"""(layer, inputs, gradients of its output) -> the gradients of one of its parameters."""

LayerRule = Callable[[Any, tuple[Tensor, ...], Tensor], Tensor | PerRecord]
"""A rule of a user, which may return a tensor whose first axis is the record."""

_REGISTERED: dict[type[nn.Module], dict[str, Rule]] = {}


def rules_for(module: nn.Module) -> Mapping[str, Rule] | str:
    """Return a rule for each trainable parameter that a module itself owns, or why there is none."""
    names = [name for name, value in module._parameters.items() if value is not None and value.requires_grad]
    if not names:
        return {}
    registered = _REGISTERED.get(type(module))
    kind = next((kind for kind in RULES if isinstance(module, kind) and _computes_as(module, kind)), None)
    rules = registered or (RULES[kind] if kind else _of_opacus(module, names))
    missing = [name for name in names if name not in rules]
    return f"no rule for its parameter {missing[0]!r}" if missing else {name: rules[name] for name in names}


def origin_of_rules(module: nn.Module) -> str:
    """Return where the rules of a module come from, for a report."""
    if type(module) in _REGISTERED:
        return "by a registered rule"
    own = any(isinstance(module, kind) and _computes_as(module, kind) for kind in RULES)
    return "by a rule" if own else "by a rule of Opacus"


def refused_option(module: nn.Module) -> str | None:
    """Return why the gradient of a trained embedding cannot be book-kept, or None."""
    if isinstance(module, nn.Embedding) and module.weight.requires_grad:
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(module, option):
                return f"its gradient depends on {option}={getattr(module, option)!r}"
    return None


def register_layer_rule(kind: type[nn.Module], rules: Mapping[str, "LayerRule"]) -> None:
    """Give the book-keeping engine a rule for a layer of your own: the gradients of its parameters, one per record.

    Most layers need no rule: parameters are followed through the torch functions that they are passed to. A rule is
    for a layer that uses them in a way that is not followed (a custom `torch.autograd.Function`, say), or for which a
    faster formula is known.

    **Guarantee.** A rule is tried on synthetic records before it is used: if a norm or a sum differs from those of one
    backward pass per record, another engine is chosen.

    Args:
        kind: The class of the layer; subclasses need a rule of their own.
        rules: For each trainable parameter by name, a function of (layer, inputs, output_grads) that returns a tensor
            whose first axis is the record, or a `PerRecord`. `inputs` is a tuple of the tensors that the layer was
            called with, `output_grads` the derivatives of the losses by its output; both begin with the records. Half
            precision must be widened to float32 before anything is added up.

    Raises:
        TypeError: for a class that is no module, or a rule that cannot be called.

    >>> class Scale(nn.Module):
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(torch.ones(width))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> register_layer_rule(Scale, {"factor": lambda layer, inputs, output_grads: inputs[0] * output_grads})
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise TypeError(f"kind must be a class of torch modules, got {kind!r}")
    if not rules or not all(callable(rule) for rule in rules.values()):
        raise TypeError(f"rules must give a function for each parameter by name, got {dict(rules)!r}")
    _REGISTERED[kind] = {name: partial(_as_per_record, rule) for name, rule in rules.items()}


def _as_per_record(rule: "LayerRule", module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    gradients = rule(module, inputs, output_grads)
    return gradients if isinstance(gradients, PerRecord) else Rows(gradients)


def _computes_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module computes what a layer of torch does: a subclass may have its own `forward`."""
    names = [name for name in ("forward", "_conv_forward") if hasattr(kind, name)]
    return all(getattr(type(module), name) is getattr(kind, name) and name not in vars(module) for name in names)


def _matrix(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    given = like(output_grads, inputs[0])
    if output_grads.ndim == 2:
        return Single(given, output_grads)
    n = output_grads.shape[0]
    if output_grads.numel() == n * output_grads.shape[-1]:  # one position with an axis of its own
        return Single(given.reshape(n, -1), output_grads.reshape(n, -1))
    return Outer(given.reshape(n, -1, given.shape[-1]), output_grads.reshape(n, -1, output_grads.shape[-1]))


def _table(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    assert isinstance(module, nn.Embedding)
    n, indices = output_grads.shape[0], inputs[0].reshape(output_grads.shape[0], -1)
    output_grads = output_grads.reshape(n, -1, output_grads.shape[-1])
    if module.padding_idx is not None:
        output_grads = output_grads.masked_fill((indices == module.padding_idx)[..., None], 0.0)
    return Lookups(indices, output_grads, module.num_embeddings)


def _windows(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    assert isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    return Windows.of(module, inputs[0], output_grads)


def _sum_to_last(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    """Return the gradients of a vector that was added to the last axis at every position."""
    return Rows(_sum(output_grads, 1, output_grads.ndim - 1))


def _sum_to_channels(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    """Return the gradients of a vector that was added to the channels, the axis after the record."""
    return Rows(_sum(output_grads, 2, output_grads.ndim))


def _scale_of_layer(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    """Return the gradients of the factors of a LayerNorm or RMSNorm."""
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    normalise = F.layer_norm if isinstance(module, nn.LayerNorm) else F.rms_norm
    standard = normalise(wide(inputs[0]), list(module.normalized_shape), eps=module.eps)  # type: ignore[arg-type]
    return _shift_of_layer(module, inputs, output_grads * standard)


def _shift_of_layer(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    return Rows(_sum(output_grads, 1, output_grads.ndim - len(module.normalized_shape)))


def _scale_of_groups(module: nn.Module, inputs: tuple[Tensor, ...], output_grads: Tensor) -> PerRecord:
    assert isinstance(module, nn.GroupNorm)
    standard = F.group_norm(wide(inputs[0]), module.num_groups, eps=module.eps)
    return _sum_to_channels(module, inputs, output_grads * standard)


def _sum(values: Tensor, begin: int, end: int) -> Tensor:
    """Sum over the axes from begin to before end, in float32 or better."""
    values = wide(values)
    return values.sum(tuple(range(begin, end))) if begin < end else values


def _of_opacus(module: nn.Module, names: list[str]) -> dict[str, Rule]:
    """Return Opacus' rule for a module, if it has one; only somebody who has imported it can have added one."""
    if "opacus" not in sys.modules and not type(module).__module__.startswith("torch.nn."):
        return {}
    require_extra("opacus")
    from opacus.grad_sample import GradSampleModule  # slow to import, and seldom needed

    sampler = GradSampleModule.GRAD_SAMPLERS.get(type(module))
    return {} if sampler is None else {name: partial(_sampled, sampler, name) for name in names}


def _sampled(
    sampler: Callable[[nn.Module, list[Tensor], Tensor], dict[nn.Parameter, Tensor]],
    name: str,
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    output_grads: Tensor,
) -> PerRecord:
    """Apply a rule of Opacus to widened tensors, because it adds up in the precision that it is given."""
    given = [wide(tensor) if tensor.is_floating_point() else tensor for tensor in inputs]
    return Rows(sampler(module, given, wide(output_grads))[module.get_parameter(name)])


_CONVOLUTION: dict[str, Rule] = {"weight": _windows, "bias": _sum_to_channels}

RULES: dict[type[nn.Module], dict[str, Rule]] = {
    nn.Linear: {"weight": _matrix, "bias": _sum_to_last},
    nn.Conv1d: _CONVOLUTION,
    nn.Conv2d: _CONVOLUTION,
    nn.Conv3d: _CONVOLUTION,
    nn.Embedding: {"weight": _table},
    nn.LayerNorm: {"weight": _scale_of_layer, "bias": _shift_of_layer},
    nn.GroupNorm: {"weight": _scale_of_groups, "bias": _sum_to_channels},
    nn.RMSNorm: {"weight": _scale_of_layer},
}
"""The rules of this library, one for each parameter of a layer; Opacus has more."""
