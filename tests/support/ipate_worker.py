"""Trains a student of IPATE, often killed with SIGKILL at the n-th call of a function, and once undisturbed."""

import os
import signal
import sys

import torch
from training_worker import killed_at

from inosgm import experiments as runs
from inosgm.experiments.config import TrainingConfig

CONFIG = {
    "data": {"name": "digits", "public": 80},
    "owners": {"fractions": [0.5, 0.5], "epsilon": [25, 50], "delta": 1e-5},
    "model": {"name": "logistic_regression"},
    "plan": {
        "method": "ipate_weight",
        "steps": 20,
        "expected_batch": 64,
        "clip_norm": 1.0,
        "teachers": {"count": 12, "queries": 60},
    },
    "optimizer": {"name": "SGD", "lr": 1.0, "options": {"momentum": 0.5}},
    "schedule": {"name": "StepLR", "options": {"step_size": 15}},
    "training": {"evaluate_every": 8, "checkpoint_every": 4},
    "seed": 7,
    "key": 1,
}


def config():
    """Return the configuration of a student and its teachers."""
    return TrainingConfig.from_dict(CONFIG)


def undisturbed(store):
    """Train one student into a store, or go on with it, and return the store."""
    return runs.train_seeds(config(), 1, store=store, progress=False).store


if __name__ == "__main__":  # torch is imported once; every attempt is a process of its own
    torch.set_num_threads(1)
    undisturbed(sys.argv[2])
    for place, count in zip(sys.argv[3::2], map(int, sys.argv[4::2]), strict=True):
        child = os.fork()
        if not child:
            killed_at(place, count)
            undisturbed(sys.argv[1])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(f"not killed at {place} {count}")
