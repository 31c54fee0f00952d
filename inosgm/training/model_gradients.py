"""Per-record gradients and scores of a model: the engine, its micro-batches, and what a model must not do."""

import logging
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from inosgm._internal import keys
from inosgm._internal import validate as _validate
from inosgm._internal.records import form_of
from inosgm.mechanism.units import RecordsOfUnits
from inosgm.training.ahead import AheadLoader
from inosgm.training.augmenting import Augment, augmented
from inosgm.training.batches import PickedApart, batch_of, converted, loaded
from inosgm.training.comparable import explained
from inosgm.training.gradients import (
    BookKeeping,
    Engine,
    Functional,
    OneByOne,
    mixes_records,
    refuse_mixing,
)
from inosgm.training.gradients.base import apply
from inosgm.training.gradients.batches import form
from inosgm.training.gradients.chance import Chance, chance_in_evaluation, chance_of, refuse_chance
from inosgm.training.gradients.choice import chosen_engine
from inosgm.training.gradients.groups import Groups
from inosgm.training.gradients.randomness import keep_foreign_state
from inosgm.training.gradients.report import EngineReport, report_of
from inosgm.training.gradients.sandbox import sandbox
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.gradients.tally import Tally
from inosgm.training.gradients.writing import outputs_in_evaluation, refuse_writing
from inosgm.training.losses import per_record
from inosgm.training.microbatches import LogicalBatch, Microbatch, parts_of
from inosgm.training.padding import try_batches
from inosgm.training.predictions import as_numpy, evaluating
from inosgm.training.process_groups import refuse_lone_ranks
from inosgm.training.scores import Score, refuse_mixing_scores, safe_score
from inosgm.training.targets import require_classes

_LOG = logging.getLogger(__name__)


