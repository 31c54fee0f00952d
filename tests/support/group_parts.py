"""A small model, its data and its trainer, for tests of ranks that train together."""

import os
import signal

import numpy as np
import torch
from torch import nn

from inosgm import LinearTail, Owners, Plan, plan_scale
from inosgm.training import Trainer

DRAWN = np.random.default_rng(0)
X = DRAWN.normal(size=(80, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
LABELS = np.where(Y == 0, "strict", "open")
OWNERS = Owners(of_record=LABELS, epsilon={"strict": 2.0, "open": 6.0}, delta=1e-5)
PLAN = plan_scale(OWNERS, steps=6, expected_batch=30, clip_norm=0.5)


def exact_plan(**more):
    """All records, and noise that is lost in the roundings: what an unkeyed run comes to is known."""
    sizes = [int((label == LABELS).sum()) for label in PLAN.labels]
    return Plan(
        **{"sample_rates": [1, 1], "sensitivities": [0.5, 0.3], "sizes": sizes, "labels": PLAN.labels}
        | {"noise_scale": 1e-9, "steps": 3, **more}
    )


class Adapted(nn.Module):
    """A frozen layer with a trained product of two thin ones beside it, as LoRA has."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 8).requires_grad_(False)
        self.down, self.up, self.head = nn.Linear(6, 2, bias=False), nn.Linear(2, 8, bias=False), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x) + self.up(self.down(x))))


def network(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))


def trainer(plan=PLAN, model=None, workers=None, **more):
    model = network() if model is None else model
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5, momentum=0.9)
    more = {"key": 11, "tail": lambda plan: LinearTail(plan.tail_length(0.4)), "owners": LABELS, **more}
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, workers=workers, **more)


def parameters_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy()


def fit(made, **more):
    made.fit(X, Y, **{"progress": False, **more})
    return parameters_of(made.model)


class Killed(torch.utils.data.Dataset):
    """Records of which the n-th that is fetched kills the process that fetches it."""

    def __init__(self, fetched):
        self.left = fetched

    def __len__(self):
        return len(X)

    def __getitem__(self, position):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return X[position], Y[position]
