"""The conditions under which shadow models can be trained as a stack."""

from torch import nn, optim

from inosgm.audit.ensemble.stack import layers_of
from inosgm.datasets import Dataset
from inosgm.experiments.components import Learner, learner_of
from inosgm.experiments.config import TrainingConfig
from inosgm.training.gradients.precision import WIDE

ACTIVATIONS = (
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Identity,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Softplus,
)
"""Elementwise activations, which act on stacked networks as on single ones."""

OPTIMIZERS = (
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.Adadelta,
    optim.Adagrad,
    optim.RMSprop,
)
"""Elementwise optimizers, which update stacked networks as single ones."""


def unstackable(config: TrainingConfig, dataset: Dataset) -> str | None:
    """Return why models of a configuration cannot be trained as one stack, or None if they can.

    They can if they are made of linear layers and elementwise activations, learn classes by cross-entropy, have an
    elementwise optimizer, and are trained on a CPU. A limit on the physical batch does not matter: a stack takes little
    memory, and the limit changes no result but for roundings.
    """
    fit = config.training
    if fit.device != "cpu":
        return f"models are stacked on a CPU only, and training.device is {fit.device}"
    if fit.autocast is not None:
        return f"the forward pass is in {fit.autocast}"
    learner = learner_of(config.model_copy(update={"adjustment": None}), dataset)
    return _about_model(learner.model, dataset.input_shape) or _about_learning(learner)


def _about_model(model: nn.Module, input_shape: tuple[int, ...]) -> str | None:
    layers = layers_of(model)
    linear = [module for module in layers if type(module) is nn.Linear]
    if not linear:
        return "the model has no linear layer"
    if len({id(module) for module in linear}) < len(linear):
        return "a linear layer is used twice"
    for module in layers:
        if not (type(module) in (nn.Linear, *ACTIVATIONS) or _flattens(module)):
            return f"the model has a {type(module).__name__}, and only linear layers and activations are stacked"
        if getattr(module, "inplace", False):
            return f"a {type(module).__name__} overwrites what it is given"
    if any(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks for module in model.modules()):
        return "a layer has a hook"
    if len(input_shape) != 1 and not _flattens(layers[0]):
        return "records have several axes, which the model does not flatten first"
    parameters = list(model.parameters())
    if not all(parameter.requires_grad for parameter in parameters):
        return "a parameter is frozen"
    if len({parameter.dtype for parameter in parameters}) > 1 or parameters[0].dtype not in WIDE:
        return "parameters are neither all in float32 nor all in float64"
    return None


def _about_learning(learner: Learner) -> str | None:
    if type(learner.loss) is not nn.CrossEntropyLoss:
        return f"the loss is {type(learner.loss).__name__}, and not CrossEntropyLoss"
    if type(learner.optimizer) not in OPTIMIZERS:
        return f"the optimizer, {type(learner.optimizer).__name__}, may not act on each parameter by itself"
    return None


def _flattens(module: nn.Module) -> bool:
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
