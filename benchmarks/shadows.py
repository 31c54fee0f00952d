"""Shadow models per minute of a processor: stacked, one by one with a `Trainer`, and one by one with Opacus.

Each trains on half of a pool as large as the digits of scikit-learn (1797 records), two owners, for 200 steps with
batches of about 128: logistic regression, networks with one hidden layer of 32 and with three of 47, and the papers'
network for MNIST (on made-up images of 28 x 28). Ours is INO-SGD with a linear tail;
from the members to the trained model, with everything that comes once per model. Opacus has Poisson batches drawn by
hand, because its data loader takes longer than the rest, and hooks; ghost clipping, which is slower for the smallest
models and faster for larger ones, is shown, too, and counts for the network with convolutions if it is faster there, as
in the benchmark of training. One thread, time of the processor, medians of interleaved rounds.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from opacus import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

from benchmarks.timing import medians, report
from inosgm.audit.design import Design
from inosgm.audit.shadow_study import BLOCK
from inosgm.datasets import Dataset
from inosgm.experiments import components
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.input_files import Source

RECORDS, STEPS, BATCH = 1797, 200, 128

CASES: list[tuple[str, dict[str, Any], float]] = [
    ("logistic_regression", {}, 8),
    ("mlp", {"widths": [32]}, 8),
    ("mlp", {}, 8),
    ("mnist_cnn", {}, 2),
]


def main() -> None:
    """Print the ratios that issue 6 names."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus, at every first layer
    for model, options, asked in CASES:
        ways, models = contenders(model, options)
        seconds = medians(ways, rounds=3 if model == "mnist_cnn" else 7, clock=time.process_time)
        rates = {name: 60 * models.get(name, 1) / value for name, value in seconds.items()}
        what = " ".join([model, *(f"{name}={value}" for name, value in options.items())])
        print(f"{what}, models per minute: " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
        ours = "stacked" if "stacked" in rates else "one by one"
        hooks, best = rates["Opacus hooks"], max(rates["Opacus hooks"], rates["Opacus ghost"])
        peer = hooks if ours == "stacked" else best
        report(f"{what}: {ours} / Opacus one by one", rates[ours] / peer, at_least=asked)
        if ours == "stacked":
            report(f"{what}: stacked / Opacus with hooks or ghost clipping", rates["stacked"] / best)
            report(f"{what}: one by one / Opacus one by one", rates["one by one"] / hooks)


def contenders(model: str, options: dict[str, Any]) -> tuple[dict[str, Callable[[], None]], dict[str, int]]:
    """Return what trains models, and how many it trains where that is more than one."""
    config = TrainingConfig.from_dict(
        {
            "data": {"name": "digits"},
            "owners": {"fractions": [0.5, 0.5], "epsilon": [1, 10], "delta": 1e-5},
            "model": {"name": model, "options": options},
            "plan": {"method": "sample", "steps": STEPS, "expected_batch": BATCH, "clip_norm": 1},
            "tail": {"kind": "linear", "fraction": 0.4},
            "optimizer": {"name": "SGD", "lr": 0.5},
        }
    )
    made = _made_up((1, 28, 28) if model == "mnist_cnn" else (1, 8, 8))
    source = Source(datasets={"digits": made}, tables={})
    design = Design.of(config, source)

    def stacked() -> None:
        ensemble = design.ensemble(range(BLOCK))
        for _ in range(STEPS):
            ensemble.step()

    def alone() -> None:
        trainer = design.trainer(0, design.learner(0))
        trainer.fit(*design.records(0), progress=False)

    x, y = map(torch.from_numpy, design.records(0))
    others = {
        "Opacus hooks": lambda: _hooks(design.learner(0), x, y),
        "Opacus ghost": lambda: _ghost(design.learner(0), x, y),
    }
    if model == "mnist_cnn":
        return {"one by one": alone, **others}, {}
    return {"stacked": stacked, "one by one": alone, **others}, {"stacked": BLOCK}


def _made_up(shape: tuple[int, ...]) -> Dataset:
    """Make up records: what they are does not change how long they take."""
    generator = np.random.default_rng(0)
    x, y = generator.random((RECORDS, *shape), dtype=np.float32), generator.integers(10, size=RECORDS)
    names = tuple(str(number) for number in range(10))
    return Dataset(name="digits", x=x, y=y, x_test=x[:10].copy(), y_test=y[:10].copy(), classes=names)


def _batch(rate: float, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    picked = (torch.rand(len(y)) < rate).nonzero()[:, 0]
    return x[picked], y[picked]


def _hooks(learner: components.Learner, x: torch.Tensor, y: torch.Tensor) -> None:
    wrapped = GradSampleModule(learner.model)
    optimizer = DPOptimizer(learner.optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=BATCH)
    for _ in range(STEPS):
        inputs, targets = _batch(BATCH / len(y), x, y)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(inputs), targets).backward()
        optimizer.step()


def _ghost(learner: components.Learner, x: torch.Tensor, y: torch.Tensor) -> None:
    wrapped = GradSampleModuleFastGradientClipping(learner.model, max_grad_norm=1.0, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        learner.optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=BATCH
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())
    for _ in range(STEPS):
        inputs, targets = _batch(BATCH / len(y), x, y)
        optimizer.zero_grad()
        loss(wrapped(inputs), targets).backward()
        optimizer.step()
