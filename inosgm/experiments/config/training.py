"""The configuration of a training run, validated before anything is loaded or computed."""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from inosgm._internal import yaml as _yaml
from inosgm._internal.keys import Purpose
from inosgm.experiments.config.learning import (
    AdjustmentConfig,
    FitConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    PlanConfig,
    ScheduleConfig,
)
from inosgm.experiments.config.problems import problems
from inosgm.experiments.config.records import DataConfig, Features, FileOwners, OwnersConfig
from inosgm.experiments.config.section import Section
from inosgm.experiments.config.weighing import ClippingConfig, NoTailConfig, ScaleClippedConfig, TailConfig
from inosgm.mechanism.orders import Ascending, Descending, Order, OwnerFirst, RandomOrder

CONSTANTS = ("True", "False", "None", "inf", "nan")
"""Names that Python prints for values that are not text: a key that is one of these is quoted."""

LATER = ("features", "adjustment")
"""Sections that earlier versions did not have. They are left out where they are not set, so that files and job ids
remain the same."""


class TrainingConfig(Section):
    """A training run. Paths in it are relative to the current directory, as in a shell.

    A data set, features, a model, a loss, an optimizer or a schedule that is an import path is executed: read a file of
    somebody else before you train from it. Nothing else in a file can execute code.

    Attributes:
        data: The data set.
        owners: The owner of each record, and what each owner grants.
        features: The inputs of the model; the records themselves if not given.
        model: The model.
        loss: The loss; cross-entropy if not given.
        adjustment: The correction of logits by the class prior of the plan; none if not given.
        plan: The plan.
        tail: The part of an ordered batch that is down-weighted.
        order: Which records of a batch count as important.
        clipping: How the norm of a weighted gradient is bounded.
        optimizer: The optimizer.
        schedule: The schedule of the learning rate.
        training: How steps are computed.
        seed: Public. It determines the initial parameters of the model and the randomness of a setting, a split, a
            subset or a random order.
        key: If not given, a run draws samples and noise from a secret of its own, which is deleted when the run ends.
            A whole number makes both a function of it and of the rest of the configuration: reproducible, NOT PRIVATE
            against anyone who knows it. For tests and studies.
        run: The directory of the run.
        ledger: A ledger that several runs share; every run has its own if not given.

    >>> config = TrainingConfig.from_dict({
    ...     "data": {"name": "digits"},
    ...     "owners": {"by": "class", "epsilon": 2, "delta": 1e-5},
    ...     "model": {"name": "logistic_regression"},
    ...     "plan": {"method": "sample", "steps": 10, "expected_batch": 64, "clip_norm": 1},
    ...     "tail": {"kind": "linear", "fraction": 0.5},
    ...     "optimizer": {"name": "SGD", "lr": 0.5},
    ... })
    >>> config.plan.accountant, config.changed({"plan.accountant": "rdp"}).plan.accountant
    ('pld', 'rdp')
    """

    data: DataConfig
    owners: OwnersConfig
    features: Features | None = None
    model: ModelConfig
    loss: LossConfig = LossConfig()
    adjustment: AdjustmentConfig | None = None
    plan: PlanConfig
    tail: Annotated[TailConfig, Field(discriminator="kind")] = NoTailConfig()
    order: Literal["descending", "ascending", "random", "owner_first"] = "descending"
    clipping: Annotated[ClippingConfig, Field(discriminator="kind")] = ScaleClippedConfig()
    optimizer: OptimizerConfig
    schedule: ScheduleConfig | None = None
    training: FitConfig = FitConfig()
    seed: Annotated[int, Field(ge=0)] = 0
    key: Annotated[int, Field(ge=0)] | None = None
    run: str | None = None
    ledger: str | None = None

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return {name: value for name, value in values.items() if value is not None or name not in LATER}

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.data.subset is not None and isinstance(self.owners, FileOwners):
            raise ValueError("data.subset does not go with owners.csv, which has a row for each training record")
        if self.plan.by_votes:
            self._require_votes()
        return self

    def _require_votes(self) -> None:
        """Raise if a configuration of IPATE lacks a section, or has one that would have no effect."""
        teachers, public = self.plan.teachers, self.data.public
        if teachers is None:
            raise ValueError(f"plan.teachers must be given for {self.plan.method}, such as {{count: 50, queries: 200}}")
        if public is None or public < teachers.queries:
            raise ValueError(
                f"data.public must be at least plan.teachers.queries, {teachers.queries}, got {public}: teachers label "
                "public records, which are taken from the held-out ones"
            )
        if self.tail.kind != "none":
            raise ValueError(f"tail does not go with plan.method {self.plan.method}: votes have no order")
        if self.adjustment is not None:
            raise ValueError(f"adjustment does not go with plan.method {self.plan.method}: teachers have no plan")

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], changes: Sequence[str] = ()) -> Self:
        """Read a configuration from a file.

        Args:
            path: The file.
            changes: Keys to set before validation, such as "plan.steps=100": a path of keys and YAML.

        Raises:
            ValueError: listing every problem with the path of its key.
            OSError: for a file that cannot be read.
        """
        try:
            with open(path, encoding="utf-8") as file:
                values = _yaml.read(file.read())
        except UnicodeDecodeError:
            raise ValueError(f"{path}: must be YAML, text in UTF-8") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"{path}: must be a mapping with the keys {', '.join(cls.model_fields)}")
        for change in changes:
            _set(values, change)
        return cls.from_dict(values, source=os.fspath(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "configuration") -> Self:
        """Make a configuration from the content of a YAML file.

        Args:
            values: Sections by key.
            source: The name of the configuration in messages.

        Raises:
            ValueError: listing every problem with the path of its key.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as refusal:
            lines = problems(refusal, cls, unions=("owners", "tail", "clipping"))
        if len(lines) == 1:
            raise ValueError(f"{source}: {lines[0].removeprefix(': ')}")
        raise ValueError("\n  ".join([f"{source} has {len(lines)} problems:", *lines]))

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return the configuration with some keys set.

        Args:
            values: Values by path of key.

        Raises:
            ValueError: listing every problem with the path of its key.
        """
        whole = self.model_dump()
        for path, value in values.items():
            _put(whole, path, value)
        return type(self).from_dict(whole)

    def to_yaml(self) -> str:
        """Return the text of a file that `from_yaml` reads as this configuration."""
        return _yaml.write(self.model_dump())

    def of_order(self) -> Order:
        """Return the order."""
        orders = {"descending": Descending(), "ascending": Ascending(), "owner_first": OwnerFirst()}
        return RandomOrder(self.seed) if self.order == "random" else orders[self.order]

    def identity(self) -> dict[str, Any]:
        """Return the values that identify a run, by path of key: all except its key and the locations of run and data.

        Files that are part of the identity have absolute paths.
        """
        flat = _flat(self.model_dump(exclude={"key": True, "run": True, "data": {"root"}}))
        embeddings = self.features is not None and self.features.from_file
        files = ("owners.csv", "owners.held_out", "ledger", *["features.name"] * embeddings)
        given = {path: value for path, value in flat.items() if value is not None or ".options." in path}
        return {path: os.path.abspath(value) if path in files else value for path, value in given.items()}

    def noise_key(self) -> int | None:
        """Return the key of sampling and noise, which differs for every configuration.

        Two runs with equal noise and different sums would reveal the sums: the noise cancels in their difference. The
        content of data files is not part of the key: never use one key with files that have changed.
        """
        if self.key is None:
            return None
        return Purpose.CONFIG_KEY.key(repr((self.key, sorted(self.identity().items()))))


def differences(one: TrainingConfig, other: TrainingConfig, names: tuple[str, str], within: Sequence[str] = ()) -> str:
    """Return the keys in which two configurations differ as text, empty if none; `within` limits the sections."""
    first, second = one.identity(), other.identity()
    paths = [path for path in {**first, **second} if repr(first.get(path)) != repr(second.get(path))]
    paths = [path for path in paths if not within or path.split(".")[0] in within]
    values = ((path, *(repr(side[path]) if path in side else "nothing" for side in (first, second))) for path in paths)
    return ", ".join(f"{path} ({a} {names[0]}, {b} {names[1]})" for path, a, b in values)


def _flat(values: Mapping[Any, Any], before: str = "") -> dict[str, Any]:
    """Return values by the path of their key; keys are quoted where two could have the same path otherwise."""
    flat = {}
    for key, value in values.items():
        plain = isinstance(key, str) and key.isidentifier() and key not in CONSTANTS
        path = f"{before}{key if plain else repr(key)}"
        flat.update(_flat(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value})
    return flat


def _set(values: dict[Any, Any], change: str) -> None:
    """Set one key=value before validation."""
    path, sign, text = change.partition("=")
    if not sign or not path.split(".")[-1]:
        raise ValueError(f"--set takes key=value, such as plan.steps=100, got {change!r}")
    try:
        _put(values, path, _yaml.read(text))
    except ValueError as error:
        raise ValueError(f"--set {change}: {error}") from None


def _put(values: dict[Any, Any], path: str, value: Any) -> None:
    """Set the value at a path of keys."""
    *sections, key = path.split(".")
    for section in sections:
        if values.get(section) is None:
            values[section] = {}
        values = values[section]
        if not isinstance(values, dict):
            raise ValueError(f"{section} holds a value, not keys")
    values[key] = value
