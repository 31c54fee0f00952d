"""A training run as a YAML file: what may be in it, checked before anything is loaded or computed."""

import math
import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from inosgm import _yaml
from inosgm._problems import problems
from inosgm.clipping import AutomaticClipping, Clipping, ClipToShare, PerSampleAdaptive, ScaleClipped
from inosgm.datasets.loading import NAMES
from inosgm.datasets.rules import Split
from inosgm.datasets.settings import SETTINGS
from inosgm.orders import Ascending, Descending, Order, OwnerFirst, RandomOrder
from inosgm.plan import Plan
from inosgm.tails import BetaTail, HardTail, LinearTail, NoTail, StepTail, Tail


class Section(BaseModel):
    """A part of a configuration: frozen, without keys that nobody knows, and "3" is not a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Delta = Annotated[float, Field(gt=0, lt=1)]
Options = dict[str, Any]


def _epsilon(value: Any) -> Any:
    """Check what owners grant: one number, a list of numbers, or a mapping from owner to number."""
    rows = (
        value if isinstance(value, Mapping) else dict(enumerate(value if isinstance(value, list | tuple) else [value]))
    )
    for owner, number in rows.items():
        who = f" for {owner!r}" if rows is value else ""
        if isinstance(number, bool) or not isinstance(number, int | float):
            forms = "a number, a list of numbers, or a mapping from owner to number"
            raise ValueError(f"must be {forms}, got {number!r}{who}")
        if not 0 < number < math.inf:
            raise ValueError(f"must be finite and > 0, got {number!r}{who}")
    return tuple(value) if isinstance(value, list | tuple) else value


Epsilon = Annotated[float | tuple[float, ...] | dict[str | int, float], BeforeValidator(_epsilon)]


class DataConfig(Section):
    """Which records.

    Attributes:
        name: A data set of `inosgm.datasets.load`, or "package.module:function" of your own, which is given `root`
            and returns an `inosgm.datasets.Dataset`.
        root: The data directory; what INOSGM_DATA says if not given.
        subset: Train on so many of its training records, drawn at random; all if not given.
    """

    name: str
    root: str | None = None
    subset: Count | None = None

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in NAMES and ":" not in name:
            known = ", ".join(sorted(NAMES))
            raise ValueError(f"must be one of {known}, openml:NAME, or package.module:function, got {name!r}")
        return name


class SettingOwners(Section):
    """Owners as a setting of the papers has them.

    Attributes:
        setting: Its name in `inosgm.datasets.settings`.
    """

    setting: str

    @field_validator("setting")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in SETTINGS:
            raise ValueError(f"must be one of {', '.join(SETTINGS)}, got {name!r}")
        return name


class ClassOwners(Section):
    """One owner for each class, who is called like the class.

    Attributes:
        by: "class".
        epsilon: What they grant: a mapping from class to number, a list in the order of the classes, one number.
        delta: One for all.
    """

    by: Literal["class"]
    epsilon: Epsilon
    delta: Delta


class FileOwners(Section):
    """Owners from a CSV file with a column `owner` and a row for each training record, in their order.

    Attributes:
        csv: The file.
        held_out: A file with the owner of each held-out record; they are looked at by class if not given.
        epsilon: What owners grant: a mapping, one number, or the column `epsilon` of the file if not given.
        delta: One for all, or the column `delta` of the file if not given.
    """

    csv: str
    held_out: str | None = None
    epsilon: Epsilon | None = None
    delta: Delta | None = None


class SplitOwners(Section):
    """Owners 0, 1, ... who hold fractions of the training records, drawn at random.

    Attributes:
        fractions: They sum to 1.
        epsilon: What each owner grants, in the same order.
        delta: One for all.
    """

    fractions: Annotated[tuple[Positive, ...], Field(strict=False)]
    epsilon: Annotated[tuple[Positive, ...], Field(strict=False)]
    delta: Delta

    @model_validator(mode="after")
    def _whole(self) -> Self:
        Split(self.fractions, self.epsilon)
        return self


OWNER_FORMS = ("setting", "by", "csv", "fractions")


def _form_of_owners(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else type(value).model_fields if isinstance(value, BaseModel) else ()
    forms = [form for form in OWNER_FORMS if form in keys]
    return forms[0] if len(forms) == 1 else None


def _one_form(value: Any) -> Any:
    if _form_of_owners(value) is None:
        got = (", ".join(map(str, value)) or "no keys") if isinstance(value, Mapping) else repr(value)
        raise ValueError(f"must be a mapping with exactly one of the keys {', '.join(OWNER_FORMS)}, got {got}")
    return value


OwnersConfig = Annotated[
    Annotated[SettingOwners, Tag("setting")]
    | Annotated[ClassOwners, Tag("by")]
    | Annotated[FileOwners, Tag("csv")]
    | Annotated[SplitOwners, Tag("fractions")],
    Discriminator(_form_of_owners),
    BeforeValidator(_one_form),
]


class ModelConfig(Section):
    """Which model.

    Attributes:
        name: A name of `inosgm.sgd.models`, or "package.module:function" of your own.
        options: What else that model takes.
    """

    name: str
    options: Options = {}


class PlanConfig(Section):
    """What the budgets buy; see `plan_sample`, `plan_scale`, `plan_blend` and `plan_uniform`.

    Attributes:
        method: How owners are told apart: by their rates, their sensitivities, both, or not at all.
        steps: How many steps.
        expected_batch: Expected number of records in a batch.
        clip_norm: Mean sensitivity of a record.
        weight: For a blend: 1 is sample, 0 is scale.
        accountant: Exact, or as in the papers.
    """

    method: Literal["sample", "scale", "blend", "uniform"]
    steps: Count
    expected_batch: Positive
    clip_norm: Positive
    weight: Annotated[Share | None, Field(validate_default=True)] = None
    accountant: Literal["pld", "rdp"] = "pld"

    @field_validator("weight")
    @classmethod
    def _of_a_blend(cls, weight: float | None, info: Any) -> float | None:
        if "method" in info.data and (info.data["method"] == "blend") != (weight is not None):
            raise ValueError("must be given for the method blend, and only for that")
        return weight


class NoTailConfig(Section):
    """Nothing is given up: IDP-SGD, or DP-SGD if the plan is uniform."""

    kind: Literal["none"] = "none"

    def tail(self, plan: Plan) -> Tail:
        """Return the tail for a plan."""
        return NoTail()


class BetaTailConfig(Section):
    """A `BetaTail` over a fraction of the expected total sensitivity of a batch."""

    kind: Literal["beta"]
    alpha: Annotated[float, Field(ge=0.01, le=1e4)]
    beta: Annotated[float, Field(ge=0.01, le=1e4)]
    fraction: Share

    def tail(self, plan: Plan) -> Tail:
        """Return the tail for a plan."""
        return BetaTail(self.alpha, self.beta, plan.tail_length(self.fraction))


class LinearTailConfig(Section):
    """A `LinearTail` over a fraction of the expected total sensitivity of a batch."""

    kind: Literal["linear"]
    fraction: Share

    def tail(self, plan: Plan) -> Tail:
        """Return the tail for a plan."""
        return LinearTail(plan.tail_length(self.fraction))


class HardTailConfig(Section):
    """A `HardTail` over a fraction of the expected total sensitivity of a batch."""

    kind: Literal["hard"]
    fraction: Share

    def tail(self, plan: Plan) -> Tail:
        """Return the tail for a plan."""
        return HardTail(plan.tail_length(self.fraction))


class StepTailConfig(Section):
    """A `StepTail` whose levels share a fraction of the expected total sensitivity of a batch."""

    kind: Literal["step"]
    levels: Annotated[tuple[Share, ...], Field(strict=False)]
    fraction: Share

    @field_validator("levels")
    @classmethod
    def _falling(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        StepTail(levels, step=1.0)
        return levels

    def tail(self, plan: Plan) -> Tail:
        """Return the tail for a plan."""
        return StepTail(self.levels, step=plan.tail_length(self.fraction) / len(self.levels))


TailConfig = NoTailConfig | BetaTailConfig | LinearTailConfig | HardTailConfig | StepTailConfig


class ScaleClippedConfig(Section):
    """`ScaleClipped`."""

    kind: Literal["scale_clipped"] = "scale_clipped"

    def clipping(self) -> Clipping:
        """Return it."""
        return ScaleClipped()


class ClipToShareConfig(Section):
    """`ClipToShare`."""

    kind: Literal["clip_to_share"]

    def clipping(self) -> Clipping:
        """Return it."""
        return ClipToShare()


class AutomaticClippingConfig(Section):
    """`AutomaticClipping`."""

    kind: Literal["automatic"]
    stability: Positive = AutomaticClipping.stability

    def clipping(self) -> Clipping:
        """Return it."""
        return AutomaticClipping(self.stability)


class PerSampleAdaptiveConfig(Section):
    """`PerSampleAdaptive`."""

    kind: Literal["per_sample_adaptive"]
    stability: Positive = PerSampleAdaptive.stability

    def clipping(self) -> Clipping:
        """Return it."""
        return PerSampleAdaptive(self.stability)


ClippingConfig = ScaleClippedConfig | ClipToShareConfig | AutomaticClippingConfig | PerSampleAdaptiveConfig


class LossConfig(Section):
    """What is made small.

    Attributes:
        name: A class of `torch.nn`, or "package.module:Class" of your own, which gives one number per record.
        options: What it takes.
    """

    name: str = "CrossEntropyLoss"
    options: Options = {}


class OptimizerConfig(Section):
    """Which optimizer.

    Attributes:
        name: A class of `torch.optim`, or "package.module:Class" of your own.
        lr: The learning rate.
        options: What else it takes.
    """

    name: str
    lr: Positive
    options: Options = {}


class ScheduleConfig(Section):
    """Which learning-rate schedule, counted in steps.

    Attributes:
        name: A class of `torch.optim.lr_scheduler`, or "package.module:function" of your own, given the optimizer.
        options: What else it takes.
    """

    name: str
    options: Options = {}


class FitConfig(Section):
    """How training goes; none of it changes the guarantee.

    Attributes:
        max_physical_batch: The most records that are in memory at once.
        autocast: The precision of the forward pass.
        device: Where the model is.
        evaluate_every: Steps between evaluations; a tenth of the plan if not given.
        checkpoint_every: Steps between checkpoints; a twentieth of the plan if not given.
        diagnostics: Also log how owners' gradients disagree.
        fix: Replace modules that mix records.
    """

    max_physical_batch: Count | None = None
    autocast: Literal["bfloat16", "float16"] | None = None
    device: str = "cpu"
    evaluate_every: Count | None = None
    checkpoint_every: Count | None = None
    diagnostics: bool = False
    fix: bool = False


class TrainingConfig(Section):
    """A training run. Paths in it are relative to the current directory, as in a shell.

    A data set, a model, a loss, an optimizer or a schedule given as an import path is your code, and is run: read a
    file that you did not write before you train from it. Nothing else in a file can run code.

    Attributes:
        data: Which records.
        owners: Who holds which of them, and grants what.
        model: What is trained.
        loss: What is made small; cross-entropy if not given.
        plan: What the budgets buy.
        tail: What part of an ordered batch is given up.
        order: What counts as important.
        clipping: How a weighted gradient is bounded.
        optimizer: What makes a step of a released sum.
        schedule: How the learning rate changes.
        training: How training goes.
        seed: Public: decides the first parameters of the model and what is random in a setting, a split, a subset or a
            random order.
        key: None lets a run take coins and noise from a secret of its own, which is deleted when it is finished. A
            whole number makes both a function of it and of the rest of the configuration: reproducible, NOT PRIVATE
            against whoever knows it. For tests and studies.
        run: The directory of the run.
        ledger: A ledger that several runs share; a run keeps its own if not given.

    >>> config = TrainingConfig.from_dict({
    ...     "data": {"name": "digits"},
    ...     "owners": {"by": "class", "epsilon": 2, "delta": 1e-5},
    ...     "model": {"name": "logistic_regression"},
    ...     "plan": {"method": "sample", "steps": 10, "expected_batch": 64, "clip_norm": 1},
    ...     "tail": {"kind": "linear", "fraction": 0.5},
    ...     "optimizer": {"name": "SGD", "lr": 0.5},
    ... })
    >>> config.plan.accountant
    'pld'
    """

    data: DataConfig
    owners: OwnersConfig
    model: ModelConfig
    loss: LossConfig = LossConfig()
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

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.data.subset is not None and isinstance(self.owners, FileOwners):
            raise ValueError("data.subset does not go with owners.csv, which has a row for each training record")
        return self

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], changes: Sequence[str] = ()) -> Self:
        """Read a configuration from a file.

        Args:
            path: The file.
            changes: Keys to set before anything is checked, such as "plan.steps=100": a path of keys and YAML.

        Raises:
            ValueError: listing all that is wrong, each with the path of its key.
            OSError: for a file that cannot be read.
        """
        try:
            with open(path, encoding="utf-8") as file:
                values = _yaml.read(file.read())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"{path}: must be a mapping with the keys {', '.join(cls.model_fields)}")
        for change in changes:
            _set(values, change)
        return cls.from_dict(values, source=os.fspath(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "configuration") -> Self:
        """Make a configuration from what a YAML file would hold.

        Args:
            values: Sections by key.
            source: What messages call it.

        Raises:
            ValueError: listing all that is wrong, each with the path of its key.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as refusal:
            lines = problems(refusal, cls, unions=("owners", "tail", "clipping"))
        if len(lines) == 1:
            raise ValueError(f"{source}: {lines[0].removeprefix(': ')}")
        raise ValueError("\n  ".join([f"{source} has {len(lines)} problems:", *lines]))

    def to_yaml(self) -> str:
        """Return the text of a file that `from_yaml` reads as this configuration."""
        return _yaml.write(self.model_dump())

    def of_order(self) -> Order:
        """Return the order."""
        orders = {"descending": Descending(), "ascending": Ascending(), "owner_first": OwnerFirst()}
        return RandomOrder(self.seed) if self.order == "random" else orders[self.order]

    def identity(self) -> dict[str, Any]:
        """Return what makes a run the run that it is, by path of key: all but where things lie, and the secret key.

        Files that are part of it are named by their whole path.
        """
        flat = _flat(self.model_dump(exclude={"key": True, "run": True, "data": {"root"}}))
        files = ("owners.csv", "owners.held_out", "ledger")
        known = {path: value for path, value in flat.items() if value is not None}
        return {path: os.path.abspath(value) if path in files else value for path, value in known.items()}

    def noise_key(self) -> int | None:
        """Return the key of coins and noise: another for every configuration, so that no two share their noise.

        Two runs with the same noise and other sums would give the noise away: their difference does not hold it. What
        is inside data files it does not know: never use one key with files that have changed.
        """
        if self.key is None:
            return None
        text = repr((self.key, sorted(self.identity().items())))
        return int.from_bytes(blake2b(text.encode(), digest_size=16, person=b"inosgm config").digest())


