"""Trains seeds into a store, again and again killed with SIGKILL at the n-th call of a function."""

import os
import signal
import sys

import torch
from training_worker import killed_at

from inosgm import experiments as runs
from inosgm.experiments.config import TrainingConfig

CONFIG = {
    "data": {"name": "breast_cancer"},
    "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 1}, "delta": 1e-4},
    "model": {"name": "mlp", "options": {"widths": [4]}},
    "plan": {"method": "sample", "steps": 8, "expected_batch": 64, "clip_norm": 1.0, "accountant": "rdp"},
    "tail": {"kind": "linear", "fraction": 0.4},
    "optimizer": {"name": "SGD", "lr": 1.0, "options": {"momentum": 0.5}},
    "schedule": {"name": "StepLR", "options": {"step_size": 3}},
    "training": {"evaluate_every": 3, "checkpoint_every": 2},
    "seed": 7,
    "key": 1,
}
SEEDS = 3


def config(**changes):
    """Return the configuration with some sections changed, key by key where they are mappings."""
    merged = {
        name: {**CONFIG[name], **section}
        if isinstance(section, dict) and isinstance(CONFIG.get(name), dict)
        else section
        for name, section in changes.items()
    }
    return TrainingConfig.from_dict({**CONFIG, **merged})


if __name__ == "__main__":  # torch is imported once; every attempt is a process of its own
    torch.set_num_threads(1)
    runs.train(config())  # whatever is imported late, and the plan
    for place, count in zip(sys.argv[2::2], map(int, sys.argv[3::2]), strict=True):
        child = os.fork()
        if not child:
            killed_at(place, count)
            runs.train_seeds(config(), SEEDS, store=sys.argv[1], progress=False)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(f"not killed at {place} {count}")
