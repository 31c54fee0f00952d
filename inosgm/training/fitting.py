"""Whether a model, an optimizer and a learning-rate schedule can be trained together."""

from torch import nn
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from inosgm.training.gradients.precision import WIDE


def require_fitting(model: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None) -> None:
    """Raise unless the optimizer updates what the gradients are about, and nothing more is asked of a step."""
    trainable = {id(parameter): name for name, parameter in model.named_parameters() if parameter.requires_grad}
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    idle = [name for identity, name in trainable.items() if identity not in updated]
    if not trainable:
        raise ValueError("model must have a parameter to train: none has requires_grad")
    if idle:
        raise ValueError(
            f"optimizer must update every trainable parameter of the model, and does not update {idle[0]!r}: give it "
            "model.parameters(), or freeze what is not trained with requires_grad_(False)"
        )
    coarse = [name for name, p in model.named_parameters() if p.requires_grad and p.dtype not in WIDE]
    if coarse:
        raise TypeError(
            f"model must have parameters in float32 or float64, and {coarse[0]!r} is not: sums in half precision lose "
            "records; train with autocast=torch.bfloat16 instead"
        )
    if updated - {id(parameter) for parameter in model.parameters()}:
        raise ValueError("optimizer must update parameters of the model only: was it made for another model?")
    if isinstance(optimizer, LBFGS):
        raise TypeError("optimizer must not need a closure: each look at the data is a release; LBFGS takes many")
    if schedule is not None and (not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau)):
        raise TypeError(
            "schedule must be a torch learning-rate schedule that goes by the number of steps: one that goes by a loss "
            f"would spend budget, got {type(schedule).__name__}"
        )
    if schedule is not None and schedule.optimizer is not optimizer:
        raise ValueError("schedule must belong to the optimizer that is given")


def put_into_training(model: nn.Module) -> None:
    """Put a model into training mode by `train`, unless all of it is in it and no module has a `train` of its own.

    To look is several times cheaper than to write.
    """
    modules = [model]
    while modules:
        module = modules.pop()
        own = vars(module)
        if not own["training"] or "train" in own or type(module).train is not nn.Module.train:
            model.train()
            return
        modules += [child for child in own["_modules"].values() if child is not None]


def clear_gradients(optimizer: Optimizer) -> None:
    """Remove the gradients of all parameters of an optimizer, as `zero_grad` does at several times the cost."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