def differences(one: TrainingConfig, other: TrainingConfig, names: tuple[str, str], within: Sequence[str] = ()) -> str:
    """Say in which keys two configurations differ, or nothing if they do not; `within` looks at some sections only."""
    first, second = one.identity(), other.identity()
    paths = [path for path in {**first, **second} if first.get(path) != second.get(path)]
    paths = [path for path in paths if not within or path.split(".")[0] in within]
    values = ((path, *(repr(side[path]) if path in side else "nothing" for side in (first, second))) for path in paths)
    return ", ".join(f"{path} ({a} {names[0]}, {b} {names[1]})" for path, a, b in values)


def _flat(values: Mapping[Any, Any], before: str = "") -> dict[str, Any]:
    """Return values by the path of their key."""
    flat = {}
    for key, value in values.items():
        path = f"{before}{key}"
        flat.update(_flat(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value})
    return flat


def _set(values: dict[Any, Any], change: str) -> None:
    """Set a key before anything is checked."""
    path, sign, text = change.partition("=")
    *sections, key = path.split(".")
    if not sign or not key:
        raise ValueError(f"--set takes key=value, such as plan.steps=100, got {change!r}")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ValueError(f"--set {change}: {section} holds a value, not keys")
    try:
        values[key] = _yaml.read(text)
    except ValueError as error:
        raise ValueError(f"--set {change}: {error}") from None
