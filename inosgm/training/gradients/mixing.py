"""Detection of models and losses that mix the records of a batch: clipping cannot make their gradients private."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from inosgm._internal.trees import tree_leaves, tree_map
from inosgm.training.gradients.base import PerRecordLoss, apply
from inosgm.training.gradients.batches import rows, size, synthetic, unambiguous_size
from inosgm.training.gradients.sandbox import perturbed, sandbox, varied_batches, without_randomness
from inosgm.training.gradients.snapshot import Snapshot

_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


def refuse_mixing(model: nn.Module) -> None:
    """Raise if a layer of the model is known to mix the records of a batch, or to remember them, in training mode.

    A normalisation that stays in evaluation mode when model.train() is called (because it overrides `train`) and has
    running statistics processes each record independently, and is accepted.

    Raises:
        ValueError: naming the layer and what to put in its place.

    >>> refuse_mixing(nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8)))
    Traceback (most recent call last):
    ...
    ValueError: model must process each record independently, but its layer '1' (BatchNorm1d) ... GroupNorm(1, 8), ...
    """
    if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise ValueError(
            "model has lazy layers that do not know their sizes yet: call it once on a synthetic batch first"
        )
    _refuse_rescaling(model)
    mixing = mixing_layers(model)
    if not mixing:
        return
    path, module = mixing[0]
    how = "scales a record by its batch" if isinstance(module, _BatchNorm) else "keeps statistics of the records"
    further = f" (so do {len(mixing) - 1} more)" if len(mixing) > 1 else ""
    raise ValueError(
        f"model must process each record independently, but its layer {path!r} ({type(module).__name__}) "
        f"{how}{further}: replace it by {_replacement(module)}{_by_fix(module)}"
    )


def replaceable(module: nn.Module) -> bool:
    """Return whether `fixed` replaces a normalisation: it, or the class that it inherits from, is one of torch."""
    kind = next((kind for kind in type(module).__mro__ if kind in _NORMS), None)
    return kind is not None and type(module).forward is kind.forward and not any(module.children())


def _by_fix(module: nn.Module) -> str:
    if replaceable(module):
        return ", or have that done by fix=True (in a configuration, training.fix: true)"
    return f" (fix=True does not do that, because {type(module).__name__} has a `forward` or parts of its own)"


def _refuse_rescaling(model: nn.Module) -> None:
    """Raise if an embedding, frozen or not, rescales the rows that it looks up: the table shows which they were."""
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            limit = module.max_norm
            raise ValueError(
                f"model must not change its parameters as it runs, but its layer {path!r} ({type(module).__name__}) "
                f"has max_norm={limit:g}: torch rescales the rows that were looked up, so that the table tells which "
                "of them occur in the data. Set max_norm to None, and scale in forward what was looked up: "
                f"e * ({limit:g} / e.norm(dim=-1, keepdim=True)).clamp(max=1)"
            )


def mixing_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """List the layers, by their paths, that mix or remember records when the model is in training mode."""
    with sandbox(model):
        return [(path, module) for path, module in model.named_modules() if _mixes(module)]


def groups(module: _BatchNorm) -> int:
    """Return the number of groups of a GroupNorm that replaces a BatchNorm: that of Opacus, or 1 for BatchNorm1d.

    A record of BatchNorm1d may be a single number per feature, which a group of one feature would turn into 0.
    """
    return 1 if isinstance(module, nn.BatchNorm1d) else math.gcd(32, module.num_features)


def mixes_records(
    model: nn.Module, loss: PerRecordLoss, inputs: Any, targets: Any, *, training: bool = True
) -> str | None:
    """Return how a model or its loss mixes the records of a batch, or None if no test shows that it does.

    The tests use synthetic records with the form of inputs and targets. Outputs and loss of a record must be the same
    beside other records, and in a smaller batch if randomness can be switched off; and no state of model and loss may
    change. The tests run with the parameters as they are, and again with perturbed parameters on more varied records
    if the model accepts them. They cannot prove that a model processes each record independently.
    """
    like = inputs, targets
    with sandbox(model, loss=loss):
        model.train(training)
        generator = torch.Generator().manual_seed(0)
        records = unambiguous_size(like, model.parameters())
        how = _mixes_pair(model, loss, *(synthetic(like, records, generator) for _ in range(2)))
        if how is None:
            with perturbed(model):
                batches = varied_batches(model, partial(_outputs_and_losses, model, loss), like, records, 2)
                how = _mixes_pair(model, loss, *batches) if batches else None
        return how


def _mixes_pair(model: nn.Module, loss: PerRecordLoss, batch: Any, others: Any) -> str | None:
    """Return how two batches of the same size show that records are mixed, or None."""
    snapshot = Snapshot(model=model, loss=loss)
    snapshot.take()
    expected = _reproducible(model, loss, batch)
    change = snapshot.change()
    if change is not None:
        return f"{change} as it runs: a state that is never released"
    for position in range(size(batch)):
        whose = _differing(expected, _reproducible(model, loss, _beside(batch, others, position)), position, 0.8)
        if whose:
            return f"{whose} says something else about a record beside other records"
    with without_randomness(model, lambda: _outputs_and_losses(model, loss, *batch)) as quiet:
        together = _reproducible(model, loss, batch)
        for fewer in (1, 2) if quiet else ():
            whose = _differing(together, _reproducible(model, loss, rows(batch, slice(fewer))), 0, 0.5)
            if whose:  # the power is .5, not .8, because sums of another length are rounded differently
                return f"{whose} says something else about a record when it is {'alone' if fewer == 1 else 'in a pair'}"
    return None


def _mixes(module: nn.Module) -> bool:
    if isinstance(module, _BatchNorm):
        return module.training or module.running_mean is None
    return isinstance(module, _InstanceNorm) and module.training and module.running_mean is not None


def _replacement(module: nn.Module) -> str:
    if isinstance(module, _BatchNorm):
        return f"GroupNorm({groups(module)}, {module.num_features})"
    return f"{type(module).__name__}({module.num_features}, track_running_stats=False)"


def _reproducible(model: nn.Module, loss: PerRecordLoss, batch: Any) -> tuple[Any, Tensor]:
    """Return outputs and losses, computed with the same random numbers each time."""
    torch.manual_seed(0)
    return _outputs_and_losses(model, loss, *batch)


def _outputs_and_losses(model: nn.Module, loss: PerRecordLoss, inputs: Any, targets: Any) -> tuple[Any, Tensor]:
    outputs = apply(model, inputs)
    return outputs, loss(outputs, targets)


def _beside(batch: Any, others: Any, position: int) -> Any:
    """Return the record at a position of a batch, with other records at all other positions."""

    def swap(column: Tensor, other: Tensor) -> Tensor:
        swapped = other.clone()
        swapped[position] = column[position]
        return swapped

    return tree_map(swap, batch, others)


def _differing(one: tuple[Any, Tensor], other: tuple[Any, Tensor], position: int, power: float) -> str | None:
    """Return whose result for one record differs by more than the given power of the precision, or None."""
    records = one[1].shape[0]
    for whose, mine, theirs in zip(("the model", "the loss"), one, other, strict=True):
        for a, b in zip(tree_leaves(mine), tree_leaves(theirs), strict=True):
            if isinstance(a, Tensor) and a.shape[:1] == (records,) and a.numel():
                tolerance = torch.finfo(a.dtype).eps ** power if a.is_floating_point() else 0.0
                a, b = a[position].detach().double(), b[position].detach().double()
                scale = float(a.abs().nan_to_num(0, 0).max()) + 1e-3  # numbers near 0 are mostly rounding
                if not torch.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True):
                    return whose
    return None
