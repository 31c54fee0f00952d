"""Plain SGD, without noise: how teachers learn from private records, and a student from released labels."""

import io
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from inosgm._internal.keys import microbatch_seed, teacher_batches
from inosgm.jobs import Attempt, Stopped
from inosgm.training.batches import batch_of
from inosgm.training.checkpoints import load_states, states_of
from inosgm.training.gradients.base import PerRecordLoss, apply
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.loop import make_steps
from inosgm.training.metrics import Evaluation
from inosgm.training.microbatches import parts_of, seeded
from inosgm.training.predictions import as_numpy, evaluated, evaluating

EVALUATION_BATCH = 1024
"""Number of records that are evaluated at a time unless `max_physical_batch` limits it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Learning:
    """A model that learns from records by plain SGD. NOT PRIVATE: nothing here protects the records.

    A step is a function of the seed and its number, so a resumed run equals an uninterrupted one bit for bit (on a CPU,
    with the same number of threads).

    Attributes:
        model: The model.
        loss: One loss per record.
        optimizer: Its optimizer.
        schedule: The schedule of its learning rate.
        data: Inputs and classes. If there are no records, the model does not change.
        batch: Number of records in a batch, drawn at random without replacement; all records if there are fewer.
        seed: Decides the batches and the randomness of the model.
        max_physical_batch: Largest number of records in memory at once.
        autocast: The precision of the forward pass.
        rows: The evaluations so far, as JSON values.
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
    rows: list[dict[str, Any]] = field(default_factory=list)

    def step(self, number: int) -> None:
        """Make the step with this number."""
        records, like = len(self.data[1]), self._like()
        self.model.train()
        if records:
            drawn = teacher_batches(self.seed, number).choice(records, min(self.batch, records), replace=False)
            for place, part in enumerate(parts_of(np.sort(drawn), self.max_physical_batch)):
                inputs, targets = batch_of(self.data, part, like)
                with seeded(microbatch_seed(self.seed, number, place), like.device):
                    (self._losses(inputs, targets).sum() / drawn.size).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.schedule is not None:
            self.schedule.step()

    def record_evaluation(self, step: int, held_out: tuple[Any, Any, Any]) -> None:
        """Evaluate the model on records that need no protection, and add the result to `rows`."""
        rate = float(self.optimizer.param_groups[0]["lr"])
        self.rows.append({"step": step, "evaluation": self.evaluate(*held_out).to_dict(), "learning_rate": rate})

    def evaluate(self, inputs: Any, targets: Any, owners: Any) -> Evaluation:
        """Evaluate the model on records that need no protection."""
        most = self.max_physical_batch or EVALUATION_BATCH
        return evaluated(self.model, self.loss, (inputs, targets), owners, self._like(), most)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the predicted class of each record: that of its largest output.

        Raises:
            ValueError: for a model that has no output for each class.
        """
        found = [np.empty(0, dtype=np.int64)]
        with Snapshot(model=self.model), evaluating(self.model), torch.no_grad():
            for part in parts_of(np.arange(len(inputs)), self.max_physical_batch or EVALUATION_BATCH):
                records, _ = batch_of((inputs, np.zeros(len(inputs))), part, self._like())
                outputs = as_numpy(apply(self.model, records))
                if outputs.ndim != 2 or outputs.shape[1] < 2:
                    raise ValueError(f"model must have an output for each class, got {outputs.shape[1:]} per record")
                found.append(outputs.argmax(axis=1))
        return np.concatenate(found)

    def to_bytes(self, step: int) -> bytes:
        """Return a checkpoint after a number of steps: numbers and text, no code."""
        stream = io.BytesIO()
        states = states_of(self.model, self.optimizer, self.schedule)
        torch.save({"step": step, "rows": json.dumps(self.rows), **states}, stream)
        return stream.getvalue()

    def restore(self, content: bytes) -> int:
        """Load a checkpoint of `to_bytes`, and return the number of its steps."""
        saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        load_states(saved, self.model, self.optimizer, self.schedule)
        self.rows[:] = json.loads(saved["rows"])
        return int(saved["step"])

    def _losses(self, inputs: Any, targets: Any) -> Tensor:
        with nullcontext() if self.autocast is None else torch.autocast(self._like().device.type, self.autocast):
            return self.loss(apply(self.model, inputs), targets)

    def _like(self) -> nn.Parameter:
        return next(parameter for parameter in self.model.parameters() if parameter.requires_grad)


def learn(
    learning: Learning,
    steps: int,
    attempt: Attempt,
    *,
    pause: float,
    evaluate: Callable[[int], bool] = lambda _: False,
    watch: Callable[[], None] | None = None,
) -> None:
    """Make the remaining steps, with checkpoints in an attempt at a job.

    Args:
        learning: The model and its data.
        steps: Number of all steps, including those before the latest checkpoint.
        attempt: Holds the checkpoints, and says when to stop.
        pause: Least number of seconds between two checkpoints.
        evaluate: Called with the number of steps so far, before the first step and after each one; returns whether it
            has evaluated the model.
        watch: Called after each evaluation but the first, once a checkpoint is written.

    Raises:
        Stopped: if it was asked to stop; a checkpoint is written.
    """
    content = attempt.latest()
    made = 0 if content is None else learning.restore(content)
    if content is None:
        evaluate(0)
    saved = monotonic()

    def step() -> None:
        nonlocal made
        made += 1
        learning.step(made)

    def save(needed: bool, ending: bool) -> None:
        nonlocal saved
        if needed or attempt.stopping() or monotonic() - saved >= pause:
            attempt.save(made, learning.to_bytes(made))
            saved = monotonic()

    if attempt.stopping() and made < steps:
        save(True, True)
        raise Stopped
    if make_steps(
        lambda: made, steps, step, evaluate=lambda _: evaluate(made), save=save, watch=watch, stop=attempt.stopping
    ):
        raise Stopped
