"""Putting layers that training with privacy can handle in the place of those that it cannot."""

import copy
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.optim import Optimizer

from inosgm.sgd.gradients.mixing import groups, mixing_layers

_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


def fixed(model: nn.Module) -> nn.Module:
    """Return a copy of a model in which layers that mix records, or that are slow record by record, are replaced.

    BatchNorm becomes GroupNorm, which keeps its scale and shift but needs training; InstanceNorm forgets its running
    statistics; LSTM, GRU and MultiheadAttention become the layers of Opacus that compute the same from parts with
    fast gradients. Make the optimizer for the copy. The rest of the copy equals the model.

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
    heirs = {id(parameter): list[nn.Parameter]() for old in replaced for parameter in old.parameters()}
    for module in model.modules():
        if not any(module is part for old in replaced for part in old.modules()):
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) in heirs:
                    raise ValueError(f"model shares its parameter {name!r} with a layer to replace: untie them first")
    if any(optimizer.state.get(parameter) for old in replaced for parameter in old.parameters()):
        raise ValueError("optimizer has already stepped: fix the model before the first step")
    for old, new in replaced.items():
        for parameter, ancestor in _ancestors(old, new):
            heirs[id(ancestor)].append(parameter)
    for group in optimizer.param_groups:
        lines = [heirs.get(id(parameter), [parameter]) for parameter in group["params"]]
        if "param_names" in group:
            names = zip(group["param_names"], lines, strict=True)
            group["param_names"] = [name for name, line in names for _ in line]
        group["params"] = [parameter for line in lines for parameter in line]
    _put(model, replaced)


def _replacements(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Return what replaces which layer."""
    mixing = {module for _, module in mixing_layers(model)}
    # its forward in evaluation mode reads the parameters of its attention by name
    kept = {module.self_attn for module in model.modules() if isinstance(module, nn.TransformerEncoderLayer)}
    replaced: dict[nn.Module, nn.Module] = {}
    for module in model.modules():
        if module in mixing and type(module) in _NORMS:
            replaced[module] = _like(module, _norm(module))
        elif type(module) in (nn.LSTM, nn.GRU, nn.MultiheadAttention) and module not in kept:
            trained = any(parameter.requires_grad for parameter in module.parameters())
            if trained and not getattr(module, "proj_size", 0):  # Opacus' DPLSTM has no projection
                replaced[module] = _like(module, _of_opacus(module))
    return replaced


def _of_opacus(module: nn.Module) -> nn.Module:
    from opacus.validators import ModuleValidator  # takes seconds to import

    replacement: nn.Module = ModuleValidator.FIXERS[type(module)](module)
    return replacement


def _norm(module: nn.Module) -> nn.Module:
    """Return a norm of single records; Opacus' own leave statistics running, or turn single features into 0."""
    if isinstance(module, _BatchNorm):
        return nn.GroupNorm(groups(module), module.num_features, eps=module.eps, affine=module.affine)
    assert isinstance(module, _InstanceNorm)
    return type(module)(module.num_features, eps=module.eps, affine=module.affine)


def _like(old: nn.Module, new: nn.Module) -> nn.Module:
    """Give a new layer the parameters, mode, device and precision of the old one."""
    for parameter in old.parameters():
        new.to(parameter.device, parameter.dtype)
    known = new.state_dict()
    new.load_state_dict({name: value for name, value in old.state_dict().items() if name in known})
    for parameter, ancestor in _ancestors(old, new):
        parameter.requires_grad_(ancestor.requires_grad)
    return new.train(old.training)


def _ancestors(old: nn.Module, new: nn.Module) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
    """Pair each new parameter with the old one of its name, or, where layers were cut up, of its kind."""
    names = dict(old.named_parameters())
    for name, parameter in new.named_parameters():
        alike = [old_name for old_name in names if old_name.endswith(name.rpartition(".")[2])]
        yield parameter, names.get(name, names[alike[0] if alike else next(iter(names))])


def _put(model: nn.Module, replaced: dict[nn.Module, nn.Module]) -> None:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if child in replaced:
                setattr(parent, name, replaced[child])
