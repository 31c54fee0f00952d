"""Audit of another library: a step of Opacus as it is, and with two mistakes that its epsilon does not show.

The auditor needs no source code, only a callable that maps a data set to the noisy gradient that is released. It is
called with two neighbouring data sets that tell most. One has a record more, the canary: among records without a
gradient it moves the sum alone, and among records that point the other way it shows whether it takes a record's place.
"""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn

from inosgm.accounting import epsilon
from inosgm.audit import GaussianSteps, audit_callable

RECORDS, RATE, NOISE, CLIP, DELTA = 20, 0.5, 1.0, 1.0, 1e-5


class MeanNoise(DPOptimizer):
    """The first mistake: noise for the sensitivity of the mean, added to the sum."""

    def add_noise(self) -> None:
        """Add too little noise by a factor of the batch size."""
        self.noise_multiplier /= self.expected_batch_size
        super().add_noise()
        self.noise_multiplier *= self.expected_batch_size


def poisson(size: int) -> list[int]:
    """Return a Poisson batch, by Opacus' own sampler."""
    return next(iter(UniformWithReplacementSampler(num_samples=size, sample_rate=RATE, steps=1)))


def fixed(size: int) -> list[int]:
    """Return the second mistake: a batch of a fixed size, for which the accountant of Poisson batches is wrong."""
    return torch.randperm(size)[: round(RATE * RECORDS)].tolist()


def step_of(
    optimizer_type: type[DPOptimizer], batch: Callable[[int], list[int]]
) -> Callable[[torch.Tensor], np.ndarray]:
    """Return a callable that computes the noisy gradient of one step of Opacus."""
    model = GradSampleModule(nn.Linear(2, 1, bias=False))
    optimizer = optimizer_type(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=round(RATE * RECORDS),
    )

    def release(data: torch.Tensor) -> np.ndarray:
        optimizer.zero_grad()
        model(data[batch(len(data))]).mean().backward()
        optimizer.pre_step()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).numpy()

    return release


def main(runs: int = 1000) -> None:
    """Audit the step and its two mistakes, each at a false-alarm rate of 5 % in all."""
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", "Full backward hook is firing")  # the input needs no gradient
    claim = GaussianSteps(noise_multiplier=NOISE, sample_rate=RATE)
    promised = float(epsilon(RATE, NOISE, 1, DELTA))
    canary = torch.tensor([[100.0, 0.0]])
    surroundings = {"nothing": torch.zeros(RECORDS, 2), "opposite records": -canary.repeat(RECORDS, 1)}
    variants = {
        "as it is": step_of(DPOptimizer, poisson),
        "noise for the mean": step_of(MeanNoise, poisson),
        "fixed batches": step_of(DPOptimizer, fixed),
    }
    for name, release in variants.items():
        found = {
            around: audit_callable(
                release,
                others,
                torch.cat([others, canary]),
                epsilon=promised,
                delta=DELTA,
                steps=claim,
                runs=runs,
                confidence=1 - 0.05 / len(surroundings),
            )
            for around, others in surroundings.items()
        }
        refuted = any(audit.contradicts for audit in found.values())
        print(f"Opacus, {name}: {'REFUTED' if refuted else 'not refuted'}")
        for around, audit in found.items():
            print(f"\na canary among {around}\n{audit.table()}")
        print()


if __name__ == "__main__":
    main()
