"""The common design of all shadow models of an audit: the pool of records, its owners, and a plan for half of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from inosgm.audit import draws
from inosgm.audit.confidence import confidences
from inosgm.audit.ensemble import Ensemble
from inosgm.datasets.settings import Prepared
from inosgm.experiments import components
from inosgm.experiments.building import TRIED_RECORDS, trainer_of
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.input_files import Source
from inosgm.experiments.plans import one_plan, planned
from inosgm.experiments.task import described
from inosgm.ledger.cost import Cost
from inosgm.owners import Owners, labels_at
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import PlanSequence
from inosgm.training.gradient_mechanism import GradientMechanism
from inosgm.training.trainer import Trainer

UNBOUNDED, SILENT = 1e30, 1e-30
"""Sensitivity and noise of a model without privacy: above any gradient norm, and below any rounding error."""


class _ShadowMechanism(GradientMechanism):
    """The mechanism of a shadow model: the number of records of an owner is random, while the plan is fixed."""

    sizes_vary = True


class ShadowTrainer(Trainer):
    """Trains a shadow model."""

    mechanism_type = _ShadowMechanism


class NullLedger:
    """A ledger that charges nobody, because nothing of an audit is released."""

    def charge(self, cost: Cost, /) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """An audit before its first shadow model is trained. It survives pickling.

    Attributes:
        config: The method under audit.
        seed: Decides the members of each shadow model, and everything else that is random.
        private: Whether shadow models are trained with the plan, or without any clipping and noise, for comparison.
        canaries: The number of records of every owner with a wrong class; if not 0, only they are attacked.
        pool: The records, each of which may be a member, and their owners.
        owners: The owner of each record, as a position in the plan.
        plan: The plan that every shadow model follows, made for half of every owner's records.
    """

    config: TrainingConfig
    seed: int
    private: bool
    canaries: int
    pool: Prepared
    owners: np.ndarray
    plan: Plan

    @classmethod
    def of(
        cls, config: TrainingConfig, source: Source, *, seed: int = 0, private: bool = True, canaries: int = 0
    ) -> Self:
        """Return the design for a configuration: its pool and its plan.

        Args:
            config: The method under audit, with any data and owners; its seed decides which they are.
            source: The files that it reads.
            seed: The seed of the audit.
            private: False for shadow models without privacy.
            canaries: The number of records of every owner that get a wrong class.

        Raises:
            ValueError: for settings that do not fit together, with the path of the key.
        """
        chosen = components.prepared(config, source)
        halves = -(-chosen.owners.sizes // 2)
        budgets = {
            name: dict(zip(chosen.owners.labels, getattr(chosen.owners, name).tolist(), strict=True))
            for name in ("epsilon", "delta")
        }
        who = labels_at(chosen.owners.labels, np.repeat(np.arange(halves.size), halves))
        half = Owners(of_record=who, epsilon=budgets["epsilon"], delta=budgets["delta"])
        if private:
            plan = one_plan(config, planned(config, half, None), "an audit by shadow models")
        else:
            config = config.changed({"tail": {"kind": "none"}, "clipping": {"kind": "scale_clipped"}})
            plan = _without_privacy(config, half)
        place = {label: index for index, label in enumerate(plan.labels)}
        places = np.array([place[label] for label in chosen.owners.labels])
        of_record = places[chosen.owners.of_record]
        if canaries:
            data, positions = chosen.dataset, draws.canaries(seed, of_record, canaries)
            changed = draws.mislabelled(seed, data.y, len(data.classes), positions)
            chosen = replace(chosen, dataset=replace(data, y=changed))
        return cls(
            config=config, seed=seed, private=private, canaries=canaries, pool=chosen, owners=of_record, plan=plan
        )

    @property
    def description(self) -> dict[str, Any]:
        """The identity of the audit, for the spec of a job."""
        return {**described(self.config), "audit": self._audit}

    def members(self, shadow: int) -> np.ndarray:
        """Return the members of a shadow model, a truth value per record of the pool."""
        return draws.members(self.seed, shadow, self.owners.size)

    def key(self, shadow: int) -> int:
        """Return the key of a shadow model's coins and noise."""
        return draws.noise_key(self.config, self._audit, shadow)

    def learner(self, shadow: int) -> components.Learner:
        """Return a shadow model with its initial parameters, loss, optimizer and schedule."""
        return components.learner_of(
            self.config, self.pool.dataset, PlanSequence((self.plan,)), seed=draws.model_seed(self.seed, shadow)
        )

    def trainer(self, shadow: int, learner: components.Learner) -> Trainer:
        """Return the trainer of a shadow model, for its members in the order of the pool."""
        labels = labels_at(self.plan.labels, self.owners[self.members(shadow)])
        return trainer_of(
            self._seeded(shadow),
            learner,
            self.plan,
            labels,
            kind=ShadowTrainer,
            key=self.key(shadow),
            ledger=NullLedger(),
        )

    def mechanism(self) -> Trainer:
        """Return a trainer of all records of the pool, for audits of the mechanism."""
        labels = labels_at(self.plan.labels, self.owners)
        return trainer_of(self.config, self.learner(0), self.plan, labels, kind=ShadowTrainer, ledger=NullLedger())

    def records(self, shadow: int) -> tuple[Any, Any]:
        """Return inputs and targets of the members."""
        chosen, data = self.members(shadow), self.pool.dataset
        return data.x[chosen], data.y[chosen]

    def ensemble(self, shadows: Sequence[int]) -> Ensemble:
        """Return an ensemble that trains several shadow models together."""
        return Ensemble(
            self.config,
            self.pool,
            self.plan,
            members=[np.flatnonzero(self.members(shadow)) for shadow in shadows],
            keys=[self.key(shadow) for shadow in shadows],
            seeds=[draws.model_seed(self.seed, shadow) for shadow in shadows],
        )

    def scores(self, learner: components.Learner) -> np.ndarray:
        """Return the confidence of a model in every record of the pool, float32. NOT PRIVATE."""
        like = next(learner.model.parameters())
        return confidences(learner.model, learner.loss, (self.pool.dataset.x, self.pool.dataset.y), like)

    def check(self) -> None:
        """Raise if the first shadow model cannot be trained or scored; tested on the CPU.

        Raises:
            ValueError: saying what is wrong; exceptions of the model and the loss are passed on.
        """
        here = replace(self, config=self.config.changed({"training.device": "cpu"}))
        learner = here.learner(0)
        here.trainer(0, learner).check(*here.records(0))
        data, like = self.pool.dataset, next(learner.model.parameters())
        found = confidences(learner.model, learner.loss, (data.x[:TRIED_RECORDS], data.y[:TRIED_RECORDS]), like)
        if found.shape != data.y[:TRIED_RECORDS].shape:
            raise ValueError("model: must give one answer per record for its confidence to be told")

    @property
    def _audit(self) -> dict[str, Any]:
        return {"seed": self.seed, "private": self.private, "canaries": self.canaries}

    def _seeded(self, shadow: int) -> TrainingConfig:
        return self.config.model_copy(update={"seed": draws.model_seed(self.seed, shadow)})


def _without_privacy(config: TrainingConfig, owners: Owners) -> Plan:
    """Return a plan without privacy: one rate for all, no clipping, and noise below rounding."""
    return Plan(
        sample_rates=np.full(len(owners.labels), min(1.0, config.plan.expected_batch / owners.n_records)),
        sensitivities=np.full(len(owners.labels), UNBOUNDED),
        sizes=owners.sizes,
        noise_scale=SILENT,
        steps=config.plan.steps,
        labels=owners.labels,
    )
