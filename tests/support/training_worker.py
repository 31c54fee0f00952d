"""Trains a small run in a directory, again and again killed with SIGKILL at the n-th call of a function."""

import os
import signal
import sys
from importlib import import_module

import numpy as np
import torch
from torch import nn

from inosgm import LinearTail, Owners, plan_scale
from inosgm.training import Trainer

DRAWN = np.random.default_rng(0)
X = DRAWN.normal(size=(80, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
LABELS = np.where(Y == 0, "strict", "open")
OTHER = DRAWN.normal(size=(30, 6)).astype(np.float32)
HELD_OUT = (OTHER, (OTHER[:, 0] > 0).astype(np.int64) + (OTHER[:, 1] > 0), LABELS[:30])


def owners(strict=2.0, open_=6.0):
    return Owners(of_record=LABELS, epsilon={"strict": strict, "open": open_}, delta=1e-5)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def trainer(optimizer=sgd, **more):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [7, 15], gamma=0.5)
    plan = plan_scale(owners(), steps=20, expected_batch=30, clip_norm=0.5)
    more = {"tail": lambda plan: LinearTail(plan.tail_length(0.4)), "max_physical_batch": 16, **more}
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, schedule=schedule, **more)


def fit(run, **more):
    made = trainer(**({"key": 11} if "key" not in more else {"key": more.pop("key")}))
    made.fit(X, Y, held_out=HELD_OUT, evaluate_every=4, run=run, checkpoint_every=5, progress=False, **more)
    return made


def killed_at(place, count):
    """Let the count-th call of "module:Class.method" or "module:function" be the last thing that happens."""
    module, _, path = place.partition(":")
    holder = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    original, calls = getattr(holder, name), [0]

    def last(*arguments, **named):
        calls[0] += 1
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(holder, name, last)


def main():
    """Make attempts, each a process of its own, that are killed at the points that are named; import torch once."""
    torch.set_num_threads(1)
    trainer()  # the plan is worked out once
    for place, count in zip(sys.argv[2::2], map(int, sys.argv[3::2]), strict=True):
        child = os.fork()
        if not child:
            killed_at(place, count)
            fit(sys.argv[1])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(f"not killed at {place} {count}")


if __name__ == "__main__":
    main()
