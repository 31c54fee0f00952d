"""Plain SGD, without noise: how teachers learn from private records, and how the student learns from released labels."""

import io
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from inosgm.sgd.batches import batch_of
from inosgm.sgd.curve import LearningCurve
from inosgm.sgd.gradients.base import PerRecordLoss, apply
from inosgm.sgd.logical import parts_of
from inosgm.sgd.metrics import Evaluation
from inosgm.sgd.predictions import as_numpy, evaluated, evaluating
from inosgm.sgd.randomness import seed_of_part, seeded


class Place(Protocol):
    """Where learning is saved; `inosgm.jobs.Attempt` is one."""

    def stopping(self) -> bool:
        """Say whether to save and stop."""

    def latest(self) -> bytes | None:
        """Return what was saved last."""

    def save(self, step: int, content: bytes) -> None:
        """Save how far it has got."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Learning:
    """A model that learns from some records, step by step. NOT PRIVATE: nothing here protects them.

    Steps are a function of the seed and their number: what was stopped goes on bit for bit, on a CPU with as many
    threads.

    Attributes:
        model: What learns.
        loss: One loss per record.
        optimizer: What makes a step.
        schedule: How the learning rate changes.
        data: Inputs and targets. A teacher may have no records at all: it stays as it is.
        batch: How many records are in a batch, drawn at random; all if there are fewer.
        seed: Decides batches and what is random in the model.
        max_physical_batch: The most records that are in memory at once.
        autocast: The precision of the forward pass.
    """

    model: nn.Module
    loss: PerRecordLoss
    optimizer: Optimizer
    schedule: LRScheduler | None
    data: tuple[np.ndarray, np.ndarray]
    batch: int
    seed: int
    max_physical_batch: int | None = None
    autocast: torch.dtype | None = None
    curve: LearningCurve = field(default_factory=LearningCurve)

    def step(self, number: int) -> None:
        """Make one step."""
        records = len(self.data[1])
        self.model.train()
        if records:
            generator = np.random.default_rng([self.seed, number])
            positions = np.sort(generator.choice(records, min(self.batch, records), replace=False))
            for place, part in enumerate(parts_of(positions, self.max_physical_batch)):
                inputs, targets = batch_of(self.data, part, self._like)
                with seeded(seed_of_part(self.seed, number, place), self._like.device):
                    (self._losses(inputs, targets).sum() / positions.size).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.schedule is not None:
            self.schedule.step()

    def evaluate(self, inputs: Any, targets: Any, owners: Any) -> Evaluation:
        """Evaluate the model on records that need no protection."""
        most = self.max_physical_batch or 1024
        return evaluated(self.model, self.loss, (inputs, targets), owners, self._like, most)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the class that each record is held for: that of its largest output.

        Raises:
            ValueError: for a model without an output per class.
        """
        found = [np.empty(0, dtype=np.int64)]
        with evaluating(self.model), torch.no_grad():
            for part in parts_of(np.arange(len(inputs)), self.max_physical_batch or 1024):
                outputs = as_numpy(apply(self.model, batch_of((inputs, part), part, self._like)[0]))
                if outputs.ndim != 2 or outputs.shape[1] < 2:
                    raise ValueError(f"model must have an output for each class, got outputs {outputs.shape[1:]}")
                found.append(outputs.argmax(axis=1))
        return np.concatenate(found)

    def to_bytes(self, step: int) -> bytes:
        """Return all that learning goes on from: numbers and text, no code."""
        stream = io.BytesIO()
        schedule = None if self.schedule is None else self.schedule.state_dict()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "schedule": schedule}
        torch.save({"step": step, "curve": self.curve.to_json(), **state}, stream)
        return stream.getvalue()
