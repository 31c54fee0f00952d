"""INO-SGD: train a model with the released sums of clipped, ordered gradients."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from inosgm import _validate
from inosgm._validate import Array
from inosgm.accounting import ACCOUNTANTS
from inosgm.clipping import Clipping, ScaleClipped
from inosgm.contributions import Contributions
from inosgm.cost import LedgerHook
from inosgm.ledger import Ledger
from inosgm.mechanism import INOSGM, Release
from inosgm.orders import Descending, Order
from inosgm.owners import Owners
from inosgm.plan import AlreadySpent, Plan
from inosgm.sgd.batches import as_data, batch_of
from inosgm.sgd.curve import LearningCurve
from inosgm.sgd.diagnostics import Diagnostics, diagnose
from inosgm.sgd.gradients import Engine, engine_for, fix_in_place
from inosgm.sgd.gradients.base import Gradients
from inosgm.sgd.logical import LogicalBatch, Score, parts_of
from inosgm.sgd.losses import per_record
from inosgm.sgd.metrics import Evaluation
from inosgm.sgd.predictions import evaluated
from inosgm.sgd.progress import StepProgress
from inosgm.sgd.randomness import repeatable
from inosgm.sgd.run import Checkpoint, Run, key_of_revision
from inosgm.sgd.runlog import RunLog
from inosgm.tails import NoTail, Tail


class Trainer(INOSGM):
    """Trains a model by INO-SGD: contributions are gradients, scores are losses, the optimizer comes after the noise.

    `tail=NoTail()` gives IDP-SGD, a plan of `plan_uniform` gives DP-SGD: three methods, one code path. The optimizer
    and the schedule only post-process released sums, so any will do.

    **Guarantee.** That of `INOSGM`, for the model and everything computed from it, with the data it was trained on.
    It assumes that the loss of a record depends on that record and the model alone: what mixes records is refused, by
    kind and by trial on made-up records. Held-out records get no protection, nor do numbers that are marked private.

    Args:
        plan: What the budgets buy.
        model: Any module that treats records alike and apart. It is not wrapped, and trained in the mode it is in.
        loss: A torch loss, or a function of outputs and targets that gives one loss per record.
        optimizer: Any torch optimizer of the model's trainable parameters that needs no closure.
        owners: Who owns which record; those that the plan was made for if not given.
        tail: What part of an ordered batch is given up, or a function that makes it from the plan (which a plan that
            is revised needs): `lambda plan: LinearTail(plan.tail_length(0.4))`.
        order: What counts as important.
        clipping: How a weighted gradient is bounded; `AutomaticClipping` and `PerSampleAdaptive` adapt to each record.
        score: What the order goes by, a function of outputs, targets and losses; the loss if not given.
        schedule: A learning-rate schedule of the optimizer, which makes a step after each step.
        max_physical_batch: The most records that are in memory at once; larger batches are run in parts, twice.
        autocast: The precision of the forward pass, such as torch.bfloat16.
        fix: Replace modules that mix records by ones that do not, in the model and in the optimizer.
        engine: How gradients are computed; chosen for the model if not given.
        key: As for `INOSGM`. A run in a directory makes up its own.
        ledger: As for `INOSGM`. A run in a directory keeps its own if none is given.
        charge_steps: As for `INOSGM`; the steps between checkpoints, or all of the plan, if not given.
        note: What the ledger says about it.

    >>> from inosgm import LinearTail, Owners, plan_sample
    >>> x, y = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 2
    >>> owners = Owners(of_record=["a", "b"] * 100, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> plan = plan_sample(owners, steps=10, expected_batch=50, clip_norm=1.0)
    >>> model = nn.Linear(4, 2)
    >>> trainer = Trainer(plan, model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1),
    ...                   tail=LinearTail(plan.tail_length(0.4)))
    >>> curve = trainer.fit(x, y, progress=False)
    >>> trainer.evaluate(x, y).records
    200
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss: Any,
        optimizer: Optimizer,
        *,
        owners: Owners | Sequence[str | int] | np.ndarray | None = None,
        tail: Tail | Callable[[Plan], Tail] = NoTail(),
        order: Order = Descending(),
        clipping: Clipping = ScaleClipped(),
        score: Score | None = None,
        schedule: LRScheduler | None = None,
        max_physical_batch: int | None = None,
        autocast: torch.dtype | None = None,
        fix: bool = False,
        engine: type[Engine] | None = None,
        key: int | None = None,
        ledger: LedgerHook | None = None,
        charge_steps: int | None = None,
        note: str = "",
    ) -> None:
        _validate.instance("plan", plan, Plan, "make one with plan_sample or plan_scale")
        _validate.instance("model", model, nn.Module, "a torch module")
        _validate.instance("optimizer", optimizer, Optimizer, "make one such as torch.optim.SGD(model.parameters())")
        owners = plan.owners if owners is None else owners
        if owners is None:
            raise ValueError("owners must be given: this plan was made by hand or read from a file")
        if fix:
            fix_in_place(model, optimizer)
        _require_fitting(model, optimizer, schedule)
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self._loss, self._score, self._chosen, self._autocast = per_record(loss), score, engine, autocast
        self._most = None if max_physical_batch is None else _validate.count("max_physical_batch", max_physical_batch)
        if self._most == 0:
            raise ValueError("max_physical_batch must be at least 1: leave it out for no limit")
        self._engine: Engine | None = None
        self._tail_for = tail if not isinstance(tail, Tail) and callable(tail) else None
        self._pays_all = charge_steps is None
        self._revision = self._first = 0
        self._curve = LearningCurve()
        super().__init__(
            plan,
            owners,
            tail=self._tail_for(plan) if self._tail_for else tail,  # type: ignore[arg-type]
            order=order,
            clipping=clipping,
            key=key,
            ledger=ledger,
            charge_steps=plan.steps if charge_steps is None else charge_steps,
            note=note,
        )

    @property
    def steps_done(self) -> int:
        """How many steps of the run were done, under this plan and under those that it was revised from."""
        return self._first + self._released

    @property
    def engine(self) -> Engine | None:
        """How gradients are computed; known once data was seen."""
        return self._engine

    def contributions(self, batch: Any) -> Gradients:
        """Return the gradients of a batch of inputs and targets."""
        return self._ready(batch).gradients(*batch_of(batch, np.arange(len(batch[1])), self._like()))

    def scores(self, batch: Any) -> Array:
        """Return the losses of a batch, or what `score` makes of them."""
        positions = np.arange(len(batch[1]))
        return self._measured(batch, positions, self._released)[1]

    def step(self, *data: Any) -> Release:
        """Release the noisy sum of one batch and let the optimizer use it.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs.

        Returns:
            What was released: one tensor per trainable parameter, a sum.
        """
        release = self.release(as_data(data))
        assert self._engine is not None, "a release has chosen an engine"
        for parameter, total in zip(self._engine.parameters, release.value, strict=True):
            parameter.grad = (total / self._plan.expected_batch).to(parameter.dtype)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.schedule is not None:
            self.schedule.step()
        return release

    def fit(
        self,
        *data: Any,
        steps: int | None = None,
        held_out: Any = None,
        evaluate_every: int | None = None,
        diagnostics: bool = False,
        run: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        progress: bool = True,
    ) -> LearningCurve:
        """Train for the steps of the plan, or some of them.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs.
            steps: How many steps; all that are left if not given.
            held_out: Inputs, targets and, for per-owner curves, the owner of each record: records that need no
                protection.
            evaluate_every: Steps between evaluations; a tenth of the plan if not given.
            diagnostics: Also log how owners' gradients disagree, on the held-out records and, as private, on those of
                the training data.
            run: A directory for checkpoints, log and ledger. Training goes on from what is there, and a run that was
                killed at any moment ends as if it had not been (on a CPU, with the same number of threads).
            checkpoint_every: Steps between checkpoints; a twentieth of the plan if not given.
            progress: Show a bar, or lines where there is no terminal.

        Returns:
            The evaluations by step.
        """
        records = as_data(data)
        with ExitStack() as stack:
            place = None if run is None else stack.enter_context(Run(run))
            every = max(1, -(-self._plan.steps // 20)) if checkpoint_every is None else checkpoint_every
            every = _validate.count("checkpoint_every", every, least=1)
            if place is not None:
                self._go_on(place, every)
            end = self._plan.steps if steps is None else self._released + _validate.count("steps", steps)
            end = min(end, self._plan.steps)
            often = max(1, -(-self._plan.steps // 10)) if evaluate_every is None else evaluate_every
            often = _validate.count("evaluate_every", often, least=1)
            log = None if place is None else stack.enter_context(RunLog(place.path, after=self.steps_done))
            bar = stack.enter_context(StepProgress(self._plan, start=self._released, enabled=progress))
            look = partial(self._look, records, held_out, diagnostics, log, bar)
            if held_out is not None and self.steps_done not in self._curve.steps:
                look()
            if place is not None and place.latest() is None:
                self._save(place)
            while self._released < end:
                self.step(*data)
                bar.advance(self._released)
                last = self._released == end
                if held_out is not None and (last or self._released % often == 0):
                    look()
                if place is not None and (last or self._released % every == 0):
                    self._save(place)
            if place is not None and self._released == self._plan.steps:
                place.forget_key()
        return self._curve

    def evaluate(self, *data: Any, owners: Any = None) -> Evaluation:
        """Evaluate the model, in evaluation mode, on records that need no protection.

        Args:
            data: Inputs and targets, or one map-style data set of such pairs.
            owners: The owner of each record, for numbers by owner.
        """
        like = next(self.model.parameters())
        return evaluated(self.model, self._loss, as_data(data), owners, like, self._most or 1024, self._autocast)

    def diagnose(self, *data: Any, owners: Any = None) -> Diagnostics:
        """Say how owners' gradients disagree, and where the order of a batch can act.

        Args:
            data: Inputs and targets. Without owners they are the training data, and the result is marked private.
            owners: The owner of each record, for held-out records.
        """
        records = as_data(data)
        engine, private = self._ready(records), owners is None
        labels = np.array(self._plan.labels)[self._owners] if owners is None else owners
        positions = np.arange(len(records[1]) if isinstance(records, tuple) else len(records))
        inputs, targets = batch_of(records, positions, self._like())
        return diagnose(engine, inputs, targets, labels, self._plan, private=private, max_physical_batch=self._most)

    def revise(
        self, owners: Owners, *data: Any, run: str | os.PathLike[str] | None = None, checkpoint_every: int | None = None
    ) -> Plan:
        """Go on with new budgets: a new plan for the steps that remain, or a step back for who has spent too much.

        An owner that now grants less than was spent takes the run back to the last step that it pays for; from the
        checkpoint before it the steps up to there are repeated, bit for bit. What came later is deleted from the run,
        and no longer charged: nobody must have used it.

        Args:
            owners: The same owners with the budgets that hold now. They must not be chosen by what was released.
            data: The training data, to repeat steps with. Without it the run goes back to a checkpoint.
            run: The directory of the run.

        Returns:
            The plan that is followed from now on.

        Raises:
            AlreadySpent: when the run would have to go back and has no directory to go back in.
        """
        if run is None:
            return self._switch(self._plan.revise(self._released, owners), owners)
        with Run(run) as place:
            self._go_on(place, checkpoint_every)
            try:
                plan = self._plan.revise(self._released, owners)
            except AlreadySpent as refusal:
                self._go_back(place, refusal, as_data(data) if data else None)
                plan = self._plan.revise(self._released, owners)
            self._revision = place.revisions() - 1
            place.save_plan(self._revision + 1, plan)
            self._switch(plan, owners)
            self._save(place)
        return plan

    def _follow(self, plan: Plan, key: int | None, released: int = 0) -> None:
        super()._follow(plan, key, released)
        if self._tail_for is not None:
            self._tail = self._tail_for(plan)
        if self._pays_all:
            self._charge_steps = plan.steps

    def _measured(self, data: Any, positions: np.ndarray, step: int) -> tuple[Contributions, Array]:
        engine, like = self._ready(data), self._like()
        parts = [
            repeatable(partial(batch_of, data, some, like), self._key, step, number, like.device)
            for number, some in enumerate(parts_of(positions, self._most))
        ]
        batch = LogicalBatch(engine, parts, self._score)
        return batch, batch.scores

    def _ready(self, data: Any) -> Engine:
        """Choose the engine when data is first seen, before anything is drawn or charged."""
        if self._engine is None:
            if self._chosen is not None:
                self._engine = self._chosen(self.model, self._loss, autocast=self._autocast)
            else:
                inputs, targets = batch_of(data, np.zeros(1, dtype=np.int64), self._like())
                self._engine = engine_for(self.model, self._loss, inputs, targets, autocast=self._autocast)
        return self._engine

    def _like(self) -> Tensor:
        return next(parameter for parameter in self.model.parameters() if parameter.requires_grad)
