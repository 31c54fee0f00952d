"""Models by name: those of the papers, and a user's own."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm._internal import validate as _validate
from inosgm._internal.extras import require_extra
from inosgm._internal.imports import imported
from inosgm._internal.keys import model_sequence
from inosgm.datasets.names import VOCABULARY

Shape = tuple[int, ...]

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def make(name: str, *, classes: int, input_shape: Sequence[int], seed: int | None = None, **options: Any) -> nn.Module:
    """Make a model for records of some shape and a number of classes.

    Args:
        name: logistic_regression, mlp, mnist_cnn, cifar_cnn, resnet18, char_lstm; or "package.module:function", which
            is called with `classes`, `input_shape` and the options, and returns a module.
        classes: How many numbers the model says about a record.
        input_shape: The shape of one record, without the batch.
        seed: Decides the initial parameters; the operating system does if not given. The generators of torch stay as
            they are.
        options: What else that model takes, such as `widths` of an mlp.

    Raises:
        ValueError: for a name or an option that there is not, or records of a shape that the model cannot take.
        TypeError: if a function of the user's does not return a module.

    >>> sum(p.numel() for p in make("mnist_cnn", classes=10, input_shape=(1, 28, 28)).parameters())
    26010
    """
    function = imported(name) if ":" in name else MODELS.get(name)
    if function is None:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, or package.module:function, got {name!r}")
    return made("model", name, function, {"classes": classes, "input_shape": tuple(input_shape), **options}, seed)


def made(
    kind: str, name: str, function: Callable[..., Any], arguments: Mapping[str, Any], seed: int | None
) -> nn.Module:
    """Return the module that a function makes; a seed decides its random numbers, and torch's generators stay.

    Raises:
        ValueError: for arguments that the function does not take.
        TypeError: if it does not return a module.
    """
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{kind} {name} does not take these options: {error}") from None
    state = model_sequence(None if seed is None else _validate.count("seed", seed)).generate_state(1, np.uint64)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(state[0]))
        module = function(**arguments)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{kind} {name} must return a torch.nn.Module, got a {type(module).__name__}")
    return module


def logistic_regression(*, classes: int, input_shape: Shape) -> nn.Module:
    """Return one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


def mlp(
    *, classes: int, input_shape: Shape, widths: Sequence[int] = (47, 47, 47), activation: str = "relu"
) -> nn.Module:
    """Return linear layers with an activation between them: MLP of the INO-SGD paper, unless told otherwise.

    Args:
        classes: Outputs.
        input_shape: Shape of a record, which is flattened.
        widths: How many neurons each hidden layer has.
        activation: "relu" or "tanh".
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    sizes = [math.prod(input_shape), *widths]
    hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), ACTIVATIONS[activation]())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], classes))


def mnist_cnn(*, classes: int, input_shape: Shape) -> nn.Module:
    """Return the tanh network of Papernot et al. (2021) for MNIST: two convolutions, 26,010 parameters."""
    features = nn.Sequential(
        nn.Conv2d(_channels("mnist_cnn", input_shape), 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
    )
    return _classifier(features, "mnist_cnn", input_shape, 32, classes)


def cifar_cnn(*, classes: int, input_shape: Shape) -> nn.Module:
    """Return the tanh network of Papernot et al. (2021) for CIFAR: six convolutions, 550,570 parameters."""
    layers: list[nn.Module] = []
    channels = _channels("cifar_cnn", input_shape)
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.Tanh()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
        channels = width
    return _classifier(nn.Sequential(*layers, nn.Flatten()), "cifar_cnn", input_shape, 128, classes)


def _channels(name: str, input_shape: Shape) -> int:
    """Return how many channels images have, if they are images."""
    if len(input_shape) != 3:
        raise ValueError(f"input_shape must be that of images (channels, rows, columns) for {name}, got {input_shape}")
    return input_shape[0]


def _classifier(features: nn.Sequential, name: str, input_shape: Shape, width: int, classes: int) -> nn.Module:
    """Put a hidden layer and the outputs behind convolutions."""
    try:
        with torch.no_grad():
            size = features(torch.zeros(1, *input_shape)).shape[1]
        if not size:
            raise RuntimeError
    except RuntimeError:
        raise ValueError(f"input_shape must be that of larger images for {name}, got {input_shape}") from None
    return nn.Sequential(*features, nn.Linear(size, width), nn.Tanh(), nn.Linear(width, classes))


class Residual(nn.Module):
    """Two 3x3 convolutions with group normalisation, and a way around them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(32, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.GroupNorm(32, width),
        )
        self.around = nn.Sequential()
        if stride > 1 or channels != width:
            self.around = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.GroupNorm(32, width)
            )
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Add both ways."""
        out: Tensor = self.activation(self.inner(x) + self.around(x))
        return out


def resnet18(*, classes: int, input_shape: Shape, large_images: bool = False) -> nn.Module:
    """Return a ResNet-18 with group instead of batch normalisation, which would mix records.

    Args:
        classes: Outputs.
        input_shape: Channels, rows, columns.
        large_images: Begin as for ImageNet, with a 7x7 convolution of stride 2 and a pooling; otherwise with a 3x3
            convolution, for images of 32 x 32 pixels.
    """
    channels = _channels("resnet18", input_shape)
    if large_images:
        convolution = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        pooling: nn.Module = nn.MaxPool2d(3, stride=2, padding=1)
    else:
        convolution, pooling = nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.Identity()
    first = [convolution, nn.GroupNorm(32, 64), nn.ReLU(), pooling]
    blocks = []
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Residual(channels, width, stride), Residual(width, width, 1)]
        channels = width
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class CharLSTM(nn.Module):
    """An embedding, an LSTM, and a linear layer on its state after the last letter.

    A record is a row of codes padded with 0 at its end. Everything after the last letter has no influence, so a record
    gets the same outputs whatever else is in the batch and however long the padding.
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: int, classes: int) -> None:
        require_extra("opacus")
        from opacus.layers import DPLSTM  # seconds to import, and only this model needs it

        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = DPLSTM(embedding, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, codes: Tensor) -> Tensor:
        """Return the outputs of a batch of padded codes."""
        states = self.lstm(self.embedding(codes))[0]
        last = ((codes != 0).sum(dim=1) - 1).clamp(min=0)
        out: Tensor = self.linear(states.gather(1, last[:, None, None].expand(-1, 1, states.shape[2])).squeeze(1))
        return out


def char_lstm(
    *, classes: int, input_shape: Shape, vocabulary: int = VOCABULARY, embedding: int = 64, hidden: int = 128
) -> nn.Module:
    """Return a character-level LSTM, through Opacus' DPLSTM, whose parts are linear layers with per-record gradients.

    Args:
        classes: Outputs.
        input_shape: Codes per record.
        vocabulary: How many codes there are, 0 for padding included; those of the data set `names` if not given.
        embedding: Length of the vector of a letter.
        hidden: Length of the state.
    """
    if len(input_shape) != 1:
        raise ValueError(f"input_shape must be a row of codes for char_lstm, got {input_shape}")
    return CharLSTM(vocabulary, embedding, hidden, classes)


MODELS: dict[str, Callable[..., nn.Module]] = {
    function.__name__: function for function in (logistic_regression, mlp, mnist_cnn, cifar_cnn, resnet18, char_lstm)
}
"""Models by name."""
