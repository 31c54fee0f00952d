"""INO-SGD: train a model, watch every owner, stop and resume at any moment."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from inosgm._internal import validate as _validate
from inosgm._internal.overlap import share_records
from inosgm.ledger.cost import LedgerHook
from inosgm.mechanism.clipping import Clipping, ScaleClipped
from inosgm.mechanism.mechanism import Release
from inosgm.mechanism.noise import GaussianNoise, Noise
from inosgm.mechanism.orders import Descending, Order
from inosgm.mechanism.tails import NoTail, Tail
from inosgm.mechanism.units import UnitRule
from inosgm.owners import Owners, labels_at
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import PlanSequence
from inosgm.planning.steering import Steering
from inosgm.training.augmenting import Augment
from inosgm.training.averaging import WeightAverage
from inosgm.training.batches import as_data
from inosgm.training.callbacks import Callbacks, CheckpointEvent, EvaluationEvent, StepEvent
from inosgm.training.checkpoints import settings_of
from inosgm.training.curve import LearningCurve
from inosgm.training.diagnostics import Diagnostics, diagnose
from inosgm.training.fitting import clear_gradients, put_into_training, require_fitting
from inosgm.training.gradients import Engine, EngineReport, Functional, OneByOne, fix_in_place
from inosgm.training.group_gradients import Follower, GroupGradients
from inosgm.training.held_out import require_apart, with_owners
from inosgm.training.loop import make_steps
from inosgm.training.losses import loss_or_losses
from inosgm.training.metrics import Evaluation
from inosgm.training.parameter_watch import ParameterWatch
from inosgm.training.plan_following import PlanFollower, turn_model
from inosgm.training.predictions import Metrics, evaluated, evaluating, require_metrics
from inosgm.training.process_groups import refuse_lone_ranks, refuse_wrapped
from inosgm.training.progress import StepProgress
from inosgm.training.run import Run
from inosgm.training.runlog import RunLog
from inosgm.training.saving import save_model
from inosgm.training.scores import Score
from inosgm.training.workers import Workers


class Trainer(PlanFollower):
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
        model: Any module that processes each record independently. It is not wrapped; steps put it into training mode.
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
        noise: GaussianNoise(), or DiscreteNoise(): gradients are then rounded towards zero to a public grid and summed
            exactly, for which every record is run by itself unless `engine` says otherwise.
        unit_rule: How the records of a unit make one gradient and one score, if owners have units: `UnitMean()`, of all
            its records, if not given.
        views: How often each record is run in a step, each time transformed at random by `augment`, or by the Dataset:
            the mean of its gradients is clipped, and its score is the mean (De et al. 2022). It costs no budget.
        augment: A random transform of the input of one record, with torch's generator: a tensor without an axis for
            records is turned into one of the same shape. What it does must be public.
        score: What the order goes by, a function of outputs, targets and losses; the loss if not given.
        steering: What chooses the next step among the plan's choices, by released values.
        schedule: A learning-rate schedule of the optimizer, which makes a step after each step.
        max_physical_batch: The most records that are in memory at once; larger batches are run in parts, twice.
        num_workers: How many processes load the parts of a batch from a data set ahead, with the same bits whatever
            their number. It needs `max_physical_batch`.
        autocast: The precision of the forward pass, such as torch.bfloat16.
        fix: Replace modules that mix records by ones that do not, in the model and in the optimizer.
        ema: The decay of a moving average of the weights, such as 0.99. `fit` then evaluates the averages, and its
            results are about them; `averaged` gives them to the model for a while. They cost no budget.
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
        noise: Noise = GaussianNoise(),
        unit_rule: UnitRule | None = None,
        views: int = 1,
        augment: Augment | None = None,
        score: Score | None = None,
        steering: Steering | None = None,
        schedule: LRScheduler | None = None,
        max_physical_batch: int | None = None,
        num_workers: int = 0,
        autocast: torch.dtype | None = None,
        fix: bool = False,
        ema: float | None = None,
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
        _validate.instance("noise", noise, Noise, "take GaussianNoise() or DiscreteNoise()")
        if noise.exact:
            engine = _engine_of_rows(engine)
            self._workers.require_alone("DiscreteNoise")
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
            augment=augment,
            require_fitting=partial(require_fitting, model, optimizer, schedule),
        )
        self._watch = ParameterWatch(model)
        self._average = None if ema is None else WeightAverage(model, ema)
        self._owners, self._secret, self._ledger, self._steering = owners, key, ledger, steering
        self._options: dict[str, Any] = {
            "tail": tail,
            "order": order,
            "clipping": clipping,
            "noise": noise,
            "unit_rule": unit_rule,
            "views": views,
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
        # only if they are given, so that runs of earlier versions are resumed
        given = {
            "ema": ema,
            "unit_rule": unit_rule,
            "views": None if views == 1 else views,
            "noise": None if noise == GaussianNoise() else noise,
        }
        self._settings |= {name: repr(value) for name, value in given.items() if value is not None}
        if augment is not None:
            self._settings["augment"] = getattr(augment, "__qualname__", type(augment).__name__)

    @property
    def leads(self) -> bool:
        """Whether this process keeps the run, the ledger and the curve: all do but the ranks that follow rank 0."""
        return self._workers.leads

    @property
    def engine(self) -> Engine | None:
        """The engine that computes gradients; chosen when data is first seen."""
        return self._gradients.engine

    def engine_report(self, *data: Any) -> EngineReport:
        """Return which engine computes gradients, why, and what would be faster, with a row for each module.

        Args:
            data: Inputs and targets, or a data set, as for `step`; not needed once data was seen. Nothing is charged.

        Raises:
            RuntimeError: when no data was seen, and none is given.
        """
        return self._gradients.report(self._as_data(data) if data else None)

    @property
    def curve(self) -> LearningCurve:
        """The evaluations by step."""
        return self._curve

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
        with self._passes, self._updating():
            put_into_training(self.model)
            records, mechanism = self._as_data(data), self._mechanism
            if self._steering is not None:
                mechanism.steer(records, self._steering)
            release = mechanism.release(records)
            clear_gradients(self.optimizer)  # a backward pass of the user's, on parameters frozen since
            means = torch._foreach_div(release.value, mechanism.expected_batch)
            for parameter, mean in zip(self._gradients.ready(records).parameters, means, strict=True):
                parameter.grad = mean.to(parameter.dtype)
            self.optimizer.step()
            clear_gradients(self.optimizer)
            self._gradients.share_parameters()
            if self.schedule is not None:
                self.schedule.step()
            if self._average is not None:
                self._average.update(self.steps_done)
        return release

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Refuse parameters that somebody else has changed, and accept what is changed inside."""
        if not self._watch.unchanged():
            require_fitting(self.model, self.optimizer, self.schedule)  # says more where a type has changed
            self._watch.require_unchanged()
        try:
            yield
        finally:
            if self.engine is not None:
                self._watch.take(self.engine.parameters)

    def accept_parameters(self) -> None:
        """Accept parameters that something else than the trainer has changed since the last step.

        Call it only for changes that are a function of public or released values, such as weights of an earlier
        checkpoint: anything else about training records would be in the model without noise.
        """
        self._watch.forget()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the model have the moving averages of its weights for a while, to evaluate, use or save it.

        Raises:
            ValueError: for a trainer without `ema`.
        """
        if self._average is None:
            raise ValueError("there is no average of the weights: make the Trainer with ema=0.99, say")
        with self._passes, self._average.swapped():
            yield

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Save the model under its own names: by its `save_pretrained`, or its state dict as `model.pt`.

        Args:
            directory: Made if it does not exist.

        Returns:
            The directory.
        """
        with self._passes:
            return save_model(self.model, directory)

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
        keep_checkpoints: int | None = None,
        checkpoint_trainable_only: bool = False,
        metrics: Metrics | None = None,
        on_step: Callable[[StepEvent], object] | None = None,
        on_evaluate: Callable[[EvaluationEvent], object] | None = None,
        on_checkpoint: Callable[[CheckpointEvent], object] | None = None,
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
            keep_checkpoints: How many checkpoints stay in the run; all if not given. `revise` goes back to one of them.
            checkpoint_trainable_only: Leave frozen parameters out of checkpoints. The run resumes with a model that
                has the same ones, by their digest.
            metrics: Functions of (outputs, targets), arrays of all held-out records, that give a number each, by name.
            on_step: Called after every step with a `StepEvent`. Callbacks are told public things only.
            on_evaluate: Called after every evaluation with an `EvaluationEvent`.
            on_checkpoint: Called after every checkpoint that was due with a `CheckpointEvent`.
            watch: Given the evaluations by step after each new one, but for that of the first parameters; without
                held-out records, after the same steps. If there is a run, a checkpoint is written before: what was
                seen is never computed again.
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
        calls = Callbacks(on_step=on_step, on_evaluate=on_evaluate, on_checkpoint=on_checkpoint)
        kept = None if keep_checkpoints is None else _validate.count("keep_checkpoints", keep_checkpoints, least=1)
        require_metrics(metrics, self._gradients.loss)
        if not self._workers.leads:
            follower = Follower(self._gradients, self._as_data(data), partial(turn_model, self.model))
            self._curve = LearningCurve.from_json(follower.run())
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
                keep_checkpoints=kept,
                checkpoint_trainable_only=checkpoint_trainable_only,
                metrics=metrics,
                calls=calls,
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
        keep_checkpoints: int | None,
        checkpoint_trainable_only: bool,
        metrics: Metrics | None,
        calls: Callbacks,
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
                log = stack.enter_context(RunLog(place.path, after=self._logged_until()))
                if self._options["charge_steps"] is None:
                    self._mechanism.charge_steps = every
                if place.latest() is None:
                    self._save(place, trainable_only=checkpoint_trainable_only)
            bar = stack.enter_context(StepProgress(self.plan, start=self.released, enabled=progress))
            if self.engine is not None and not (report := self.engine_report()).slow:  # a slow one was logged
                bar.note(report.line)
            end = self._end if end is None else min(self.steps_done + end, self._end)

            def step() -> None:
                if self.released == self.plan.steps:
                    self._next_stage()
                    self._gradients.begin(records, self._revision)
                    bar.follow(self.plan)
                    if place is not None and self._options["charge_steps"] is None:
                        self._mechanism.charge_steps = every
                release = self.step(*data)
                bar.advance(self.released)
                if calls.on_step is not None:
                    rate = self._learning_rate()
                    calls.on_step(StepEvent(step=self.steps_done, steps=self._end, learning_rate=rate, release=release))

            def evaluate(last: bool) -> bool:
                due = last or self._steps_of_interval() % often == 0
                if due and held_out is not None:
                    self._evaluate(data, held_out, diagnostics, metrics, calls, log, bar)
                elif due and log is not None:
                    log.write(self.steps_done, learning_rate=self._learning_rate(), epsilon=bar.epsilon(self.released))
                return due

            def save(needed: bool, ending: bool) -> None:
                if place is not None and (needed or ending or self._steps_of_interval() % every == 0):
                    self._save(place, needed=needed, trainable_only=checkpoint_trainable_only)
                    if keep_checkpoints is not None:
                        place.keep_latest(keep_checkpoints)
                    if calls.on_checkpoint is not None:
                        calls.on_checkpoint(CheckpointEvent(step=self.steps_done, run=place.path))

            if held_out is not None and not self._curve.steps:
                self._evaluate(data, held_out, diagnostics, metrics, calls, log, bar)
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
                self._watch.require_unchanged()
                with nullcontext() if self._average is None else self.averaged():
                    place.save_results(self.model.state_dict(), self._curve.to_json())
        return self._curve

    def _learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

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

    def evaluate(self, *data: Any, owners: Any = None, metrics: Metrics | None = None) -> Evaluation:
        """Evaluate the model, in evaluation mode, on records that need no protection.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs. If they share memory or entries with the
                data that this trainer was last trained on, the result is marked private: no log and no curve takes it.
            owners: The owner of each record, for numbers by owner.
            metrics: Functions of (outputs, targets), arrays of all records, that give a number each, by name.
        """
        return replace(self._evaluation(data, owners, metrics), private=share_records(self._gradients.trained_on, data))

    def diagnose(self, *data: Any, owners: Any = None) -> Diagnostics:
        """Say how owners' gradients disagree, and where the order of a batch can act.

        Args:
            data: Inputs and targets. Without owners they are the training data, and the result is marked private. It is
                as well if they share memory or entries with the data that this trainer was last trained on.
            owners: The owner of each record, for held-out records.
        """
        records = self._as_data(data)
        labels = labels_at(self.plan.labels, self._mechanism.owner_of_record) if owners is None else owners
        with self._passes, self._watch.own():
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

    def _evaluation(self, data: tuple[Any, ...], owners: Any, metrics: Metrics | None = None) -> Evaluation:
        """Evaluate the model on records that are known to be held out."""
        with self._passes, self._watch.own():
            most, gradients = self._gradients.max_physical_batch or 1024, self._gradients
            records = self._as_data(data)
            return evaluated(gradients.model, gradients.loss, records, owners, gradients.like(), most, metrics)

    def _evaluate(
        self,
        data: tuple[Any, ...],
        held_out: Any,
        diagnostics: bool,
        metrics: Metrics | None,
        calls: Callbacks,
        log: RunLog | None,
        bar: StepProgress,
    ) -> None:
        """Evaluate on held-out records, write it down, and tell it."""
        *public, owners = with_owners(held_out)
        with nullcontext() if self._average is None else self.averaged():
            found = self._evaluation(tuple(public), owners, metrics)
        self._curve.append(self.steps_done, found)
        bar.evaluated(found)
        if log is not None:
            spent = bar.epsilon(self.released)
            log.write(self.steps_done, evaluation=found, learning_rate=self._learning_rate(), epsilon=spent)
            if diagnostics and owners is not None:
                log.write(self.steps_done, diagnostics=self.diagnose(*public, owners=owners))
            if diagnostics:
                log.write_private(self.steps_done, diagnostics=self.diagnose(*data))
        if calls.on_evaluate is not None:
            calls.on_evaluate(EvaluationEvent(step=self.steps_done, evaluation=found))


def _engine_of_rows(engine: type[Engine] | None) -> type[Engine]:
    """Return the engine for sums in fixed point: one that has the gradient of each record."""
    if engine is None:
        return OneByOne
    if not issubclass(engine, OneByOne | Functional):
        raise TypeError(
            f"engine must be OneByOne or Functional with DiscreteNoise, which needs the gradient of each record, got "
            f"{engine.__name__}"
        )
    return engine


def _only(plan: Any) -> Plan:
    if isinstance(plan, tuple):
        raise TypeError(
            "plan must be a Plan or a PlanSequence, got a tuple: make PlanSequence(plans) of plans in their order"
        )
    _validate.instance("plan", plan, Plan, "make one with plan_sample or plan_scale, or a PlanSequence of some")
    return plan  # type: ignore[no-any-return]


def _interval(name: str, value: int | None, steps: int, parts: int) -> int:
    """Return a number of steps between events; a part of all steps if none is given."""
    return -(-steps // parts) if value is None else _validate.count(name, value, least=1)
