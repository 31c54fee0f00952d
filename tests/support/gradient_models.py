"""Small models with inputs and targets, and the plain loop that every gradient engine is compared with."""

import copy

import torch
from torch import nn

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import apply
from inosgm.training.losses import per_record

ENTROPY = per_record(nn.CrossEntropyLoss())


def naive(model, loss, inputs, targets, weights):
    """Norms and a weighted sum in float64, one backward per record, in the mode of the model."""
    model = copy.deepcopy(model).double()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    norms, total = [], [torch.zeros_like(parameter) for parameter in parameters]
    for k, weight in enumerate(weights.tolist()):
        x, y = tree_map(lambda column: wide(column[k : k + 1]), (inputs, targets))  # noqa: B023
        for parameter in parameters:
            parameter.grad = None
        loss(apply(model, x), y).sum().backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        norms.append(torch.sqrt(sum(grad.square().sum() for grad in grads)))
        if weight:
            total = [part + weight * grad for part, grad in zip(total, grads, strict=True)]
    return torch.stack(norms) if norms else torch.zeros(0, dtype=torch.float64), total


def wide(column):
    return column.double() if column.is_floating_point() else column


def images(*shape, classes=3, n=5):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(1)), labels(classes, n)


def labels(classes, n):
    return torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(2))


def codes(length, n=5):
    return torch.randint(0, 7, (n, length), generator=torch.Generator().manual_seed(3)), labels(3, n)


class LastStep(nn.Module):
    """Characters -> embedding -> recurrent layer -> class."""

    def __init__(self, layer):
        super().__init__()
        self.embedding, self.layer, self.out = nn.Embedding(7, 4), layer, nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.layer(self.embedding(x))[0][:, -1])


class Attention(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.layer(x, x, x)[0].mean(1))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.GroupNorm(4, 8))
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        x = self.a(x)
        return self.out(torch.relu(x + self.b(x)).mean((2, 3)))


class Bare(nn.Module):
    """Parameters of its own, one of them a single number, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return torch.tanh(x @ self.weight) / self.temperature


class Tied(nn.Module):
    """One matrix under two names, and once more used as a function."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))) @ self.first.weight)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, left, right):
        return self.left(left) * self.right(right)


def frozen():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    return model


def pair(n=5):
    generator = torch.Generator().manual_seed(4)
    return torch.rand(n, 4, generator=generator), torch.rand(n, 2, generator=generator)


def mlp():
    layers = [layer for width in (4, 47, 47) for layer in (nn.Linear(width, 47), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(47, 3))


def mnist_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 8, 2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(4, 8, 4, 2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def cifar_cnn():
    first = [nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, nn.Conv2d(4, 8, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 16, 3))


def _of(layer, *rest):
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), *rest)


MODELS = {
    "Linear": lambda: (nn.Linear(4, 3), *images(4)),
    "Linear on sequences": lambda: (_of(nn.Linear(4, 2), nn.Linear(12, 3)), *images(6, 4)),
    "Conv1d": lambda: (_of(nn.Conv1d(2, 4, 3, stride=2, dilation=2), nn.Linear(8, 3)), *images(2, 8)),
    "Conv2d": lambda: (_of(nn.Conv2d(2, 4, 3, padding="same", groups=2), nn.Linear(64, 3)), *images(2, 4, 4)),
    "Conv3d": lambda: (_of(nn.Conv3d(1, 2, 2, padding=1), nn.Linear(2 * 64, 3)), *images(1, 3, 3, 3)),
    "LayerNorm": lambda: (_of(nn.LayerNorm([3, 4]), nn.Linear(12, 3)), *images(3, 4)),
    "GroupNorm": lambda: (_of(nn.GroupNorm(2, 4), nn.Linear(12, 3)), *images(4, 3)),
    "RMSNorm": lambda: (_of(nn.RMSNorm(4), nn.Linear(12, 3)), *images(3, 4)),
    "InstanceNorm": lambda: (_of(nn.InstanceNorm1d(3, affine=True), nn.Linear(12, 3)), *images(3, 4)),
    "PReLU": lambda: (_of(nn.PReLU(4), nn.Linear(12, 3)), *images(4, 3)),
    "Bilinear": lambda: (nn.Bilinear(4, 2, 3), pair(), labels(3, 5)),
    "LSTM": lambda: (LastStep(nn.LSTM(4, 6, batch_first=True)), *codes(7)),
    "MultiheadAttention": lambda: (Attention(nn.MultiheadAttention(8, 2, batch_first=True)), *images(6, 8)),
    "Transformer": lambda: (
        _of(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Linear(48, 3)),
        *images(6, 8),
    ),
    "logistic regression": lambda: (nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), *images(4, 4)),
    "MLP": lambda: (mlp(), *images(4)),
    "MNIST CNN": lambda: (mnist_cnn(), *images(1, 16, 16)),
    "CIFAR CNN": lambda: (cifar_cnn(), *images(3, 8, 8)),
    "ResNet": lambda: (Residual(), *images(1, 6, 6)),
    "bare parameters": lambda: (Bare(), *images(4)),
    "tied": lambda: (Tied(), *images(4)),
    "frozen": lambda: (frozen(), *images(4)),
    "tuple": lambda: (Named(), pair(), labels(3, 5)),
    "dict": lambda: (Named(), dict(zip(("left", "right"), pair(), strict=True)), labels(3, 5)),
}


def case(name):
    """Return a model with fixed parameters, inputs and targets of five records."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name]()
