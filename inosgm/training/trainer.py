"""INO-SGD: train a model, watch every owner, stop and resume at any moment."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from inosgm._internal import validate as _validate
from inosgm._internal.once import Uncopied
from inosgm._internal.overlap import share_records
from inosgm.accounting import ACCOUNTANTS
from inosgm.ledger.cost import LedgerHook
from inosgm.ledger.ledger import Ledger
from inosgm.mechanism.clipping import Clipping, ScaleClipped
from inosgm.mechanism.mechanism import Release
from inosgm.mechanism.noise import name_of_noise
from inosgm.mechanism.orders import Descending, Order
from inosgm.mechanism.tails import NoTail, Tail
from inosgm.owners import Owners, labels_at
from inosgm.planning.plan import AlreadySpent, Plan
from inosgm.planning.sequence import PlanSequence
from inosgm.planning.steering import Steering
from inosgm.training.batches import as_data
from inosgm.training.checkpoints import Checkpoint, load_states, settings_of, states_of
from inosgm.training.curve import LearningCurve
from inosgm.training.diagnostics import Diagnostics, diagnose
from inosgm.training.fitting import require_fitting
from inosgm.training.gradient_mechanism import GradientMechanism
from inosgm.training.gradients import Engine, fix_in_place
from inosgm.training.group_gradients import Follower, GroupGradients
from inosgm.training.held_out import require_apart, with_owners
from inosgm.training.loop import make_steps
from inosgm.training.losses import loss_or_losses
from inosgm.training.metrics import Evaluation
from inosgm.training.predictions import evaluated, evaluating
from inosgm.training.process_groups import refuse_lone_ranks, refuse_wrapped
from inosgm.training.progress import StepProgress
from inosgm.training.run import Revision, Run, key_of_revision
from inosgm.training.runlog import RunLog
from inosgm.training.scores import Score
from inosgm.training.workers import Workers


class Trainer(Uncopied):
    """Trains a model by INO-SGD: contributions are gradients, scores are losses, the optimizer comes after the noise.

    `tail=NoTail()` gives IDP-SGD, a plan of `plan_uniform` gives DP-SGD: three methods, one code path. The optimizer
    and the schedule only post-process released sums, so any will do.

    **Guarantee.** That of `INOSGM`, for the model and everything computed from it, about the data it was trained on.
    It assumes that the loss of a record depends on that record and the model alone: what mixes records is refused, by
    kind and by trial on synthetic records. A pass over records that writes to the model, its loss or its score raises
    before anything of it is released, and they are put back as they were. Held-out records get no protection, nor do
    numbers that are marked private.

    Args:
        plan: What the budgets buy; or a `PlanSequence` of plans, which are followed one after another. A model that has
            `turn_to` is told the number of each stage before it begins.
        model: Any module that treats records alike and apart. It is not wrapped, and put into training mode for a step.
        loss: A torch loss, or a function of outputs and targets that gives one loss per record. Of an output with
            `logits`, as in Hugging Face's models, it is given those.
        optimizer: Any torch optimizer of the model's trainable parameters that needs no closure.
        losses: Instead of `loss`, a function of the model and a batch that gives one loss per record: for outputs,
            batches and sums of losses of your own. It is tried like a loss. There are no predictions then, so
            evaluations have losses only.
        collate_fn: Makes a batch of a list of records of a data set, and may pad them; that of torch if not given.
            What it makes of a record must not depend on the others, nor the loss of a record on its padding.
        owners: Who owns which record; those that the plan was made for if not given.
        tail: The part of an ordered batch that is down-weighted, or a function that makes it from the plan (which a
            plan that is revised needs): `lambda plan: LinearTail(plan.tail_length(0.4))`.
        order: What counts as important.
        clipping: How a weighted gradient is bounded; `AutomaticClipping` and `PerSampleAdaptive` adapt to each record.
        score: What the order goes by, a function of outputs, targets and losses; the loss if not given.
        steering: What chooses the next step among the plan's choices, by released values.
        schedule: A learning-rate schedule of the optimizer, which makes a step after each step.
        max_physical_batch: The most records that are in memory at once; larger batches are run in parts, twice.
        num_workers: How many processes load the parts of a batch from a data set ahead, with the same bits whatever
            their number. It needs `max_physical_batch`.
        autocast: The precision of the forward pass, such as torch.bfloat16.
        fix: Replace modules that mix records by ones that do not, in the model and in the optimizer.
        engine: How gradients are computed; chosen for the model if not given.
        workers: The ranks that train this model together, one of which this process is: `Workers()` on each of them.
        key: As for `INOSGM`. A run in a directory makes up its own.
        ledger: As for `INOSGM`. A run in a directory keeps its own if none is given.
        charge_steps: As for `INOSGM`; the steps between checkpoints, or all of the plan, if not given.
        note: What the ledger says about it.

    Raises:
        TypeError: for a model, an optimizer, a schedule or a loss that cannot be trained with, and for one that
            DistributedDataParallel or FSDP wraps.
        RuntimeError: in a process group of torch.distributed with more than one rank, without `workers`.
        ValueError: for owners that are not the plan's, and for parameters that the optimizer does not know.

    >>> from inosgm import LinearTail, Owners, plan_sample
    >>> x, y = torch.randn(250, 4, generator=torch.Generator().manual_seed(0)), torch.arange(250) % 2
    >>> owners = Owners(of_record=["a", "b"] * 100, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> plan = plan_sample(owners, steps=10, expected_batch=50, clip_norm=1.0)
    >>> model = nn.Linear(4, 2)
    >>> trainer = Trainer(plan, model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1),
    ...                   tail=LinearTail(plan.tail_length(0.4)))
    >>> curve = trainer.fit(x[:200], y[:200], held_out=(x[200:], y[200:]), progress=False)
    >>> trainer.released, curve.last.records
    (10, 50)
    """

    mechanism_type: ClassVar[type[GradientMechanism]] = GradientMechanism
    """The class of the mechanism that releases the sums of gradients."""

    def __init__(
        self,
        plan: Plan | PlanSequence,
        model: nn.Module,
        loss: Any = None,
        optimizer: Optimizer | None = None,
        *,
        losses: Callable[[Any, Any], torch.Tensor] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        owners: Owners | Sequence[str | int] | np.ndarray | None = None,
        tail: Tail | Callable[[Plan], Tail] = NoTail(),
        order: Order = Descending(),
        clipping: Clipping = ScaleClipped(),
        score: Score | None = None,
        steering: Steering | None = None,
        schedule: LRScheduler | None = None,
        max_physical_batch: int | None = None,
        num_workers: int = 0,
        autocast: torch.dtype | None = None,
        fix: bool = False,
        engine: type[Engine] | None = None,
        workers: Workers | None = None,
        key: int | None = None,
        ledger: LedgerHook | None = None,
        charge_steps: int | None = None,
        note: str = "",
    ) -> None:
        self._course = plan if isinstance(plan, PlanSequence) else PlanSequence((_only(plan),))
        first = self._course.first
        _validate.instance("model", model, nn.Module, "give a torch module")
        _validate.instance("optimizer", optimizer, Optimizer, "make one such as torch.optim.SGD(model.parameters())")
        assert optimizer is not None
        owners = first.owners if owners is None else owners
        if owners is None:
            raise ValueError("owners must be given: this plan was made by hand or read from a file")
        refuse_wrapped(model)
        if workers is None:
            refuse_lone_ranks()
        self._workers = Workers() if workers is None else workers
        turn_model(model, 0)
        if fix:
            fix_in_place(model, optimizer)
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        require_fitting(model, optimizer, schedule)
        total = getattr(schedule, "total_steps", None)
        if isinstance(total, int) and total < first.steps:
            raise ValueError(f"schedule must last for the {first.steps} steps of the plan, it has total_steps={total}")
        self._passes = threading.RLock()  # an update in one thread would be taken for a write by a pass in another
        run_model, loss = loss_or_losses(model, loss, losses)
        self._as_data = partial(as_data, collate_fn=collate_fn, whole=losses is not None)
        self._gradients = GroupGradients(
            run_model,
            loss,
            workers=self._workers,
            score=score,
            engine=engine,
            max_physical_batch=max_physical_batch,
            num_workers=num_workers,
            autocast=autocast,
            losses_released=steering is not None,
            require_fitting=partial(require_fitting, model, optimizer, schedule),
        )
        self._owners, self._secret, self._ledger, self._steering = owners, key, ledger, steering
        self._options: dict[str, Any] = {
            "tail": tail,
            "order": order,
            "clipping": clipping,
            "note": note,
            "charge_steps": charge_steps,
        }
        self._revision = self._first = 0
        self._curve = LearningCurve()
        self._mechanism = self._mechanism_for(first)
        self._settings = settings_of(
            loss,
            optimizer,
            schedule,
            tail=tail if isinstance(tail, Tail) else tail(first),
            order=order,
            clipping=clipping,
            steering=steering,
        )

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
    def engine(self) -> Engine | None:
        """The engine that computes gradients; chosen when data is first seen."""
        return self._gradients.engine

    @property
    def steps_done(self) -> int:
        """The number of steps that were done, under this plan and under those that it was revised from."""
        return self._first + self.released

    @property
    def course(self) -> PlanSequence:
        """The plans that the run was begun with."""
        return self._course

    @property
    def curve(self) -> LearningCurve:
        """The evaluations by step."""
        return self._curve

    @property
    def _revised(self) -> bool:
        """Whether the run follows a plan that was revised: the stages of a course are not revisions."""
        return self._revision >= len(self._course.plans)

    @property
    def _end(self) -> int:
        """The number of steps when everything is done, those of earlier plans included."""
        return self._first + self.plan.steps + sum(plan.steps for plan in self._course.plans[self._revision + 1 :])

    def step(self, *data: Any) -> Release:
        """Release the noisy sum of the gradients of one batch, and let the optimizer use it.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs.

        Returns:
            What was released: one tensor per trainable parameter, a sum.

        Raises:
            ValueError: for a model, a loss or a score that changes what it holds as it runs. Nothing is released, and
                everything that was written is undone.
        """
        self._mechanism.require_here()  # before the lock, which is never let go of in a process that has forked off
        with self._passes:
            self.model.train()
            records, mechanism = self._as_data(data), self._mechanism
            if self._steering is not None:
                mechanism.steer(records, self._steering)
            release = mechanism.release(records)
            for parameter, total in zip(self._gradients.ready(records).parameters, release.value, strict=True):
                parameter.grad = (total / mechanism.expected_batch).to(parameter.dtype)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self._gradients.share_parameters()
            if self.schedule is not None:
                self.schedule.step()
        return release

    def spent(self) -> dict[str | int, float]:
        """Return the epsilon that every owner has spent, at its delta, what the plan counts as past included."""
        return dict(zip(self.plan.labels, self.plan.spent(self.released).tolist(), strict=True))

    def fit(
        self,
        *data: Any,
        steps: int | None = None,
        held_out: Any = None,
        evaluate_every: int | None = None,
        diagnostics: bool = False,
        run: str | os.PathLike[str] | Run | None = None,
        checkpoint_every: int | None = None,
        watch: Callable[[LearningCurve], None] | None = None,
        stop: Callable[[], bool] | None = None,
        progress: bool = True,
    ) -> LearningCurve:
        """Train for the steps of the plan, or some of them.

        With `workers`, every rank calls it with its data, and the ranks train together. Rank 0 follows all arguments:
        it keeps the run, the ledger and the curve, evaluates, watches and stops. The other ranks follow rank 0.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs.
            steps: How many steps; all that are left if not given.
            held_out: (inputs, targets), or a map-style data set, and last, for per-owner curves, the owner of each
                record. These records need no protection, and must not be those of `data`, nor share memory with them.
            evaluate_every: Steps between evaluations; a tenth of the plan if not given.
            diagnostics: Also log how owners' gradients disagree: on the held-out records, and on the training data in
                the private part of the log.
            run: A directory for checkpoints, log and ledger. Training resumes from what is there, and a run that was
                killed at any moment ends as if it had not been (on a CPU, with the same number of threads).
            checkpoint_every: Steps between checkpoints; a twentieth of the plan if not given.
            watch: Given the evaluations by step after each new one, but for that of the first parameters. If there is a
                run, a checkpoint is written before: what was seen is never computed again.
            stop: Asked after every step; when it says true, training ends there, with a checkpoint if there is a run,
                and resumes later as if it had not been stopped.
            progress: Show a bar, or lines where there is no terminal.

        Returns:
            The evaluations by step.

        Raises:
            BlockingIOError: while another process trains in the same directory.
            ValueError: for a directory that holds another run, for held-out records that are training records, and for
                arguments that cannot be.
        """
        if not self._workers.leads:
            self._curve = LearningCurve.from_json(Follower(self._gradients, self._as_data(data), turn_model).run())
            return self._curve
        with self._workers.leading(lambda: self._curve.to_json()):
            return self._fit(
                *data,
                steps=steps,
                held_out=held_out,
                evaluate_every=evaluate_every,
                diagnostics=diagnostics,
                run=run,
                checkpoint_every=checkpoint_every,
                watch=watch,
                stop=stop,
                progress=progress,
            )

    def _fit(
        self,
        *data: Any,
        steps: int | None,
        held_out: Any,
        evaluate_every: int | None,
        diagnostics: bool,
        run: str | os.PathLike[str] | Run | None,
        checkpoint_every: int | None,
        watch: Callable[[LearningCurve], None] | None,
        stop: Callable[[], bool] | None,
        progress: bool,
    ) -> LearningCurve:
        """Train as the rank that leads, or in a process alone."""
        self._gradients.require_listening()
        records = self._as_data(data)
        require_apart(data, held_out)
        length = self.plan.steps if self._revised else self._course.steps
        every = _interval("checkpoint_every", checkpoint_every, length, 20)
        often = _interval("evaluate_every", evaluate_every, length, 10)
        end = None if steps is None else _validate.count("steps", steps)
        if self.steps_done < self._end:
            self.check(*data)  # before a run is begun, and before held-out records meet the model
        self._gradients.trained_on = data
        with ExitStack() as stack:
            stack.callback(self._gradients.ahead.close)
            place = log = None
            if run is not None:
                place = stack.enter_context(run if isinstance(run, Run) else Run(run))
                self._resume(place, data)
                seen = self._curve.steps[-1] if self._curve.steps else -1
                log = stack.enter_context(RunLog(place.path, after=seen))
                if self._options["charge_steps"] is None:
                    self._mechanism.charge_steps = every
                if place.latest() is None:
                    self._save(place)
            bar = stack.enter_context(StepProgress(self.plan, start=self.released, enabled=progress))
            end = self._end if end is None else min(self.steps_done + end, self._end)

            def step() -> None:
                if self.released == self.plan.steps:
                    self._next_stage()
                    self._gradients.begin(records, self._revision)
                    bar.follow(self.plan)
                    if place is not None and self._options["charge_steps"] is None:
                        self._mechanism.charge_steps = every
                self.step(*data)
                bar.advance(self.released)

            def evaluate(last: bool) -> bool:
                due = held_out is not None and (last or self._steps_of_interval() % often == 0)
                if due:
                    self._evaluate(data, held_out, diagnostics, log, bar)
                return due

            def save(needed: bool, ending: bool) -> None:
                if place is not None and (needed or ending or self._steps_of_interval() % every == 0):
                    self._save(place, needed=needed)

            if held_out is not None and not self._curve.steps:
                self._evaluate(data, held_out, diagnostics, log, bar)
            if self.steps_done < end:
                self._gradients.begin(records, self._revision)
            make_steps(
                lambda: self.steps_done,
                end,
                step,
                evaluate=evaluate,
                save=save,
                watch=None if watch is None else lambda: watch(self._curve),
                stop=(lambda: False) if stop is None else stop,
            )
            if place is not None and self.steps_done == self._end:
                self._forget_private(place)
                place.forget_key()  # before there are results: a directory that has some holds no secret
                place.save_results(self.model.state_dict(), self._curve.to_json())
        return self._curve

    def _steps_of_interval(self) -> int:
        """Return the number of steps that evaluations and checkpoints are counted by."""
        return self.released if self._revised else self.steps_done

    def check(self, *data: Any) -> None:
        """Raise for data, a model or a loss that cannot be trained with; nothing is drawn, charged or changed.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs.
        """
        self.model.train()
        records = self._as_data(data)
        self._mechanism.check(records)

    def evaluate(self, *data: Any, owners: Any = None) -> Evaluation:
        """Evaluate the model, in evaluation mode, on records that need no protection.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs. If they share memory or entries with the
                data that this trainer was last trained on, the result is marked private: no log and no curve takes it.
            owners: The owner of each record, for numbers by owner.
        """
        return replace(self._evaluation(data, owners), private=share_records(self._gradients.trained_on, data))

    def diagnose(self, *data: Any, owners: Any = None) -> Diagnostics:
        """Say how owners' gradients disagree, and where the order of a batch can act.

        Args:
            data: Inputs and targets. Without owners they are the training data, and the result is marked private. It is
                as well if they share memory or entries with the data that this trainer was last trained on.
            owners: The owner of each record, for held-out records.
        """
        records = self._as_data(data)
        labels = labels_at(self.plan.labels, self._mechanism.owners) if owners is None else owners
        with self._passes:
            engine = self._gradients.ready(records)
            with evaluating(self.model):
                return diagnose(
                    engine,
                    records,
                    labels,
                    self.plan,
                    private=owners is None or share_records(self._gradients.trained_on, data),
                    max_physical_batch=self._gradients.max_physical_batch or 256,
                    check=self._gradients.require_classes,
                )

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
        if self.plan.squared_norm_budget is not None:  # its steps share one charge, of which none may be undone
            raise ValueError("a run in which every record pays for itself cannot be revised: begin anew")
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

    def _evaluation(self, data: tuple[Any, ...], owners: Any) -> Evaluation:
        """Evaluate the model on records that are known to be held out."""
        with self._passes:
            most = self._gradients.max_physical_batch or 1024
            model, loss = self._gradients.model, self._gradients.loss
            return evaluated(model, loss, self._as_data(data), owners, self._gradients.like(), most)

    def _evaluate(
        self, data: tuple[Any, ...], held_out: Any, diagnostics: bool, log: RunLog | None, bar: StepProgress
    ) -> None:
        """Evaluate on held-out records, and write it down."""
        *public, owners = with_owners(held_out)
        found = self._evaluation(tuple(public), owners)
        self._curve.append(self.steps_done, found)
        bar.evaluated(found)
        if log is None:
            return
        rate = float(self.optimizer.param_groups[0]["lr"])
        log.write(self.steps_done, evaluation=found, learning_rate=rate, epsilon=bar.epsilon(self.released))
        if diagnostics:
            if owners is not None:
                log.write(self.steps_done, diagnostics=self.diagnose(*public, owners=owners))
            log.write_private(self.steps_done, diagnostics=self.diagnose(*data))

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
        self._revision, self._first = checkpoint.revision, checkpoint.first
        self._curve = LearningCurve.from_json(checkpoint.curve)
        if self._steering is not None:
            self._steering.restore(json.loads(checkpoint.steering))
        spent = None
        if plan.squared_norm_budget is not None and released < plan.steps:
            if checkpoint.private is None:
                raise ValueError(f"{place.path} does not hold what its records have spent: begin a new run")
            spent = checkpoint.private["spent"].numpy()
        self._start_plan(plan, released, spent)

    def _save(self, place: Run, *, needed: bool = False) -> None:
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
                **states_of(self.model, self.optimizer, self.schedule),
                private=None if spent is None else {"spent": torch.from_numpy(spent)},
            ),
            needed=needed,
        )
        self._forget_private(place)

    def _forget_private(self, place: Run) -> None:
        """Delete the checkpoints that are no longer needed, if one, of a stage before too, has what nobody may see."""
        if any(plan.squared_norm_budget is not None for plan in self._course.plans):
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
        """Return the owners of the records with the budgets of a plan."""
        budgets = {name: np.asarray(getattr(plan, name)).tolist() for name in ("epsilon", "delta")}
        by_label = {name: dict(zip(plan.labels, values, strict=True)) for name, values in budgets.items()}
        return Owners(of_record=labels_at(plan.labels, self._mechanism.owners), **by_label)

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
        RunLog(place.path, after=self._curve.steps[-1] if self._curve.steps else -1).close()
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
            turn_model(self.model, self._revision)
            self._start_plan(self._course.plans[self._revision])

    def _switch(self, plan: Plan, owners: Owners, revision: int, made: int) -> None:
        """Follow a revised plan after some steps of the one before."""
        if isinstance(self._ledger, Ledger):
            self._ledger.grant(owners)
        self._first, self._revision = self._first + made, revision
        self._start_plan(plan)


def _grants(plan: Plan, owners: Owners) -> bool:
    """Say whether a plan keeps exactly the budgets that owners grant."""
    granted = ((plan.epsilon, owners.epsilon), (plan.delta, owners.delta))
    return plan.labels == owners.labels and all(np.array_equal(np.asarray(one), other) for one, other in granted)


def _only(plan: Any) -> Plan:
    if isinstance(plan, tuple):
        raise TypeError(
            "plan must be a Plan or a PlanSequence, got a tuple: make PlanSequence(plans) of plans in their order"
        )
    _validate.instance("plan", plan, Plan, "make one with plan_sample or plan_scale, or a PlanSequence of some")
    return plan  # type: ignore[no-any-return]


def turn_model(model: Any, stage: int) -> None:
    """Tell a model that wants to know it which stage begins."""
    turn_to = getattr(model, "turn_to", None)
    if callable(turn_to):
        turn_to(stage)


def _interval(name: str, value: int | None, steps: int, parts: int) -> int:
    """Return a number of steps between events; a part of all steps if none is given."""
    return -(-steps // parts) if value is None else _validate.count(name, value, least=1)
