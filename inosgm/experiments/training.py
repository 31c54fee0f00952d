"""Train, evaluate and revise runs that configurations describe."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inosgm._internal import labels as _labels
from inosgm.experiments import components, directory
from inosgm.experiments.building import Training, assemble, build
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.expense import BROKEN
from inosgm.experiments.input_files import Source, read_run
from inosgm.experiments.tables import owner_table
from inosgm.owners import Owners, labels_at
from inosgm.planning.plan import Plan
from inosgm.planning.planners import PLANNERS
from inosgm.planning.sequence import PlanSequence
from inosgm.training.checkpoints import Checkpoint
from inosgm.training.curve import LearningCurve
from inosgm.training.metrics import Evaluation
from inosgm.training.plan_following import turn_model
from inosgm.training.run import Run, RunFiles


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """The evaluation of a model of a run, for every owner.

    Attributes:
        plan: The plan that the run follows.
        step: How many steps of that plan were done.
        steps_done: How many steps were done, those of earlier plans included.
        evaluation: On the held-out records.
    """

    plan: Plan
    step: int
    steps_done: int
    evaluation: Evaluation

    def report(self) -> str:
        """Return a table for people."""
        return owner_table(self.plan, self.step, self.evaluation)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        plan = self.plan
        owners = [
            {"owner": label, "records": size, "epsilon": granted, "spent": spent, "delta": delta}
            for label, size, granted, spent, delta in zip(
                plan.labels,
                plan.sizes.tolist(),
                *(np.asarray(column).tolist() for column in (plan.epsilon, plan.spent(self.step), plan.delta)),
                strict=True,
            )
        ]
        return {
            "steps": self.steps_done,
            "accountant": plan.accountant,
            "owners": owners,
            "evaluation": self.evaluation.to_dict(),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedRun(Evaluated):
    """A run that has been trained.

    Attributes:
        curve: The evaluations by step.
        training: The model and everything else.
    """

    curve: LearningCurve
    training: Training


def train(run: TrainingConfig | Training, *, steps: int | None = None, progress: bool = False) -> TrainedRun:
    """Train what a configuration describes, or resume it from its run directory.

    The run directory then holds the configuration (`config.yaml`), the plan, checkpoints, the log, the ledger, and at
    the end `curve.json` and the weights, `model.pt`. Without one everything stays in memory.

    Args:
        run: A configuration, or what `build` made of it.
        steps: How many steps to make now; all that are left if not given.
        progress: Show how far training has got.

    Raises:
        ValueError: for a model, a loss or data that cannot be trained with, before the directory is begun; for one that
            holds a run of another configuration, naming the keys.
        BlockingIOError: while another process trains in the directory.
    """
    training = run if isinstance(run, Training) else build(run)
    config = training.config
    if not training.trainer.steps_done:
        _require_kept(training.trainer.course)
        training.check()  # what is refused leaves no directory behind
    if config.run is not None and training.trainer.leads:
        with Run(config.run):
            directory.require_same(config)
            directory.remember(config)
            if training.source is not None:
                training.source.keep_features()
    return fit(training, steps=steps, run=config.run, progress=progress)


def _require_kept(course: PlanSequence) -> None:
    """Raise for plans that spend more than an owner grants, before anything is spent."""
    plan = course.last
    if plan.epsilon is None:
        return
    over = plan.spent() / plan.epsilon
    worst = int(np.argmax(over))
    if over[worst] > BROKEN:
        raise ValueError(
            f"plan: spends epsilon {over[worst] * plan.epsilon[worst]:.3g} of owner {plan.labels[worst]!r}, who grants "
            f"{plan.epsilon[worst]:g}, and training keeps what owners grant: let them grant that much, or see what it "
            "would be worth with `inosgm compare`"
        )


def fit(
    training: Training,
    *,
    steps: int | None = None,
    run: str | Run | None = None,
    watch: Callable[[LearningCurve], None] | None = None,
    stop: Callable[[], bool] | None = None,
    progress: bool = False,
) -> TrainedRun:
    """Train as a configuration says, wherever the run is kept, and evaluate the model."""
    trainer, settings = training.trainer, training.config.training
    curve = trainer.fit(
        training.dataset.x,
        training.dataset.y,
        steps=steps,
        held_out=training.held_out,
        evaluate_every=settings.evaluate_every,
        checkpoint_every=settings.checkpoint_every,
        diagnostics=settings.diagnostics,
        run=run,
        watch=watch,
        stop=stop,
        progress=progress,
    )
    return TrainedRun(
        plan=trainer.plan,
        step=trainer.released,
        steps_done=trainer.steps_done,
        evaluation=trainer.evaluate(*training.held_out[:2], owners=training.groups),
        curve=curve,
        training=training,
    )


def evaluate(run: TrainingConfig | str | os.PathLike[str], *, source: Source | None = None) -> Evaluated:
    """Evaluate the latest checkpoint of a run on the held-out records.

    Args:
        run: A configuration with a run directory, or that directory.
        source: What the configuration reads from files, where it is read already.

    Raises:
        ValueError: if nothing was trained there.
    """
    config = run if isinstance(run, TrainingConfig) else configuration_in(run)
    checkpoint, plan = _latest(config)
    chosen = components.prepared(config, read_run(config) if source is None else source)
    training = assemble(config, chosen, directory.begun(config).course or PlanSequence((plan,)))
    turn_model(training.trainer.model, checkpoint.revision)
    training.trainer.model.load_state_dict(dict(checkpoint.model))
    found = training.trainer.evaluate(*training.held_out[:2], owners=training.groups)
    step = checkpoint.step - checkpoint.first
    return Evaluated(plan=plan, step=step, steps_done=checkpoint.step, evaluation=found)


def revise(
    config: TrainingConfig,
    epsilon: dict[str | int, float],
    delta: dict[str | int, float] | None = None,
    *,
    back: bool = False,
) -> Training:
    """Give owners of a run new budgets: it resumes with a new plan, from an earlier step if an owner has spent more.

    Args:
        config: A configuration with a run directory.
        epsilon: What some owners grant from now on; the others as before. 7 and "7" are the same owner unless the run
            has both.
        delta: Likewise.
        back: Go back, and delete what came later, if an owner has spent more than it now grants.

    Returns:
        The run, whose plan is the new one; `train` resumes it.

    Raises:
        ValueError: for owners that the run does not have, or a run that has not begun.
        AlreadySpent: when the run would have to go back and may not, or not so far.
    """
    if config.plan.method not in PLANNERS:
        raise ValueError(f"plan.method: a run of {config.plan.method} cannot be revised: begin a new one")
    checkpoint, plan = _latest(config)
    made, begun = checkpoint.step - checkpoint.first, RunFiles(str(config.run)).revising()
    if begun is not None:  # which the trainer finishes first
        made, plan = 0, begun.plan
    training = build(config)
    labels = labels_at(training.owners.labels, training.owners.of_record)
    budgets = {}
    for name, changes in (("epsilon", epsilon), ("delta", delta or {})):
        now = dict(zip(plan.labels, np.asarray(getattr(plan, name)).tolist(), strict=True))
        meant = _labels.match_labels(changes, plan.labels)
        strange = [label for label, owner in meant.items() if owner not in now]
        if strange:
            raise ValueError(f"{name} must be of owners of the run: {_labels.unknown(strange[0], plan.labels)}")
        budgets[name] = {**now, **{meant[label]: value for label, value in changes.items()}}
    owners = Owners(of_record=labels, epsilon=budgets["epsilon"], delta=budgets["delta"])
    if not back:
        plan.revise(made, owners)  # raises AlreadySpent
    training.trainer.revise(owners, training.dataset.x, training.dataset.y, run=config.run)
    return training


def _latest(config: TrainingConfig) -> tuple[Checkpoint, Plan]:
    """Return the latest checkpoint of a run, and the plan that it follows."""
    if config.run is None or not (Path(config.run) / directory.NAME).exists():
        raise ValueError(f"run: must be the directory of a run that `train` has begun, got {config.run}")
    directory.require_same(config)
    files = RunFiles(config.run)
    checkpoint = files.latest()
    if checkpoint is None:
        raise ValueError(f"run: {config.run} holds no checkpoint yet")
    return checkpoint, files.plan(checkpoint.revision)


def configuration_in(folder: str | os.PathLike[str]) -> TrainingConfig:
    """Return the configuration of a run directory.

    Raises:
        ValueError: if it holds none.
    """
    path = Path(folder) / directory.NAME
    if not path.exists():
        raise ValueError(f"{folder} must be the directory of a run: it holds no {directory.NAME}")
    return TrainingConfig.from_yaml(path).model_copy(update={"run": os.fspath(folder)})
