"""What a trainer does with plans: it follows them step by step, resumes a run, and goes on with revised budgets."""

import json
import os
import threading
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from inosgm._internal.once import Uncopied
from inosgm.accounting import ACCOUNTANTS
from inosgm.ledger.cost import LedgerHook
from inosgm.ledger.ledger import Ledger
from inosgm.mechanism.mechanism import Release
from inosgm.mechanism.noise import name_of_noise
from inosgm.owners import Owners, labels_at
from inosgm.planning.plan import AlreadySpent, Plan
from inosgm.planning.sequence import PlanSequence
from inosgm.planning.steering import Steering
from inosgm.training.averaging import WeightAverage
from inosgm.training.checkpoints import Checkpoint, load_states, states_of
from inosgm.training.curve import LearningCurve
from inosgm.training.gradient_mechanism import GradientMechanism
from inosgm.training.group_gradients import GroupGradients
from inosgm.training.parameter_watch import ParameterWatch
from inosgm.training.run import Revision, Run, key_of_revision
from inosgm.training.runlog import RunLog


class PlanFollower(Uncopied):
    """The part of a trainer that knows its plans, its mechanism, and the directory of its run."""

    mechanism_type: ClassVar[type[GradientMechanism]] = GradientMechanism
    """The class of the mechanism that releases the sums of gradients."""

    model: nn.Module
    optimizer: Optimizer
    schedule: LRScheduler | None
    _course: PlanSequence
    _mechanism: GradientMechanism
    _gradients: GroupGradients
    _owners: Any
    _options: dict[str, Any]
    _settings: dict[str, str]
    _secret: int | None
    _ledger: LedgerHook | None
    _steering: Steering | None
    _curve: LearningCurve
    _watch: ParameterWatch
    _average: WeightAverage | None
    _passes: threading.RLock
    _revision: int
    _first: int

    def step(self, *data: Any) -> Release:
        """Make the next step; `Trainer` says how."""
        raise NotImplementedError

    @property
    def mechanism(self) -> GradientMechanism:
        """The mechanism that releases the sums of gradients; every plan that is followed has its own."""
        return self._mechanism

    @property
    def plan(self) -> Plan:
        """The public numbers that are followed now."""
        return self._mechanism.plan

    @property
    def released(self) -> int:
        """The number of steps of the plan that have been released."""
        return self._mechanism.released

    @property
    def steps_done(self) -> int:
        """The number of steps that were done, under this plan and under those that it was revised from."""
        return self._first + self.released

    @property
    def course(self) -> PlanSequence:
        """The plans that the run was begun with."""
        return self._course

    @property
    def _end(self) -> int:
        """The number of steps when everything is done, those of earlier plans included."""
        return self._first + self.plan.steps + sum(plan.steps for plan in self._course.plans[self._revision + 1 :])

    def revise(self, owners: Owners, *data: Any, run: str | os.PathLike[str] | None = None) -> Plan:
        """Go on with new budgets: a new plan for the steps that remain, after a step back if somebody has spent more.

        An owner that now grants less than was spent takes the run back to the last step that it pays for. With the
        training data, steps are repeated up to there from the checkpoint before; without, that checkpoint is where
        the run resumes. What came later is deleted from the run and no longer charged, so nobody must have used it.
        Steps that a killed run made after its last checkpoint stay paid for; with the data they are made again.

        If it is killed, the next call of `revise` or `fit` with this run finishes what was begun. Asked once more for
        budgets that the run has, before a step was made with them, it changes nothing.

        Args:
            owners: The same owners with the budgets that hold now. They must not be chosen by what was released.
            data: The training data, to repeat steps with.
            run: The directory of the run, from whose latest checkpoint to resume.

        Returns:
            The plan that is followed from now on.

        Raises:
            AlreadySpent: when the run would have to go back and has no directory, or not so far to go.
            ValueError: for a run in stages, or one that is steered: their plans cannot be revised.
        """
        if len(self._course.plans) > 1 or self._steering is not None:
            raise ValueError("a run in stages, or one that is steered, has a plan that cannot be revised: begin anew")
        if self.plan.variant.filters_records:
            raise ValueError("a run in which every record pays for itself cannot be revised: begin anew")
        self._gradients.workers.require_alone("revise")
        self._mechanism.require_here()
        with self._passes:  # no other thread makes a step by one plan while another one is begun
            if run is None:
                made = self._mechanism.undo_unmade_steps()
                self._repeat(made - self.released, data)
                plan = self.plan.revise(made, owners)
                self._switch(plan, owners, self._revision + 1, made)
                return plan
            with Run(run) as place:
                self._resume(place, data)
                if self._revised and not self.released and _grants(self.plan, owners):
                    return self.plan
                revision = self._revision_for(place, owners, data)
                place.begin_revision(revision)
                self._finish_revision(place, revision)
        return revision.plan

    def _resume(self, place: Run, data: tuple[Any, ...]) -> None:
        """Take everything from the latest checkpoint of a run, after finishing its revision, or begin one."""
        if self._ledger is None:
            self._ledger = self._own_ledger(place)
        latest = place.latest()
        if latest is None:
            if self.steps_done:
                raise ValueError(f"a run begins with the first step, and this trainer has made {self.steps_done}")
            self._secret = place.key() if self._secret is None else self._secret
            place.save_stages(self._course.plans)
            place.save_shards(self._gradients.shards)
            self._start_plan(self.plan)
            return
        self._gradients.cut_into(place.shards())
        if any(place.plan(stage) != plan for stage, plan in enumerate(self._course.plans)):
            raise ValueError(f"{place.path} holds a run with another plan: choose another directory, or `revise` that")
        revision = place.revising()
        if revision is None:
            self._load(place, latest)
        elif latest.revision == revision.number:  # only its end was not written down
            self._load(place, latest)
            place.end_revision()
        else:
            self._stand_at(place, revision.step, data)
            self._finish_revision(place, revision)

    def _load(self, place: Run, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        plan, released = place.plan(checkpoint.revision), checkpoint.step - checkpoint.first
        left = released < plan.steps or checkpoint.revision + 1 < len(self._course.plans)
        if self._secret is None and left:
            self._secret = place.key()
        key = None if self._secret is None else key_of_revision(self._secret, checkpoint.revision)
        if key is not None and name_of_noise(key) != checkpoint.job:
            raise ValueError(f"key must be the one that the run in {place.path} was begun with")
        checkpoint.require_settings(self._settings, place.path)
        if isinstance(self._ledger, Ledger) and checkpoint.ledger:
            self._ledger.check(checkpoint.ledger)
        turn_model(self.model, checkpoint.revision)
        load_states(vars(checkpoint), self.model, self.optimizer, self.schedule)
        self._watch.forget()
        if self._average is not None:
            self._average.load(checkpoint.average or {})
        self._revision, self._first = checkpoint.revision, checkpoint.first
        self._curve = LearningCurve.from_json(checkpoint.curve)
        if self._steering is not None:
            self._steering.restore(json.loads(checkpoint.steering))
        spent = None
        if plan.variant.filters_records and released < plan.steps:
            if checkpoint.private is None:
                raise ValueError(f"{place.path} does not hold what its records have spent: begin a new run")
            spent = checkpoint.private["spent"].numpy()
        self._start_plan(plan, released, spent)

    def _save(self, place: Run, *, needed: bool = False, trainable_only: bool = False) -> None:
        self._watch.require_unchanged()
        spent = self._mechanism.spent_by_record
        place.save(
            Checkpoint(
                step=self.steps_done,
                revision=self._revision,
                first=self._first,
                job=self._mechanism.job,
                ledger=self._ledger.head() if isinstance(self._ledger, Ledger) else "",
                curve=self._curve.to_json(),
                settings=self._settings,
                steering="" if self._steering is None else json.dumps(self._steering.state()),
                **states_of(self.model, self.optimizer, self.schedule, trainable_only=trainable_only),
                average=None if self._average is None else self._average.state,
                private=None if spent is None else {"spent": torch.from_numpy(spent)},
            ),
            needed=needed,
        )
        self._forget_private(place)

    def _forget_private(self, place: Run) -> None:
        """Delete the checkpoints that are no longer needed, if one, of a stage before too, has what nobody may see."""
        if any(plan.variant.filters_records for plan in self._course.plans):
            place.drop_before(self.steps_done)

    def _own_ledger(self, place: Run) -> Ledger:
        """Open the ledger of a run that was given none."""
        path, plan = place.path / "ledger", self._course.first
        if plan.epsilon is None or plan.delta is None or plan.accountant is None:
            raise ValueError("a run needs a ledger, or a plan with budgets to make one from")
        if plan.past:
            raise ValueError("this plan counts what was done before it: give the ledger that knows about it")
        owners = None if path.exists() else self._owners_granting(plan)
        return Ledger(path, owners=owners, accountant=ACCOUNTANTS[plan.accountant])

    def _owners_granting(self, plan: Plan) -> Owners:
        """Return the owners of the units with the budgets of a plan."""
        budgets = {name: np.asarray(getattr(plan, name)).tolist() for name in ("epsilon", "delta")}
        epsilon, delta = (dict(zip(plan.labels, values, strict=True)) for values in budgets.values())
        units = labels_at(plan.labels, self._mechanism.owners)
        return Owners.of_units(units, epsilon=epsilon, delta=delta, unit_name=plan.unit_name)

    def _revision_for(self, place: Run, owners: Owners, data: tuple[Any, ...]) -> Revision:
        """Stand where a run resumes with new budgets, and return how; nothing of the run is changed.

        Raises:
            AlreadySpent: if there is no checkpoint at a step that everybody pays for.
        """
        number, made = place.revisions(), self._mechanism.steps_released()
        try:
            plan = self.plan.revise(made, owners)
        except AlreadySpent as refusal:
            before = int(sum(segment.steps.max() for segment in self._course.first.past))
            target = refusal.last_step - before
            checkpoint = place.latest(at_most=target) if target >= 0 else None
            if checkpoint is None:
                raise
            self._stand_at(place, target, data)
            return Revision(number=number, step=self.steps_done, plan=self.plan.revise(self.released, owners))
        self._repeat(made - self.released, data)
        return Revision(number=number, step=self._first + made, plan=plan)

    def _stand_at(self, place: Run, step: int, data: tuple[Any, ...]) -> None:
        """Take everything from the last checkpoint up to a step, and repeat the steps from there if there are data."""
        checkpoint = place.latest(at_most=step)
        if checkpoint is None:
            raise ValueError(f"{place.path} holds no checkpoint of {step} steps or fewer, which its revision needs")
        self._load(place, checkpoint)
        self._repeat(step - self.steps_done, data)

    def _finish_revision(self, place: Run, revision: Revision) -> None:
        """Delete what came after the steps that are kept, take back its charges, and follow the new plan.

        Whatever of it was done before a process was killed may be done once more. Results of steps are deleted before
        their charges are taken back.
        """
        kept = revision.step - self._first
        place.drop_after(revision.step)
        RunLog(place.path, after=self._logged_until()).close()
        if isinstance(self._ledger, Ledger) and self._secret is not None:
            for number in range(self._revision, revision.number):
                job = name_of_noise(key_of_revision(self._secret, number))
                self._ledger.undo(job, kept if number == self._revision else 0)
        place.save_plan(revision.number, revision.plan)
        self._switch(revision.plan, self._owners_granting(revision.plan), revision.number, kept)
        self._save(place)
        place.end_revision()

    def _repeat(self, steps: int, data: tuple[Any, ...]) -> None:
        """Make steps again that were made before, if there are data to make them with; none beyond them is paid for."""
        mechanism = self._mechanism
        at_once, mechanism.charge_steps = mechanism.charge_steps, 1
        try:
            for _ in range(steps if data else 0):
                self.step(*data)
        finally:
            mechanism.charge_steps = at_once

    def _next_stage(self) -> None:
        """Follow the next plan of the course from its first step on."""
        with self._passes:
            self._first, self._revision = self._first + self.plan.steps, self._revision + 1
            with self._watch.own():
                turn_model(self.model, self._revision)
            self._start_plan(self._course.plans[self._revision])

    def _switch(self, plan: Plan, owners: Owners, revision: int, made: int) -> None:
        """Follow a revised plan after some steps of the one before."""
        if isinstance(self._ledger, Ledger):
            self._ledger.grant(owners)
        self._first, self._revision = self._first + made, revision
        self._start_plan(plan)

    def _start_plan(self, plan: Plan, released: int = 0, spent: np.ndarray | None = None) -> None:
        """Follow a plan from one of its steps on; the mechanism before releases nothing any more."""
        self._mechanism.retire()  # a caller may have kept it, and its other steps are not paid for
        self._mechanism = self._mechanism_for(plan, released, spent)

    def _mechanism_for(self, plan: Plan, released: int = 0, spent: np.ndarray | None = None) -> GradientMechanism:
        """Return the mechanism that follows a plan from one of its steps on, with the noise of this revision."""
        self._gradients.follow_plan(plan)
        key = None if self._secret is None else key_of_revision(self._secret, self._revision)
        return self.mechanism_type(
            plan,
            self._owners,
            self._gradients,
            key=key,
            ledger=self._ledger,
            steering=self._steering,
            released=released,
            spent=spent,
            **self._options,
        )

    def _logged_until(self) -> int:
        """Return the last step whose rows in the log belong to what the run resumes from; -1 if there is none."""
        if self._curve.steps:
            return self._curve.steps[-1]
        return self.steps_done or -1  # without held-out records; an evaluation at step 0 comes after its checkpoint

    @property
    def _revised(self) -> bool:
        """Whether the run follows a plan that was revised: the stages of a course are not revisions."""
        return self._revision >= len(self._course.plans)


def _grants(plan: Plan, owners: Owners) -> bool:
    """Say whether a plan keeps exactly the budgets that owners grant."""
    granted = ((plan.epsilon, owners.epsilon), (plan.delta, owners.delta))
    return plan.labels == owners.labels and all(np.array_equal(np.asarray(one), other) for one, other in granted)


def turn_model(model: Any, stage: int) -> None:
    """Tell a model that wants to know it which stage begins."""
    turn_to = getattr(model, "turn_to", None)
    if callable(turn_to):
        turn_to(stage)
