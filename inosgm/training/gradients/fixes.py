"""Replacement of layers that mix records."""

import copy
from collections import Counter

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.optim import Optimizer

from inosgm.training.gradients.mixing import groups, mixing_layers, replaceable


def fixed(model: nn.Module) -> nn.Module:
    """Return a copy of a model in which layers that mix records are replaced.

    BatchNorm becomes GroupNorm, which keeps its scale and shift but needs training; InstanceNorm forgets its running
    statistics. Make the optimizer for the copy. The rest of the copy equals the model.

    >>> fixed(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))[1]
    GroupNorm(8, 8, ...)
    """
    model = copy.deepcopy(model)
    replaced = _replacements(model)
    _put(model, replaced)
    return replaced.get(model, model)


def fix_in_place(model: nn.Module, optimizer: Optimizer) -> None:
    """Replace layers as `fixed` does, inside the model and inside the groups of its optimizer.

    Raises:
        ValueError: when the model itself is such a layer, when a replaced parameter is shared with another layer, and
            when the optimizer already remembers something about it. Then nothing has changed.
    """
    replaced = _replacements(model)
    if model in replaced:
        raise ValueError(f"model is itself a {type(model).__name__}: train fixed(model), with an optimizer made for it")
    if any(optimizer.state.get(parameter) for old in replaced for parameter in old.parameters()):
        raise ValueError("optimizer has already stepped: fix the model before the first step")
    heirs = {id(parameter): heir for old, new in replaced.items() for parameter, heir in _lines(old, new)}
    for group in optimizer.param_groups:
        group["params"] = [heirs.get(id(parameter), parameter) for parameter in group["params"]]
    _put(model, replaced)


def _replacements(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Return the replacement of each layer that needs one."""
    mixing = {module for _, module in mixing_layers(model)}
    replaced: dict[nn.Module, nn.Module] = {}
    with torch.random.fork_rng([]):  # new layers draw parameters, which are then overwritten
        for module in model.modules():
            if module in mixing and replaceable(module):
                replaced[module] = _like(module, _norm(module))
    uses = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    for module in replaced:
        for name, parameter in module.named_parameters():
            if uses[id(parameter)] > 1:
                kind = type(module).__name__
                raise ValueError(f"model shares the parameter {name!r} of a {kind} to replace: untie it first")
    return replaced


def _norm(module: nn.Module) -> nn.Module:
    """Return a normalisation of single records; Opacus' own keep running statistics, or turn features into 0."""
    if isinstance(module, _BatchNorm):
        return nn.GroupNorm(groups(module), module.num_features, eps=module.eps, affine=module.affine)
    assert isinstance(module, _InstanceNorm)
    kind = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[_rank(module)]
    return kind(module.num_features, eps=module.eps, affine=module.affine)


def _rank(module: _InstanceNorm) -> int:
    """Return the number of spatial axes of an InstanceNorm."""
    ranks = {nn.InstanceNorm1d: 1, nn.InstanceNorm2d: 2, nn.InstanceNorm3d: 3}
    return next(rank for kind, rank in ranks.items() if isinstance(module, kind))


def _like(old: nn.Module, new: nn.Module) -> nn.Module:
    """Give a new layer the parameters, mode, device and precision of the old one."""
    for parameter in old.parameters():
        new.to(parameter.device, parameter.dtype)
    known = new.state_dict()
    new.load_state_dict({name: value for name, value in old.state_dict().items() if name in known})
    for parameter, heir in _lines(old, new):
        heir.requires_grad_(parameter.requires_grad)
    return new.train(old.training)


def _lines(old: nn.Module, new: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Pair the parameters of both layers by their names."""
    heirs = dict(new.named_parameters())
    return [(parameter, heirs[name]) for name, parameter in old.named_parameters()]


def _put(model: nn.Module, replaced: dict[nn.Module, nn.Module]) -> None:
    for parent in list(model.modules()):
        for name, child in parent._modules.items():  # a layer may have several names
            if child in replaced:
                setattr(parent, name, replaced[child])