class ModelGradients:
    """Runs a model on records: gradients, scores and losses, in micro-batches if asked to.

    It belongs to a model, not to a plan: mechanisms that follow one another share it, and the engine it has chosen.

    **Guarantee.** A pass over records that writes to the model, its loss or its score raises, and they are put back as
    they were. What mixes records is refused when the model, or the form of the data, is first seen or has changed.

    Args:
        model: The model.
        loss: A torch loss, or a function of outputs and targets that gives one loss per record.
        score: What the order goes by; the loss if not given.
        engine: How gradients are computed; chosen for the model if not given.
        max_physical_batch: The largest micro-batch; None runs a batch as one.
        autocast: The precision of the forward pass.
        losses_released: Whether losses of the model in evaluation mode are released as well.
        require_fitting: Raises for a model that cannot be trained; called when the model is looked at.
        num_workers: How many processes load micro-batches ahead.
        augment: A random transform of the input of one record.

    Attributes:
        trained_on: The data that a mechanism was last given and has not refused: results on it are private.
        ahead: Loads micro-batches.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        *,
        score: Score | None = None,
        engine: type[Engine] | None = None,
        max_physical_batch: int | None = None,
        autocast: torch.dtype | None = None,
        losses_released: bool = False,
        require_fitting: Callable[[], None] = lambda: None,
        num_workers: int = 0,
        augment: Augment | None = None,
    ) -> None:
        self.model, self.loss = model, per_record(loss)
        most = max_physical_batch
        self.max_physical_batch = None if most is None else _validate.count("max_physical_batch", most, least=1)
        self.ahead = AheadLoader(num_workers)
        if num_workers and most is None:
            raise ValueError(
                f"num_workers={num_workers} needs max_physical_batch: a batch that is run at once has no part that "
                "could be loaded while the model runs on another"
            )
        if augment is not None and not callable(augment):
            raise TypeError(f"augment must be a function of the input of one record, got {augment!r}")
        self._score, self._asked_engine, self._autocast, self._augment = score, engine, autocast, augment
        self._scoring: Score | None = score
        self._losses_released, self._require_fitting = losses_released, require_fitting
        self._asked_loss, self._targets, self._example, self._form = loss, None, None, None
        self._modules, self._seen = list[nn.Module](), list[Any]()
        self.trained_on: Any = ()
        self._engine: Engine | None = None
        self._refused: dict[str, str] = {}
        self._chance: Chance | None = None
        self._tally: Tally | None = None
        self._comparing: ExitStack | None = None
        self._pick, self._pick_whole = PickedApart(), PickedApart(in_parts=False)
        self._snapshot = Snapshot(model=model, loss=self.loss, score=score)

    @property
    def engine(self) -> Engine | None:
        """The engine that computes gradients; chosen when data is first seen."""
        return self._engine

    @property
    def in_parts(self) -> bool:
        """Whether a batch is run in parts: then random numbers that records share are drawn once for all of them."""
        return self.max_physical_batch is not None

    def require_listening(self) -> None:
        """Raise in one of several ranks: each would make steps of its own."""
        refuse_lone_ranks()

    def report(self, data: Any = None) -> EngineReport:
        """Return which engine computes gradients, why, and what would be faster, for the data that was seen last.

        Raises:
            RuntimeError: when no data was seen, and none is given.
        """
        if data is not None:
            self.check(data)
        if self._engine is None:
            raise RuntimeError("the engine is chosen when data is first seen: give the data, or make a step first")
        return report_of(self._engine, self._refused, asked=self._asked_engine is not None)

    def check(self, data: Any) -> None:
        """Raise for data or a model that cannot be worked with, if they are not those that were looked at."""
        built = self._built(self._modules)
        known = len(built) == len(self._seen) and all(map(operator.is_, built, self._seen))
        if not known or self._engine is None or form_of(data) != self._form:
            self._engine = None
            self.ready(data)
            self._form = form_of(data)
        if isinstance(data, tuple) and data[1] is not self._targets:
            self.require_classes(data[1])
            self._targets = data[1]

    def measure(
        self,
        data: Any,
        positions: np.ndarray | RecordsOfUnits,
        step: int,
        key: int | None,
        *,
        first: int = 0,
    ) -> LogicalBatch:
        """Return the gradients and scores of a batch; with a key, the model's random numbers follow key and step.

        Args:
            data: All records.
            positions: Those of the batch, or its units: norms and weights are those of units then, scores of records.
            step: The step.
            key: The key.
            first: The number of the first micro-batch, if the batch is a part of a larger one.
        """
        batch = self._logical(data, positions, step, key, first)
        if batch.drew:  # a model that drew nothing, or other numbers, when it was tried: choose the engine anew
            self._engine = None
            batch = self._logical(data, positions, step, key, first)
            if batch.drew:
                raise ValueError("model draws other random numbers with some records: leave max_physical_batch out")
        return batch

    def losses(self, data: Any, positions: np.ndarray) -> np.ndarray:
        """Return the losses of some records, by the model in evaluation mode."""
        like, found = self.like(), [np.zeros(0)]
        with self._snapshot, evaluating(self.model), torch.no_grad():
            for some in parts_of(positions, self.max_physical_batch or 1024):
                inputs, targets = self._converted(data, partial(loaded, data, some, self._pick), like)
                found.append(as_numpy(self.loss(apply(self.model, inputs), targets)).astype(np.float64))
        return np.concatenate(found)

    def _logical(
        self, data: Any, positions: np.ndarray | RecordsOfUnits, step: int, key: int | None, first: int
    ) -> LogicalBatch:
        """Return the batch of a step, run in parts."""
        engine = self.ready(data)
        like = engine.parameters[0]
        if self._comparing is not None and self._chance is not Chance.SHARED:
            self._leave_out_dropout(self._comparing)
        if key is None and self._comparing is not None:
            key = 0  # without a key seeds are fresh, but all sums that are compared have one key
        # Without parts, all records share what a forward pass draws once, whoever else was drawn: it stays as it is.
        shared = keys.batch_seed(key, step) if self._chance is Chance.SHARED else None
        pick = self._pick if self.in_parts else self._pick_whole
        groups: list[Groups | None]
        if isinstance(positions, RecordsOfUnits):
            units = positions.parts(self.max_physical_batch)
            records = [some.positions for some in units]
            groups = [Groups.of(some.groups, some.shares, like.device) for some in units]
        else:
            records = parts_of(positions, self.max_physical_batch)
            groups = [None] * len(records)
        cut = [(keys.microbatch_seed(key, step, number), some) for number, some in enumerate(records, first)]
        parts = [
            Microbatch(partial(self._fetched, data, fetch, like), seed, shared, some)
            for (seed, _), fetch, some in zip(cut, self.ahead.fetches(data, cut, pick), groups, strict=True)
        ]
        # Parts of less than a full one are alone in their batch, or have the same model as the full one before.
        full = bool(records) and records[0].size == self.max_physical_batch and self._comparing is None
        silent, tally = self._chance is Chance.NONE, self._tally if full else None
        return LogicalBatch(engine, parts, self._scoring, self._snapshot, silent=silent, tally=tally)

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Hold random numbers of the model fixed where all records share them, and leave out dropout elsewhere.

        Shared numbers are the same in two batches if they are drawn once per batch, and a comparison of the batches
        sees whether they are. Of dropout by record, a record has another mask in another batch. Which numbers a model
        draws is known when the engine is chosen, so dropout is left out at the first sum.
        """
        with ExitStack() as self._comparing:
            try:
                yield
            finally:
                self._comparing = None

    def _leave_out_dropout(self, comparing: ExitStack) -> None:
        """Put layers with dropout into evaluation mode while sums are compared."""
        for module in self.model.modules():
            if module.training and (isinstance(module, _DropoutNd) or _drops(module)):
                comparing.enter_context(evaluating(module))

    def require_classes(self, targets: Any) -> None:
        """Raise for a target that is no class, before the loss does, which would show it."""
        require_classes(self._asked_loss, self.loss, targets, self._example)

    def _fetched(self, data: Any, fetch: Callable[[], Any], like: Tensor) -> tuple[Any, Any]:
        """Return inputs and targets of some records to learn from: inputs are augmented."""
        inputs, targets = self._converted(data, fetch, like)
        return (inputs if self._augment is None else augmented(inputs, self._augment)), targets

    def _converted(self, data: Any, fetch: Callable[[], Any], like: Tensor) -> tuple[Any, Any]:
        """Return inputs and targets of some records; targets of columns were looked at before, all of them."""
        inputs, targets = converted(data, fetch(), like)
        if not isinstance(data, tuple):
            self.require_classes(targets)
        return inputs, targets

    def ready(self, data: Any) -> Engine:
        """Choose the engine when data is first seen, before anything is drawn or charged."""
        if self._engine is None:
            self._require_fitting()
            with torch.random.fork_rng(devices=[]), keep_foreign_state():  # a data set may augment
                inputs, targets = batch_of(data, np.zeros(1, dtype=np.int64), self.like())
                if self._augment is not None:
                    augmented(inputs, self._augment)
            try:
                engine = self._engine_for(inputs, targets)
                try_batches(self.model, self.loss, self._score, data, self.like())
                self._example = outputs_in_evaluation(self.model, inputs)
            except Exception as error:  # whatever model and loss raise
                error = explained(error, inputs)
                error.add_note(f"(a record has inputs {form(inputs)} and targets {form(targets)})")
                raise error
            self._engine, self._modules = engine, list(self.model.modules())
            report = self.report()
            _LOG.log(logging.WARNING if report.slow else logging.INFO, report.line)
            self._seen = self._built(self._modules)
        return self._engine

    def _engine_for(self, inputs: Any, targets: Any) -> Engine:
        """Return the engine that was asked for, or the best."""
        if self._asked_engine is None:
            engine, self._refused = chosen_engine(
                self.model,
                self.loss,
                inputs,
                targets,
                autocast=self._autocast,
                in_parts=self.in_parts,
            )
            if self._losses_released:  # losses of groups are those of the model in evaluation mode
                how = mixes_records(self.model, self.loss, inputs, targets, training=False)
                if how is not None:
                    raise ValueError(
                        f"model and loss must process each record independently in evaluation mode as well, but {how}"
                    )
        else:
            refuse_mixing(self.model)
            engine = self._asked_engine(self.model, self.loss, autocast=self._autocast)
            refuse_writing(self._asked_engine, self.model, self.loss, inputs, targets, autocast=self._autocast)
        if self._score is not None:
            with sandbox(self.model, loss=self.loss, score=self._score), self._snapshot:
                refuse_mixing_scores(self._score, engine, inputs, targets, in_parts=self.in_parts)
                self._scoring = safe_score(self._score, engine, inputs, targets)
        self._chance = self._chance_of(engine, inputs, targets)
        self._tally = None
        if (
            self.max_physical_batch is not None
            and self._chance is not Chance.NONE
            and not isinstance(engine, Functional | OneByOne)
        ):
            self._tally = Tally(self.model, engine, inputs, targets, self.max_physical_batch)
        return engine

    def _chance_of(self, engine: Engine, inputs: Any, targets: Any) -> Chance | None:
        """Say who shares the random numbers of the model, if that matters, and refuse what cannot be run in parts."""
        how = self.model, self.loss, inputs, targets
        if self._losses_released and chance_in_evaluation(*how) not in (Chance.NONE, Chance.PER_RECORD):
            raise ValueError(
                "model must not draw random numbers in evaluation mode that records share: with steering, losses of "
                "groups are released, and computed in parts"
            )
        in_parts = self.in_parts
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

    def like(self) -> Tensor:
        """Return a trainable parameter, whose device and precision inputs get."""
        if self._engine is not None:
            return self._engine.parameters[0]
        return next(parameter for parameter in self.model.parameters() if parameter.requires_grad)


def _drops(module: nn.Module) -> bool:
    """Say whether a layer such as an LSTM or an attention has dropout of its own."""
    share = getattr(module, "dropout", None)
    return isinstance(share, float) and share > 0
