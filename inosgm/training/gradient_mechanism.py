"""INO-SGM whose contributions are gradients: one step of descent."""

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from inosgm._internal import validate as _validate
from inosgm._internal.validate import Array
from inosgm.mechanism.contributions import Contributions, Dense
from inosgm.mechanism.mechanism import INOSGM, Measured, Release
from inosgm.mechanism.noise import choices, key_beside
from inosgm.mechanism.tails import NoTail, Tail
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import note_beside
from inosgm.planning.steering import Steering
from inosgm.training.batches import PickedApart, as_data, batch_of
from inosgm.training.gradients import (
    BookKeeping,
    Engine,
    Functional,
    OneByOne,
    engine_for,
    fix_in_place,
    mixes_records,
    refuse_mixing,
)
from inosgm.training.gradients.base import apply
from inosgm.training.gradients.batches import form
from inosgm.training.gradients.chance import Chance, chance_in_evaluation, chance_of, refuse_chance
from inosgm.training.gradients.precision import WIDE
from inosgm.training.gradients.sandbox import sandbox
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.gradients.tally import Tally
from inosgm.training.gradients.writing import outputs_in_evaluation, refuse_writing
from inosgm.training.group_losses import GroupLosses
from inosgm.training.losses import per_record
from inosgm.training.microbatches import LogicalBatch, Microbatch, parts_of
from inosgm.training.predictions import as_numpy, evaluating
from inosgm.training.randomness import seed_of_batch, seed_of_part
from inosgm.training.scores import Score, refuse_mixing_scores
from inosgm.training.targets import require_classes


class _AsTensors(Dense):
    """Rows whose weighted sum has the form of gradients: a list of tensors."""

    def weighted_sum(self, weights: Array) -> list[Tensor]:
        return [torch.from_numpy(super().weighted_sum(weights))]


