"""From a configuration to a trainer."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from inosgm.datasets import Dataset
from inosgm.datasets.settings import Prepared
from inosgm.experiments import components, directory
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.input_files import Source, read_run
from inosgm.experiments.plans import planned, steering_of
from inosgm.experiments.small_shares import small_shares_warning
from inosgm.ledger.cost import LedgerHook
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import PlanSequence
from inosgm.training.trainer import Trainer
from inosgm.training.workers import Workers

PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}

TRIED_RECORDS = 8
"""Held-out records that are evaluated before anything is charged: enough to meet every shape, and cheap."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """A model, its data, owners and plans, as a configuration describes them, ready to be trained.

    Attributes:
        config: Where it comes from.
        dataset: The records to train on, and those held out.
        owners: The owners of the training records.
        groups: One label per held-out record: its owner, or its class where it has none.
        trainer: The trainer, with its plan, model and optimizer.
        begun_at: The step that training resumes from; 0 for a run that has not begun.
        follows: The plan that it resumes with.
        source: What `build` has read for it.
    """

    config: TrainingConfig
    dataset: Dataset
    owners: Owners
    groups: np.ndarray
    trainer: Trainer
    begun_at: int
    follows: Plan
    source: Source | None = None

    @property
    def plan(self) -> Plan:
        """The plan that is followed from now on."""
        return self.trainer.plan if self.trainer.steps_done else self.follows

    def plan_report(self) -> str:
        """Return a table of the plan, or of all stages, for people."""
        course = self.trainer.course
        return course.report() if len(course.plans) > 1 else self.plan.report()

    def warning(self) -> str:
        """Return a warning about owners that the plan gives little of every batch, or nothing."""
        return small_shares_warning(self.config, self.dataset, self.trainer.course)

    @property
    def held_out(self) -> tuple[Any, Any, np.ndarray]:
        """Inputs, targets and groups of the held-out records."""
        return self.dataset.x_test, self.dataset.y_test, self.groups

    def check(self) -> None:
        """Raise for a model, a loss or held-out records that cannot be worked with; nothing is drawn or charged.

        Raises:
            ValueError: for held-out records; what model and loss raise on training records is left as it is.
        """
        inputs, targets, groups = self.held_out
        self.trainer.check(self.dataset.x, self.dataset.y)
        try:
            self.trainer.evaluate(inputs[:TRIED_RECORDS], targets[:TRIED_RECORDS], owners=groups[:TRIED_RECORDS])
        except Exception as error:  # whatever model and loss raise
            raise ValueError(f"data: the model cannot be tried on the held-out records: {error}") from error


def build(
    config: TrainingConfig, *, source: Source | None = None, note: str = "", workers: Workers | None = None
) -> Training:
    """Make data, owners, plan, model, optimizer and trainer from a configuration; nothing is trained or charged.

    A run that has begun goes by the plan that it was begun with.

    Args:
        config: What to make.
        source: What the configuration reads from files, where it is read already.
        note: What the ledger says about it.
        workers: The ranks that train it together, each of which builds it.

    Raises:
        ValueError: for what does not fit together, with the path of the key.
        FileNotFoundError: for data that is not there.
    """
    _require_one_model(config)
    begun = directory.begun(config)
    source = read_run(config) if source is None else source.for_run(config)
    chosen = components.prepared(config, source)
    ledger = components.ledger_of(config, chosen.owners if begun.course is None else None)
    course = begun.course or planned(config, chosen.owners, ledger)
    made = assemble(config, chosen, course, key=config.noise_key(), ledger=ledger, note=note, workers=workers)
    return replace(made, begun_at=begun.step, follows=begun.follows or course.first, source=source)


def assemble(
    config: TrainingConfig,
    chosen: Prepared,
    course: PlanSequence,
    *,
    key: int | None = None,
    ledger: LedgerHook | None = None,
    note: str = "",
    workers: Workers | None = None,
) -> Training:
    """Put the parts of a run that has not begun together."""
    if not len(chosen.dataset.y_test):
        raise ValueError(f"data: {config.data.name} has no held-out records")
    require_diagnosable(config, course.first, chosen.groups)
    learner = components.learner_of(config, chosen.dataset, course)
    given: dict[str, Any] = {"key": key, "ledger": ledger, "note": note, "workers": workers}
    trainer = trainer_of(config, learner, course, chosen.owners, **given)
    return Training(
        config=config,
        dataset=chosen.dataset,
        owners=chosen.owners,
        groups=chosen.groups,
        trainer=trainer,
        begun_at=0,
        follows=course.first,
    )


def trainer_of(
    config: TrainingConfig,
    learner: components.Learner,
    plan: Plan | PlanSequence,
    owners: Owners | np.ndarray,
    *,
    kind: type[Trainer] = Trainer,
    key: int | None = None,
    ledger: LedgerHook | None = None,
    note: str = "",
    workers: Workers | None = None,
) -> Trainer:
    """Make the trainer of a learner, for a plan and the owners of the records."""
    _require_one_model(config)
    fit = config.training
    first = plan.first if isinstance(plan, PlanSequence) else plan
    return kind(
        plan,
        learner.model,
        learner.loss,
        learner.optimizer,
        owners=owners,
        tail=config.tail.tail,
        order=config.of_order(),
        clipping=config.clipping.clipping(),
        steering=steering_of(config, first),
        schedule=learner.schedule,
        max_physical_batch=fit.max_physical_batch,
        autocast=None if fit.autocast is None else PRECISIONS[fit.autocast],
        fix=fit.fix,
        workers=workers,
        key=key,
        ledger=ledger,
        note=note,
    )


def _require_one_model(config: TrainingConfig) -> None:
    """Raise for a method that trains several models, as jobs."""
    if config.plan.by_votes:
        raise ValueError(
            f"plan.method: {config.plan.method} trains teachers before its student, as jobs of a store: take "
            "`inosgm train --seeds 1 --store DIR`, or `inosgm compare`"
        )


def require_diagnosable(config: TrainingConfig, plan: Plan, groups: np.ndarray) -> None:
    """Raise if diagnostics are wanted where held-out records have no owners to compare."""
    unknown = set(groups.tolist()) - set(plan.labels) if config.training.diagnostics else ()
    if unknown:
        raise ValueError(
            f"training.diagnostics: compares owners, but there are held-out records of {min(map(str, unknown))}, who "
            "owns no training record (a data.subset may have none of an owner): set it false"
        )
