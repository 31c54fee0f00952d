"""Shadow models per minute of a processor: stacked, one by one with a `Trainer`, and one by one with Opacus.

Each trains on half of a pool as large as the digits of scikit-learn (1797 records), two owners, for 200 steps with
batches of about 128: logistic regression, networks with one hidden layer of 32 and with three of 47, and the papers'
network for MNIST (on made-up images of 28 x 28; ten times fewer steps are timed). Ours is INO-SGD with a linear tail;
from the members to the trained model, with everything that comes once per model. Opacus has hooks or ghost clipping,
whichever is faster, and Poisson batches drawn by hand, because its data loader takes longer than the rest. One thread,
time of the processor, medians of interleaved rounds.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
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
from inosgm import Owners
from inosgm.audit.ensemble import Ensemble
from inosgm.config import TrainingConfig
from inosgm.datasets import Dataset
from inosgm.datasets.settings import Prepared
from inosgm.runs import parts
from inosgm.runs.building import assembled

RECORDS, STEPS, BATCH, TOGETHER = 1797, 200, 128, 64

CASES: list[tuple[str, dict[str, Any], int, float]] = [
    ("logistic_regression", {}, STEPS, 8),
    ("mlp", {"widths": [32]}, STEPS, 8),
    ("mlp", {}, STEPS, 8),
    ("mnist_cnn", {}, STEPS // 10, 2),
]


def main() -> None:
    """Print the ratios that issue 6 names."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus, at every first layer
    for model, options, steps, asked in CASES:
        ways, models = contenders(model, options, steps)
        rounds = 3 if model == "mnist_cnn" else 7
        seconds = medians(ways, rounds=rounds, clock=time.process_time)
        rates = {name: 60 * models.get(name, 1) / value * steps / STEPS for name, value in seconds.items()}
        what = " ".join([model, *(f"{name}={value}" for name, value in options.items())])
        print(f"{what}, models per minute: " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
        best = max(rates["Opacus hooks"], rates["Opacus ghost"])
        ours = "stacked" if "stacked" in rates else "one by one"
        report(f"{what}: {ours} / Opacus one by one", rates[ours] / best, at_least=asked)
        if ours == "stacked":
            report(f"{what}: one by one / Opacus one by one", rates["one by one"] / best)


def contenders(model: str, options: dict[str, Any], steps: int) -> tuple[dict[str, Callable[[], None]], dict[str, int]]:
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
    pool = _pool((1, 28, 28) if model == "mnist_cnn" else (1, 8, 8))
    members = [_half(np.random.default_rng(number)) for number in range(TOGETHER)]
    plan = parts.planned(config, _owners(members[0]), None)

    def stacked() -> None:
        numbers = range(TOGETHER)
        ensemble = Ensemble(config, pool, plan, members=members, keys=numbers, seeds=numbers)
        for _ in range(steps):
            ensemble.step()

    def alone() -> None:
        chosen = replace(pool.dataset, x=pool.dataset.x[members[0]], y=pool.dataset.y[members[0]])
        whole = replace(pool, dataset=chosen, owners=_owners(members[0]))
        trainer = assembled(config, whole, parts.learner_of(config, chosen), plan, key=0).trainer
        trainer.fit(chosen.x, chosen.y, steps=steps, progress=False)

    x, y = (torch.from_numpy(array[members[0]]) for array in (pool.dataset.x, pool.dataset.y))
    others = {
        "Opacus hooks": lambda: _hooks(parts.learner_of(config, pool.dataset), x, y, steps),
        "Opacus ghost": lambda: _ghost(parts.learner_of(config, pool.dataset), x, y, steps),
    }
    if model == "mnist_cnn":
        return {"one by one": alone, **others}, {}
    return {"stacked": stacked, "one by one": alone, **others}, {"stacked": TOGETHER}


def _pool(shape: tuple[int, ...]) -> Prepared:
    """Make up records: what they are does not change how long they take."""
    generator = np.random.default_rng(0)
    x, y = generator.random((RECORDS, *shape), dtype=np.float32), generator.integers(10, size=RECORDS)
    names = tuple(str(number) for number in range(10))
    dataset = Dataset(name="made up", x=x, y=y, x_test=x[:10], y_test=y[:10], classes=names)
    return Prepared(dataset=dataset, owners=_owners(np.arange(RECORDS)), groups=np.array(names)[y[:10]])


def _half(generator: np.random.Generator) -> np.ndarray:
    """Choose half of the records of each owner."""
    halves = [generator.permutation(np.arange(owner, RECORDS, 2))[: RECORDS // 4] for owner in (0, 1)]
    return np.sort(np.concatenate(halves))


def _owners(records: np.ndarray) -> Owners:
    return Owners(of_record=records % 2, epsilon=[1.0, 10.0], delta=1e-5)


def _batch(rate: float, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    picked = (torch.rand(len(y)) < rate).nonzero()[:, 0]
    return x[picked], y[picked]


def _hooks(learner: parts.Learner, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    wrapped = GradSampleModule(learner.model)
    optimizer = DPOptimizer(learner.optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=BATCH)
    for _ in range(steps):
        inputs, targets = _batch(BATCH / len(y), x, y)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(inputs), targets).backward()
        optimizer.step()


def _ghost(learner: parts.Learner, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    wrapped = GradSampleModuleFastGradientClipping(learner.model, max_grad_norm=1.0, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        learner.optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=BATCH
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())
    for _ in range(steps):
        inputs, targets = _batch(BATCH / len(y), x, y)
        optimizer.zero_grad()
        loss(wrapped(inputs), targets).backward()
        optimizer.step()