class GradientMechanism(INOSGM):
    """Releases noisy sums of gradients, and lets an optimizer use them; `Trainer` says what the arguments mean."""

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss: Any,
        optimizer: Optimizer,
        *,
        owners: Owners | Sequence[str | int] | np.ndarray | None = None,
        tail: Tail | Callable[[Plan], Tail] = NoTail(),
        score: Score | None = None,
        steering: Steering | None = None,
        schedule: LRScheduler | None = None,
        max_physical_batch: int | None = None,
        autocast: torch.dtype | None = None,
        fix: bool = False,
        engine: type[Engine] | None = None,
        charge_steps: int | None = None,
        **settings: Any,
    ) -> None:
        _validate.instance("plan", plan, Plan, "make one with plan_sample or plan_scale")
        _validate.instance("model", model, nn.Module, "give a torch module")
        _validate.instance("optimizer", optimizer, Optimizer, "make one such as torch.optim.SGD(model.parameters())")
        owners = plan.owners if owners is None else owners
        if owners is None:
            raise ValueError("owners must be given: this plan was made by hand or read from a file")
        if fix:
            fix_in_place(model, optimizer)
        _require_fitting(model, optimizer, schedule)
        total = getattr(schedule, "total_steps", None)
        if isinstance(total, int) and total < plan.steps:
            raise ValueError(f"schedule must last for the {plan.steps} steps of the plan, it has total_steps={total}")
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self._steering = _fitting_steering(plan, steering)
        self._losses: GroupLosses | None = None
        self._loss, self._score, self._asked_engine, self._autocast = per_record(loss), score, engine, autocast
        most = max_physical_batch
        self._most = None if most is None else _validate.count("max_physical_batch", most, least=1)
        self._asked_loss, self._targets, self._example = loss, None, None
        self._modules, self._seen = list[nn.Module](), list[Any]()
        self._engine: Engine | None = None
        self._chance: Chance | None = None
        self._tally: Tally | None = None
        self._still: ExitStack | None = None
        self._pick, self._pick_whole = PickedApart(), PickedApart(in_parts=False)
        self._snapshot = Snapshot(model=model, loss=self._loss, score=score)
        self._passes = threading.RLock()
        self._tail_for = None if isinstance(tail, Tail) or not callable(tail) else tail
        self._asked_charge_steps = charge_steps
        super().__init__(
            plan,
            owners,
            tail=tail if isinstance(tail, Tail) or not callable(tail) else tail(plan),
            charge_steps=_twentieth(plan) if charge_steps is None else charge_steps,
            **settings,
        )

    @property
    def engine(self) -> Engine | None:
        """How gradients are computed; chosen when data is first seen."""
        return self._engine

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
        self._require_here()  # before the lock
        with self._passes:  # an update in one thread would be taken for a write by a pass in another
            self.model.train()
            records = as_data(data)
            if self._steering is not None:
                self._steer(records, self._steering)
            release = self.release(records)
            for parameter, total in zip(self._ready(records).parameters, release.value, strict=True):
                parameter.grad = (total / self._current_plan.expected_batch).to(parameter.dtype)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.schedule is not None:
                self.schedule.step()
        return release

    def _start_plan(self, plan: Plan, key: int | None, released: int = 0) -> None:
        super()._start_plan(plan, key, released)
        self._losses, self._heard = None, 0
        if self._asked_charge_steps is None:
            self._charge_steps = _twentieth(plan)

    def _apply_choice(self, plan: Plan) -> None:
        super()._apply_choice(plan)
        if self._tail_for is not None:
            self._tail = self._tail_for(plan)

    def _steer(self, data: Any, steering: Steering) -> None:
        """Choose the shares of the next step, after a release of losses if one is due."""
        self._require_here()  # what releases losses may be made below, in a process that has forked off
        self._check(data)
        step = self._released
        coins = choices(self._key, step)
        if step % steering.every == 0 and step != self._heard:  # a step that failed and is tried again hears no more
            due = step // steering.every - 1
            if self._losses is None or (self._key is not None and self._losses.released != due):
                self._losses = self._group_losses(due)  # the noise of a key belongs to this step, whatever failed
            steering.learn(self._losses.means(self._losses.release(data).value), coins)
            self._heard = step
        rates, bounds = steering.shares(self._plan, coins)
        if not (
            np.array_equal(rates, self._current_plan.sample_rates)
            and np.array_equal(bounds, self._current_plan.sensitivities)
        ):
            with self._lock:  # never between the coins and the sensitivities of a release in another thread
                self._apply_choice(self._plan.turned(rates, bounds))

    def _group_losses(self, released: int) -> GroupLosses:
        """Return what releases losses, after so many releases."""
        return GroupLosses(
            self._plan.beside[0],
            self._owners,
            self._losses_of,
            key=None if self._key is None else key_beside(self._key),
            ledger=self._ledger,
            released=released,
            note=note_beside(self._note),
        )

    def _losses_of(self, data: Any, positions: np.ndarray) -> np.ndarray:
        """Return the losses of some records, by the model in evaluation mode."""
        like, found = self._like(), [np.zeros(0)]
        with self._snapshot, evaluating(self.model), torch.no_grad():
            for some in parts_of(positions, self._most or 1024):
                inputs, targets = self._fetched(data, some, like, self._pick)
                found.append(as_numpy(self._loss(apply(self.model, inputs), targets)).astype(np.float64))
        return np.concatenate(found)

    def measure(self, data: Any, positions: np.ndarray | None, owners: np.ndarray, step: int) -> Measured:
        """Return the gradients of a batch, run in micro-batches, and its losses or what `score` makes of them."""
        if positions is None:
            positions = np.arange(len(owners))
        batch = self._logical(data, positions, step)
        if batch.drew:  # a model that drew nothing, or other numbers, when it was tried: choose the engine anew
            self._engine = None
            batch = self._logical(data, positions, step)
            if batch.drew:
                raise ValueError("model draws other random numbers with some records: leave max_physical_batch out")
        return batch, batch.scores

    def _logical(self, data: Any, positions: np.ndarray, step: int) -> LogicalBatch:
        """Return the batch of a step, run in parts."""
        engine, like = self._ready(data), self._like()
        self._hold_still()
        key = self._key_of_chance()
        # Without parts, all records share what a forward pass draws once, whoever else was drawn: it stays as it is.
        shared = seed_of_batch(key, step) if self._chance is Chance.SHARED else None
        pick = self._pick_whole if self._most is None else self._pick
        parts = [
            Microbatch(partial(self._fetched, data, some, like, pick), seed_of_part(key, step, number), shared)
            for number, some in enumerate(parts_of(positions, self._most))
        ]
        # Parts of less than a full one are alone in their batch, or have the same model as the full one before.
        full = self._most is not None and positions.size >= self._most and self._still is None
        silent, tally = self._chance is Chance.NONE, self._tally if full else None
        return LogicalBatch(engine, parts, self._score, self._snapshot, silent=silent, tally=tally)

    def _key_of_chance(self) -> int:
        """Return what random numbers of the model are drawn with: a fresh key, or one key while sums are compared."""
        if self._key is not None:
            return self._key
        return 0 if self._still is not None else int(np.random.SeedSequence().generate_state(1)[0])

    def _form_of_sums(self, rows: np.ndarray) -> Contributions:
        return _AsTensors(rows)

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        """Also hold random numbers of the model fixed where all records share them, and leave out dropout elsewhere.

        Shared numbers are the same in two batches if they are drawn once per batch, and a comparison of the batches
        sees whether they are. Of dropout by record, a record has another mask in another batch. Which numbers a model
        draws is known when the engine is chosen, so `_hold_still` does the rest.
        """
        with super()._comparing(), ExitStack() as self._still:
            try:
                yield
            finally:
                self._still = None

    def _hold_still(self) -> None:
        """Leave out dropout while sums are compared, unless all records share it."""
        if self._still is None or self._chance is Chance.SHARED:
            return
        for module in self.model.modules():
            if module.training and (isinstance(module, _DropoutNd) or _drops(module)):
                self._still.enter_context(evaluating(module))

    def _check(self, data: Any) -> None:
        """Look at the model and the targets again if they are not those that were looked at."""
        built = self._built(self._modules)
        if len(built) != len(self._seen) or not all(map(operator.is_, built, self._seen)):
            self._probed = None
        super()._check(data)
        if isinstance(data, tuple) and data[1] is not self._targets:
            self._require_classes(data[1])
            self._targets = data[1]

    def _require_classes(self, targets: Any) -> None:
        """Raise for a target that is no class, before the loss does, which would show it."""
        require_classes(self._asked_loss, self._loss, targets, self._example)

    def _fetched(self, data: Any, positions: np.ndarray, like: Tensor, pick: Any) -> tuple[Any, Any]:
        """Return inputs and targets of some records; targets of columns were looked at before, all of them."""
        inputs, targets = batch_of(data, positions, like, pick)
        if not isinstance(data, tuple):
            self._require_classes(targets)
        return inputs, targets

    def _probe(self, data: Any) -> None:
        self._engine = None
        self._ready(data)

    def _ready(self, data: Any) -> Engine:
        """Choose the engine when data is first seen, before anything is drawn or charged."""
        if self._engine is None:
            _require_fitting(self.model, self.optimizer, self.schedule)
            inputs, targets = batch_of(data, np.zeros(1, dtype=np.int64), self._like())
            try:
                engine = self._engine_for(inputs, targets)
                self._example = outputs_in_evaluation(self.model, inputs)
            except Exception as error:  # whatever model and loss raise
                error.add_note(f"(a record has inputs {form(inputs)} and targets {form(targets)})")
                raise
            self._engine, self._modules = engine, list(self.model.modules())
            self._seen = self._built(self._modules)
        return self._engine

    def _engine_for(self, inputs: Any, targets: Any) -> Engine:
        """Return the engine that was asked for, or the best."""
        if self._asked_engine is None:
            engine = engine_for(
                self.model, self._loss, inputs, targets, autocast=self._autocast, in_parts=self._most is not None
            )
            if self._steering is not None:  # losses of groups are those of the model in evaluation mode
                how = mixes_records(self.model, self._loss, inputs, targets, training=False)
                if how is not None:
                    raise ValueError(f"model and loss must treat records apart in evaluation mode, too, but {how}")
        else:
            refuse_mixing(self.model)
            engine = self._asked_engine(self.model, self._loss, autocast=self._autocast)
            refuse_writing(self._asked_engine, self.model, self._loss, inputs, targets, autocast=self._autocast)
        if self._score is not None:
            with sandbox(self.model, loss=self._loss, score=self._score), self._snapshot:
                refuse_mixing_scores(self._score, engine, inputs, targets, in_parts=self._most is not None)
        self._chance = self._chance_of(engine, inputs, targets)
        self._tally = None
        if self._most is not None and self._chance is not Chance.NONE and not isinstance(engine, Functional | OneByOne):
            self._tally = Tally(self.model, engine, inputs, targets, self._most)
        return engine

    def _chance_of(self, engine: Engine, inputs: Any, targets: Any) -> Chance | None:
        """Say who shares the random numbers of the model, if that matters, and refuse what cannot be run in parts."""
        how = self.model, self._loss, inputs, targets
        if self._steering is not None and chance_in_evaluation(*how) not in (Chance.NONE, Chance.PER_RECORD):
            raise ValueError(
                "model must not draw random numbers in evaluation mode that records share: with steering, losses of "
                "groups are released, and computed in parts"
            )
        in_parts = self._most is not None
        if self._asked_engine is None and not (in_parts and isinstance(engine, BookKeeping)):
            return Chance.PER_RECORD if in_parts else None  # others are chosen only if they draw for every record
        chance = chance_of(type(engine), *how, autocast=self._autocast)
        refuse_chance(chance, in_parts=in_parts)
        return chance if in_parts else None

    @staticmethod
    def _built(modules: list[nn.Module]) -> list[Any]:
        """Return what tells the modules of a model from ones that were changed: their modes and hooks, what is trained.

        Types of parameters are part of it: `model.bfloat16()` between steps leaves the parameter objects as they are.
        """
        parts: list[Any] = []
        for module in modules:
            own = vars(module)
            parts += [type(module), own["training"], own.get("forward"), *own["_modules"].values()]
            for parameter in own["_parameters"].values():
                if parameter is not None:
                    parts += [parameter, parameter.requires_grad, parameter.dtype]
            for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
                parts += own[hooks].values()
        return parts

    def _trainable(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _like(self) -> Tensor:
        return self._trainable()[0] if self._engine is None else self._engine.parameters[0]


def _fitting_steering(plan: Plan, steering: Steering | None) -> Steering | None:
    """Raise unless a plan has what its steering releases: a plan beside it that pays for the losses."""
    if steering is None:
        if plan.menu is not None:
            raise ValueError(
                "steering must be given for a plan with a menu: AdaptiveShares(plan, every=..., ...) for ASC"
            )
        return None
    _validate.instance("steering", steering, Steering, "take AdaptiveShares or ChosenGroup")
    due, paid = (plan.steps - 1) // steering.every, plan.beside[0].steps if plan.beside else 0
    if due > paid:
        raise ValueError(
            f"steering releases losses {due} times, once in {steering.every} steps, and the plan pays for {paid}: give "
            "both the same `every`"
        )
    return steering


def _drops(module: nn.Module) -> bool:
    """Say whether a layer such as an LSTM or an attention has dropout of its own."""
    share = getattr(module, "dropout", None)
    return isinstance(share, float) and share > 0


def _twentieth(plan: Plan) -> int:
    """Return how many steps are charged at once: all of a plan would be lost with a run that fails early."""
    return -(-plan.steps // 20)


def _require_fitting(model: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None) -> None:
    """Raise unless the optimizer updates what the gradients are about, and nothing more is asked of a step."""
    trainable = {id(parameter): name for name, parameter in model.named_parameters() if parameter.requires_grad}
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    idle = [name for identity, name in trainable.items() if identity not in updated]
    if not trainable:
        raise ValueError("model must have a parameter to train: none has requires_grad")
    if idle:
        raise ValueError(
            f"optimizer must update every trainable parameter of the model, and does not update {idle[0]!r}: give it "
            "model.parameters(), or freeze what is not trained with requires_grad_(False)"
        )
    coarse = [name for name, p in model.named_parameters() if p.requires_grad and p.dtype not in WIDE]
    if coarse:
        raise TypeError(
            f"model must have parameters in float32 or float64, and {coarse[0]!r} is not: sums in half precision lose "
            "records; train with autocast=torch.bfloat16 instead"
        )
    if updated - {id(parameter) for parameter in model.parameters()}:
        raise ValueError("optimizer must update parameters of the model only: was it made for another model?")
    if isinstance(optimizer, LBFGS):
        raise TypeError("optimizer must not need a closure: each look at the data is a release; LBFGS takes many")
    if schedule is not None and (not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau)):
        raise TypeError(
            "schedule must be a torch learning-rate schedule that goes by the number of steps: one that goes by a loss "
            f"would spend budget, got {type(schedule).__name__}"
        )
    if schedule is not None and schedule.optimizer is not optimizer:
        raise ValueError("schedule must belong to the optimizer that is given")
