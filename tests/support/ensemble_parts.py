"""Models and losses that configurations of tests name by their import path."""

import math

from torch import nn

from inosgm.training import models


def in_double(*, classes, input_shape, **options):
    """Return an MLP in float64, in which no rounding changes the order of a batch."""
    return models.mlp(classes=classes, input_shape=input_shape, **options).double()


def of_zeros(*, classes, input_shape):
    """Return a network for which all records are alike at first."""
    model = nn.Sequential(nn.Linear(*input_shape, 4, bias=False), nn.Tanh(), nn.Linear(4, classes)).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def unusual(*, classes, input_shape, kind):
    """Return a network that cannot be stacked, for one of many reasons."""
    width = math.prod(input_shape)
    linear, last = nn.Linear(width, width), nn.Linear(width, classes)
    if kind == "frozen":
        linear.requires_grad_(False)
    if kind == "two precisions":
        last.double()
    if kind == "hook":
        linear.register_forward_hook(lambda *_: None)
    between = {"dropout": [nn.Dropout()], "in place": [nn.ReLU(inplace=True)], "twice": [linear]}
    return nn.Sequential(linear, *between.get(kind, []), last)
