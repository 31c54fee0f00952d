"""Shadow models trained together: many networks as one, each with its own batch, weights and noise."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inosgm.audit.confidence import AT_ONCE, scores
from inosgm.audit.ensemble.batches import Batches, Batching
from inosgm.audit.ensemble.seeding import Streams
from inosgm.audit.ensemble.stack import Stack
from inosgm.datasets.settings import Prepared
from inosgm.experiments import components
from inosgm.experiments.adjusting import Adjusting
from inosgm.experiments.config import TrainingConfig
from inosgm.mechanism.tails import tail_weights
from inosgm.planning.plan import Plan
from inosgm.training.batches import batch_of
from inosgm.training.gradients.precision import without_autocast
from inosgm.training.microbatches import stretch

MOST_ACTIVATIONS = 2**19
"""Largest number of activations of the networks that are run at once: they stay in a processor's cache."""


class Ensemble:
    """Models of one configuration, each trained on its own members of a pool, all at once. NOT PRIVATE.

    Each equals, up to rounding, the model that a `Trainer` trains on its members with the same plan, key and seed: it
    has its own coins, noise, order, weights and clipping. `unstackable` says why a configuration cannot be trained like
    this. Nothing is charged, because no model is released: only scores and checkpoints leave the ensemble.

    Args:
        config: The configuration; its own seed and key are not used.
        pool: All records, and their owners.
        plan: The plan of every model.
        members: For each model the positions of its members in the pool, ascending.
        keys: For each model the key of its coins and noise.
        seeds: For each model the seed that replaces the one of the configuration.

    Attributes:
        optimizer: Updates all models.
        schedule: Its learning-rate schedule, if there is one.
    """

    def __init__(
        self,
        config: TrainingConfig,
        pool: Prepared,
        plan: Plan,
        *,
        members: Sequence[np.ndarray],
        keys: Sequence[int],
        seeds: Sequence[int],
    ) -> None:
        configs = [config.model_copy(update={"seed": seed}) for seed in seeds]
        models = [components.model_of(each, pool.dataset) for each in configs]
        self._stack = Stack(models, components.loss_of(config), Adjusting(config, pool.dataset, plan).shifts)
        self._parameters = list(self._stack.parameters())
        self.optimizer = components.optimizer_of(config, self._stack)
        self.schedule = components.schedule_of(config, self.optimizer)
        self._plan, self._tail, self._clipping = plan, config.tail.tail(plan), config.clipping.clipping()
        self._orders = [each.of_order() for each in configs]
        self._keys, self._streams, self._steps_done = list(keys), Streams(keys), 0
        places = np.array([plan.labels.index(label) for label in pool.owners.labels])
        self._batching = Batching(plan, places[pool.owners.of_record], members)
        data = pool.dataset.x, pool.dataset.y
        inputs, self._targets = batch_of(data, np.arange(pool.owners.n_records), self._parameters[0])
        self._inputs = inputs.flatten(1)
        squares = self._inputs.double().square().sum(1)  # a record whose square overflows gets weight 0
        self._squares = squares.where(squares <= torch.finfo(self._inputs.dtype).max, torch.inf)
        self._stretch = stretch(self._inputs)
        self._at_once = max(1, int(MOST_ACTIVATIONS / (self._stack.width * plan.expected_batch)))

    @property
    def steps_done(self) -> int:
        """The number of steps done."""
        return self._steps_done

    def step(self) -> None:
        """Do the next step of every model.

        Raises:
            RuntimeError: when all steps of the plan were done.
        """
        if self._steps_done >= self._plan.steps:
            raise RuntimeError(f"all {self._plan.steps} steps of the plan are done")
        coins, noise = self._streams.at(self._steps_done)
        batches = self._batching.draw(coins)
        sums = [torch.empty_like(parameter) for parameter in self._parameters]
        for begin in range(0, len(coins), self._at_once):
            some = slice(begin, begin + self._at_once)
            for whole, part in zip(sums, self._sums(some, batches.of(some)), strict=True):
                whole[some] = part
        self._add_noise(sums, noise)
        for parameter, total in zip(self._parameters, sums, strict=True):
            parameter.grad = total / self._plan.expected_batch
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.schedule is not None:
            self.schedule.step()
        self._steps_done += 1

    def scores(self) -> np.ndarray:
        """Return the confidence of each model in every record of the pool, float32: a row per model."""
        models, records = len(self._parameters[0]), len(self._targets)
        result = np.empty((models, records), dtype=np.float32)
        for model in range(models):
            for begin in range(0, records, AT_ONCE):
                part = slice(begin, begin + AT_ONCE)
                outputs = self._stack.outputs(slice(model, model + 1), self._inputs[None, part])[0].T
                result[model, part] = scores(outputs, self._targets[part], self._stack.loss).numpy()
        return result

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which training resumes, for torch.save."""
        return {
            "steps_done": self._steps_done,
            "models": self._stack.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of another ensemble of the same models."""
        self._stack.load_state_dict(state["models"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self._steps_done = state["steps_done"]

    def _sums(self, some: slice, batches: Batches) -> list[Tensor]:
        """Return the clipped, weighted sums of some models."""
        records, there = torch.from_numpy(batches.records), batches.there
        inputs = self._inputs.index_select(0, records.flatten()).view(*records.shape, -1)
        with without_autocast(inputs.device):
            gradients = self._stack.gradients(some, inputs, self._squares[records], self._targets[records])
            norms = (gradients.norms() * self._stretch).numpy()
            bounds = self._plan.sensitivities[batches.owners]
            rho = self._importance_weights(
                some, batches, gradients.losses.double().numpy(), np.where(there, bounds, 0.0)
            )
            factors = np.where(there, self._clipping.factors(norms, bounds, rho), 0.0)
            kept = torch.from_numpy(np.isfinite(norms))
            return gradients.weighted_sums(torch.from_numpy(factors).to(inputs.dtype), kept)

    def _importance_weights(self, some: slice, batches: Batches, scores: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """Return the importance weights of the batches of some models."""
        rho = np.ones_like(scores)
        if not self._tail.length:
            return rho
        ids, there, owners = batches.ids, batches.there, self._plan.step_cost[batches.owners]
        ranking, begin = np.empty_like(ids), 0
        orders = zip(self._orders[some], self._keys[some], strict=True)
        for order, same in groupby(order.at(self._steps_done, key) for order, key in orders):
            rows = slice(begin, begin := begin + len(list(same)))
            ranking[rows] = order.rankings(scores[rows], ids[rows], owners[rows], there[rows])
        lowest_first = ranking[:, ::-1]
        spent = tail_weights(np, np.take_along_axis(spans, lowest_first, 1), self._tail)
        np.put_along_axis(rho, lowest_first[:, : spent.shape[1]], spent, 1)
        return rho

    def _add_noise(self, sums: list[Tensor], generators: Sequence[np.random.Generator]) -> None:
        """Add the noise of each model to its sums."""
        sizes = [total[0].numel() for total in sums]
        noise = torch.empty(len(generators), sum(sizes), dtype=sums[0].dtype)
        rows = noise.numpy()
        for row, generator in zip(rows, generators, strict=True):
            generator.standard_normal(out=row, dtype=row.dtype)
        for total, part in zip(sums, torch.split(noise, sizes, 1), strict=True):
            total.add_(part.view_as(total), alpha=self._plan.noise_scale)
