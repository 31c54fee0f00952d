"""Runs of the study: points of a task and a seed in, what the models predict of held-out records out."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from examples.strict_study.data import read
from examples.strict_study.learnt import learnt_strength
from examples.strict_study.points import AFTER, EVERY, Point, log_prior, plan_of
from examples.strict_study.tasks import Task
from examples.strict_study.together import Together
from examples.strict_study.views import Views, views_loss
from inosgm import LinearTail, LogitAdjustment, Plan, Trainer
from inosgm.methods.asc import AdaptiveShares
from inosgm.training import models

Row = dict[str, Any]

AT_ONCE = 40
"""Most models that are trained together: a study that is killed loses no more than their runs."""

_plans: dict[tuple[Any, ...], Plan] = {}


class Runner:
    """A task with a seed.

    Args:
        task: The task.
        seed: Decides initial parameters, batches and noise; and who owns what, where that is random.
        root: The data directory.
        kept: Where features are kept.
    """

    def __init__(self, task: Task, seed: int, root: str | None, kept: Path) -> None:
        self.task, self.seed = task, seed
        self.records = read(task, root, kept)
        self.owners = task.rule.owners(self.records.y.numpy(), seed)
        self._shares = np.zeros((len(self.owners.labels), self.records.classes))
        np.add.at(self._shares, (self.owners.of_record, self.records.y.numpy()), 1)
        self._shares /= self._shares.sum(axis=1, keepdims=True)  # these settings make classes public

    def plan(self, name: str) -> Plan:
        """Return a plan by name, each made once."""
        sizes, epsilon = self.owners.sizes.tobytes(), self.owners.epsilon.tobytes()
        key = (name, sizes, epsilon, self.task.steps, self.task.expected_batch, self.task.clip_norm)
        if key not in _plans:
            _plans[key] = plan_of(name, self.owners, self.task)
        return _plans[key]

    def run(self, points: Sequence[Point], *, curve: bool) -> Iterator[list[Row]]:
        """Run points and return a row for each, some at a time.

        Args:
            points: What to run.
            curve: Whether rows also say how every tenth of training went.
        """
        apart = [point for point in points if point.plan == "asc" or point.views]
        groups: dict[bytes, list[Point]] = {}
        for point in points:
            if point not in apart:
                groups.setdefault(self.plan(point.plan).sample_rates.tobytes(), []).append(point)
        for group in groups.values():
            for begin in range(0, len(group), AT_ONCE):
                yield self._together(group[begin : begin + AT_ONCE], curve)
        for point in apart:
            yield [self._alone(point, curve)]

    def _together(self, points: list[Point], curve: bool) -> list[Row]:
        """Train models that share batches."""
        plans = [self.plan(point.plan) for point in points]
        priors = [log_prior(plan, self._shares, point) for plan, point in zip(plans, points, strict=True)]
        many = Together(
            [self._model() for _ in points],
            points,
            plans,
            priors,
            self.records,
            self.owners.of_record,
            self.task.momentum,
            self.seed,
        )
        rows = [self._row(point) for point in points]

        def watch(step: int, models: Together) -> None:
            if step == self.task.steps or (curve and step % max(1, self.task.steps // 10) == 0):
                for row, prior, logits in zip(rows, priors, models.logits(self.records.x_test), strict=True):
                    self._look(row, step, logits, prior, curve)

        many.train(self.task.steps, watch)
        learnt = [index for index, point in enumerate(points) if point.plan.startswith("learnt")]
        if learnt:
            logits = many.logits(self.records.x)
            for index in learnt:
                self._learn(rows[index], logits[index], priors[index], float(points[index].plan.split()[1]))
        return rows

    def _learn(self, row: Row, logits: Tensor, prior: np.ndarray, share: float) -> None:
        """Keep what a run achieves with the strength that it has learnt, as if it needed none."""
        coins = np.random.default_rng(self.seed)
        row["learnt"] = learnt_strength(logits, self.records.y, self.owners, prior, share, coins)
        name = str(row["learnt"])
        row["right"] = {"0.0": row["right"][name]}
        row["curve"] = [[step, {"0.0": counts[name]}] for step, counts in row["curve"]]

    def _alone(self, point: Point, curve: bool) -> Row:
        """Train one model with the library's `Trainer`: by ASC, whose batches follow its own losses, or with views."""
        plan, model = self.plan(point.plan), self._model()
        prior = log_prior(plan, self._shares, point)
        adjustment = LogitAdjustment(plan, self._shares, point.inside)
        steered = point.plan == "asc"
        trainer = Trainer(
            plan,
            Views(model, math.isqrt(self.records.x.shape[1])) if point.views else model,
            adjustment.loss(views_loss if point.views else nn.CrossEntropyLoss()),
            torch.optim.SGD(model.parameters(), lr=point.rate, momentum=self.task.momentum),
            owners=self.owners,
            tail=LinearTail(plan.tail_length(point.tail)),
            steering=AdaptiveShares(plan, every=EVERY, temperature=point.temperature) if steered else None,
            key=self.seed,
        )
        row = self._row(point)
        parts = 10 if curve else 1
        for part in range(1, parts + 1):
            step = self.task.steps * part // parts
            trainer.fit(self.records.x, self.records.y, steps=step - trainer.steps_done, progress=False)
            with torch.no_grad():
                self._look(row, step, model(self.records.x_test), prior, curve)
        return row

    def _model(self) -> nn.Module:
        task = self.task
        shape = (self.records.x.shape[1],)
        model = models.make(
            task.model, classes=self.records.classes, input_shape=shape, seed=self.seed, **dict(task.options)
        )
        if task.model == "logistic_regression":
            for parameter in model.parameters():
                nn.init.zeros_(parameter)
        return model

    def _row(self, point: Point) -> Row:
        groups = self.task.rule.groups(np.arange(self.records.classes), self.seed).tolist()
        budgets = dict(zip(self.owners.labels, self.owners.epsilon.tolist(), strict=True))
        everybody = np.ones(len(self.records.y_test), dtype=bool)
        return {
            "point": asdict(point),
            "seed": self.seed,
            "owner_of_class": groups,
            "epsilon_of_class": [budgets.get(label) for label in groups],
            "held_out": self.records.counts(everybody),
            "right": {},
            "curve": [],
        }

    def _look(self, row: Row, step: int, logits: Tensor, prior: np.ndarray, curve: bool) -> None:
        """Count the held-out records that are classified correctly, for every strength after training."""
        truth = self.records.y_test.numpy()
        found = {
            str(after): self.records.counts((logits.numpy() - after * prior).argmax(1) == truth) for after in AFTER
        }
        if step == self.task.steps:
            row["right"] = found
        if curve:
            row["curve"].append([step, found])
