"""The parts of a training run, made from the sections of its configuration."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TextIO

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from inosgm._internal.imports import imported
from inosgm._internal.keys import Draw, model_sequence
from inosgm.accounting import ACCOUNTANTS
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE, name_in
from inosgm.datasets import Dataset
from inosgm.datasets.settings import SETTINGS, Prepared, split
from inosgm.experiments.adjusting import Adjusting
from inosgm.experiments.config import ClassOwners, FileOwners, SettingOwners, SplitOwners, TrainingConfig
from inosgm.experiments.config.problems import about
from inosgm.experiments.input_files import Source
from inosgm.ledger.ledger import Ledger
from inosgm.methods.adapdp import Averaged, member_weights
from inosgm.owners import Owners, labels_at
from inosgm.planning.sequence import PlanSequence
from inosgm.training import models


def prepared(config: TrainingConfig, source: Source) -> Prepared:
    """Choose the records, and say who owns them: a function of the configuration and what was read for it."""
    chosen = _chosen(config, source)
    return chosen if config.data.public is None else _apart(chosen, config.data.public)


def _apart(chosen: Prepared, size: int) -> Prepared:
    """Take public records from the held-out ones: the same for every seed and method, without their classes."""
    dataset, held_out = chosen.dataset, len(chosen.dataset.y_test)
    if size >= held_out:
        raise ValueError(f"data.public: must leave some of the {held_out} held-out records, got {size}")
    drawn = Draw.PUBLIC.generator().permutation(held_out)
    rest = np.sort(drawn[size:])
    return replace(
        chosen,
        dataset=replace(dataset, x_test=dataset.x_test[rest], y_test=dataset.y_test[rest]),
        groups=chosen.groups[rest],
        public=dataset.x_test[drawn[:size]],
    )


def _chosen(config: TrainingConfig, source: Source) -> Prepared:
    """Choose the records and their owners, before some of the held-out ones become public."""
    owners, seed, dataset = config.owners, config.seed, source.dataset(config)
    if config.data.subset is not None:
        dataset = _subset(dataset, config.data.subset, seed)
    with about("owners"):
        if isinstance(owners, SettingOwners):
            return SETTINGS[owners.setting].prepare(dataset, seed)
        names = np.array(dataset.classes)
        groups = names[dataset.y_test]
        if isinstance(owners, ClassOwners):
            present = np.unique(dataset.y).tolist()
            granted = _by_class(owners.epsilon, dataset.classes)
            epsilon = {dataset.classes[place]: granted[dataset.classes[place]] for place in present}
            made = Owners(of_record=names[dataset.y], epsilon=epsilon, delta=owners.delta)
        elif isinstance(owners, FileOwners):
            made = _from_file(owners, source.table(owners.csv))
            _require_as_many(owners.csv, made, dataset.y, "training")
            if owners.held_out is not None:
                rows = source.table(owners.held_out)
                only_labels: dict[str, Any] = {"epsilon": 1.0, "delta": 0.5, "records": None}
                held_out = Owners.from_csv(rows, **only_labels, rows_in_order=True)
                _require_as_many(owners.held_out, held_out, dataset.y_test, "held-out")
                groups = labels_at(held_out.labels, held_out.of_record)
        else:
            made, groups = _drawn(owners, dataset, seed)
    return Prepared(dataset=dataset, owners=made, groups=groups)


def _subset(dataset: Dataset, size: int, seed: int) -> Dataset:
    if size > len(dataset.y):
        raise ValueError(f"data.subset: must be at most the {len(dataset.y)} training records, got {size}")
    chosen = np.sort(Draw.SUBSET.generator(seed).choice(len(dataset.y), size, replace=False))
    return replace(dataset, x=dataset.x[chosen], y=dataset.y[chosen])


def _by_class(epsilon: Any, classes: tuple[str, ...]) -> dict[str, float]:
    """Return what the owner of each class grants; classes that are called like numbers may be written as numbers."""
    if isinstance(epsilon, Mapping):
        granted = {str(name): value for name, value in epsilon.items()}
        wrong = [*(name for name in granted if name not in classes), *(name for name in classes if name not in granted)]
        if wrong:
            raise ValueError(f"epsilon must name each of the classes {', '.join(classes)}: look at {wrong[0]!r}")
        return granted
    values = epsilon if isinstance(epsilon, tuple) else (epsilon,) * len(classes)
    if len(values) != len(classes):
        raise ValueError(f"epsilon must be one number per class: got {len(values)} for {len(classes)}")
    return dict(zip(classes, values, strict=True))


def _from_file(owners: FileOwners, rows: TextIO) -> Owners:
    given = {"epsilon": owners.epsilon, "delta": owners.delta}
    budgets: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Owners.from_csv(rows, records=None, rows_in_order=True, **budgets)  # that is what `csv` means there


def _require_as_many(path: str, owners: Owners, records: np.ndarray, which: str) -> None:
    if owners.n_records != records.size:
        raise ValueError(
            f"{path} must have a row for each of the {records.size} {which} records, got {owners.n_records}"
        )


def _drawn(owners: SplitOwners, dataset: Dataset, seed: int) -> tuple[Owners, np.ndarray]:
    """Draw who gets which record; held-out records belong to nobody and are looked at by class."""
    drawn = split(owners.fractions, owners.epsilon, len(dataset.y), seed)
    of_record = labels_at(drawn.labels, drawn.of_record)
    made = Owners(of_record=of_record, epsilon=drawn.epsilon, delta=owners.delta)
    return made, np.array([f"class {dataset.classes[label]}" for label in dataset.y_test.tolist()])


def ledger_of(config: TrainingConfig, owners: Owners | None) -> Ledger | None:
    """Open the shared ledger; with owners it is made if it is not there, and must agree with them if it is."""
    if config.ledger is None:
        return None
    unit = REPLACE_ONE if config.plan.sampling == "without_replacement" else ADD_REMOVE
    with about("ledger"):
        accountant = ACCOUNTANTS[name_in(unit, config.plan.accountant)]
        return Ledger(config.ledger, owners=owners, accountant=accountant)


@dataclass(frozen=True, kw_only=True, eq=False)
class Learner:
    """A model, its loss, its optimizer and its schedule."""

    model: nn.Module
    loss: nn.Module
    optimizer: Optimizer
    schedule: LRScheduler | None


def learner_of(
    config: TrainingConfig, dataset: Dataset, course: PlanSequence | None = None, *, seed: int | None = None
) -> Learner:
    """Make model, loss, optimizer and schedule; one model per stage where each stage trains a new one.

    The class prior of an adjustment is that of the first plan, however plans change afterwards. A seed replaces that of
    the configuration for the model alone.
    """
    rounds, first_seed = config.plan.rounds, config.seed if seed is None else seed
    with about("adjustment"):
        adjusting = Adjusting(config, dataset, None if course is None else course.first)

    def new_model(seed: int) -> nn.Module:
        return adjusting.model(model_of(config.model_copy(update={"seed": seed}), dataset))

    if course is not None and rounds is not None and rounds.restart:
        seeds = model_sequence(first_seed).generate_state(len(course.plans)).tolist()
        model: nn.Module = Averaged(
            list(map(new_model, seeds)), member_weights(course.plans, waste=rounds.waste, weight=rounds.weight)
        )
    else:
        model = new_model(first_seed)
    loss, optimizer = adjusting.loss(loss_of(config)), optimizer_of(config, model)
    return Learner(model=model, loss=loss, optimizer=optimizer, schedule=schedule_of(config, optimizer))


def model_of(config: TrainingConfig, dataset: Dataset) -> nn.Module:
    """Make the model, whose first parameters follow from the seed."""
    with about("model"):
        model = models.make(
            config.model.name,
            classes=len(dataset.classes),
            input_shape=dataset.input_shape,
            seed=config.seed,
            **config.model.options,
        )
    device = device_of(config)
    with about("training.device"):
        try:
            return model.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(str(error).splitlines()[0]) from None


def device_of(config: TrainingConfig) -> torch.device:
    """Return where the model is to be, on whatever machine: here there may be no such device."""
    with about("training.device"):
        try:
            return torch.device(config.training.device)
        except RuntimeError as error:
            raise ValueError(str(error).splitlines()[0]) from None


def optimizer_of(config: TrainingConfig, model: nn.Module) -> Optimizer:
    """Make the optimizer."""
    wish = config.optimizer
    with about("optimizer"):
        made = _call(torch.optim, wish.name, (model.parameters(),), {"lr": wish.lr, **wish.options})
        if not isinstance(made, Optimizer):
            raise TypeError(f"{wish.name} must make a torch optimizer, got {type(made).__name__}")
        return made


def schedule_of(config: TrainingConfig, optimizer: Optimizer) -> LRScheduler | None:
    """Make the learning-rate schedule, if there is one."""
    wish = config.schedule
    if wish is None:
        return None
    with about("schedule"):
        made = _call(lr_scheduler, wish.name, (optimizer,), wish.options)
        if not isinstance(made, LRScheduler):
            raise TypeError(f"{wish.name} must make a torch learning-rate schedule, got {type(made).__name__}")
        return made


def loss_of(config: TrainingConfig) -> nn.Module:
    """Make the loss."""
    with about("loss"):
        return _call(nn, config.loss.name, (), config.loss.options)  # type: ignore[no-any-return]


def _call(home: ModuleType, name: str, first: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Call a class of torch by its name, or something of the user's by its import path."""
    function = imported(name) if ":" in name else getattr(home, name, None)
    if not callable(function):
        raise ValueError(f"name must be a class of {home.__name__}, or package.module:function, got {name!r}")
    try:
        inspect.signature(function).bind(*first, **options)
    except TypeError as error:
        raise ValueError(f"{name} does not take these options: {error}") from None
    return function(*first, **options)
