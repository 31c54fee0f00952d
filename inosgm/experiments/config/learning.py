"""Sections of a configuration about the plan, the model, the loss, the optimizer and the steps."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator

from inosgm.experiments.config.problems import problems
from inosgm.experiments.config.section import Count, Options, Positive, Section, Share
from inosgm.methods.registry import plan_methods


class ModelConfig(Section):
    """The model.

    Attributes:
        name: A name of `inosgm.training.models`, or "package.module:function" of your own.
        options: Its other arguments.
    """

    name: str
    options: Options = Field(default_factory=dict)


DEFAULT_LOSS_RELEASES = 50
"""Number of releases of losses in a plan, unless a configuration sets `every`."""


class SteeringConfig(Section):
    """How released losses steer the shares of owners; see `inosgm.methods.asc`.

    Attributes:
        every: Steps between releases of the owners' mean losses; a fiftieth of the plan if not given.
        loss_bound: The largest loss; larger ones are clipped to it (zeta).
        temperature: How fast shares follow losses (eta).
        noise_ratio: The noise multiplier of the losses, in multiples of that of a step. It is raised if the losses
            would cost more than a fifth of an epsilon.
    """

    every: Count | None = None
    loss_bound: Positive = 1.0
    temperature: Positive = 1.0
    noise_ratio: Positive = 25.0


class RoundsConfig(Section):
    """How thresholds are set, in how many rounds; see `inosgm.methods.pdp_sgd`.

    Attributes:
        count: Number of rounds.
        waste: How the two wastes of a threshold are weighted: with a fixed weight, or adaptively.
        weight: The fixed weight of the first waste.
        restart: Train a new model in each round, and average their outputs.
    """

    count: Count = 1
    waste: Literal["fixed", "adaptive"] = "fixed"
    weight: Share = 0.7
    restart: bool = False


class TeachersConfig(Section):
    """The teachers of IPATE; see `inosgm.methods.ipate`. Both numbers decide the noise of a vote.

    Attributes:
        count: Number of teachers.
        queries: Number of public records that they label.
    """

    count: Count
    queries: Count


class PlanConfig(Section):
    """The plan; see `plan_sample`, `plan_scale`, `plan_blend` and `plan_uniform`, and the guide to methods.

    Attributes:
        method: Whether owners differ in their rates ("sample"), their sensitivities ("scale"), both ("blend") or
            neither ("uniform"); or one of the methods of the neighbouring papers.
        steps: Number of steps.
        expected_batch: Expected number of records in a batch.
        clip_norm: Mean sensitivity of a record.
        weight: For a blend: 1 is sample, 0 is scale.
        accountant: "pld" (tight), or "rdp" (as in the papers).
        sampling: For asc and azb: Poisson sampling, or batches of fixed sizes without replacement, which have another
            unit of privacy.
        steering: For asc and azb: how shares follow losses.
        rounds: For thresholds: how they are set, in how many rounds.
        lasting: For individual, whose batches hold every record that has not left: the share of the steps that records
            last if they contribute their clip norm to each; 0.8 if not given. See `plan_individual`.
        leave_out: Number of the strictest epsilons whose owners take no part; see `plan_left_out`.
        lower: Share by which every epsilon is lowered towards the strictest one; see `plan_lowered`.
        undersample: Share of the records of less private owners that a batch leaves out; see `plan_undersampled`.
        teachers: For ipate_upsample and ipate_weight, whose teachers and student make the steps, without noise. Other
            methods ignore it, so that a comparison can have one section for all.
    """

    method: str
    steps: Count
    expected_batch: Positive
    clip_norm: Positive
    weight: Annotated[Share | None, Field(validate_default=True)] = None
    accountant: Literal["pld", "rdp"] = "pld"
    sampling: Literal["poisson", "without_replacement"] = "poisson"
    steering: SteeringConfig | None = None
    rounds: RoundsConfig | None = None
    lasting: Annotated[float, Field(gt=0, le=1)] | None = None
    leave_out: Count | None = None
    lower: Share | None = None
    undersample: Annotated[float, Field(ge=0, lt=1)] | None = None
    teachers: TeachersConfig | None = None

    @property
    def by_votes(self) -> bool:
        """Whether teachers vote on labels from which a student learns."""
        return self.method in plan_methods(needing="teachers")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the section with these values; raise one line that names every problem."""
        try:
            return cls.model_validate(values)
        except ValidationError as refusal:
            raise ValueError("; ".join(problems(refusal, cls, ()))) from None

    def with_defaults(self) -> Self:
        """Return the section with defaults for `steering` and `rounds`, as methods read it."""
        steering = self.steering or SteeringConfig()
        if steering.every is None:
            steering = steering.model_copy(update={"every": max(1, self.steps // DEFAULT_LOSS_RELEASES)})
        return self.model_copy(update={"steering": steering, "rounds": self.rounds or RoundsConfig()})

    @field_validator("method")
    @classmethod
    def _of_the_registry(cls, method: str) -> str:
        known = plan_methods()
        if method not in known:
            raise ValueError(f"must be {', '.join(known[:-1])} or {known[-1]}, got {method!r}")
        return method

    @field_validator("weight")
    @classmethod
    def _of_a_blend(cls, weight: float | None, info: Any) -> float | None:
        if "method" in info.data and (info.data["method"] == "blend") != (weight is not None):
            raise ValueError("must be given for the method blend, and only for that")
        return weight

    @field_validator("sampling", "rounds", "leave_out", "lower", "undersample")
    @classmethod
    def _of_the_method(cls, value: Any, info: Any) -> Any:
        if value not in (None, "poisson") and "method" in info.data:
            taken = plan_methods(taking=info.field_name)
            if info.data["method"] not in taken:
                raise ValueError(f"goes with the method {', '.join(taken)}, got {info.data['method']}")
        return value


class LossConfig(Section):
    """The loss.

    Attributes:
        name: A class of `torch.nn`, or "package.module:Class" of your own, which returns one number per record.
        options: Its other arguments.
    """

    name: str = "CrossEntropyLoss"
    options: Options = Field(default_factory=dict)


class AdjustmentConfig(Section):
    """How logits are corrected by the class prior that the plan implies; see `LogitAdjustment`. It costs no privacy.

    Attributes:
        loss: The strength in the loss.
        after: The strength in predictions. The model that is saved holds these offsets, and predicts with them.
        class_shares: The share of each class among an owner's records, in the order of the classes, by owner. Public.
            Not needed where an owner holds classes of its own, equally many records of each.
    """

    loss: Annotated[float, Field(ge=0)] = 1.0
    after: Annotated[float, Field(ge=0)] = 0.0
    class_shares: dict[str | int, Annotated[tuple[Share, ...], Field(strict=False)]] | None = None


class OptimizerConfig(Section):
    """The optimizer.

    Attributes:
        name: A class of `torch.optim`, or "package.module:Class" of your own.
        lr: The learning rate.
        options: Its other arguments.
    """

    name: str
    lr: Positive
    options: Options = Field(default_factory=dict)


class ScheduleConfig(Section):
    """The schedule of the learning rate, counted in steps.

    Attributes:
        name: A class of `torch.optim.lr_scheduler`, or "package.module:function" of your own, given the optimizer.
        options: Its other arguments.
    """

    name: str
    options: Options = Field(default_factory=dict)


class FitConfig(Section):
    """How the steps are computed; none of it changes the guarantee.

    Attributes:
        max_physical_batch: Largest number of records in memory at once.
        autocast: The precision of the forward pass.
        device: The device of the model.
        evaluate_every: Steps between evaluations; a tenth of the plan if not given.
        checkpoint_every: Steps between checkpoints; a twentieth of the plan if not given.
        diagnostics: Log how much the gradients of owners disagree.
        fix: Replace modules that mix records.
    """

    max_physical_batch: Count | None = None
    autocast: Literal["bfloat16", "float16"] | None = None
    device: str = "cpu"
    evaluate_every: Count | None = None
    checkpoint_every: Count | None = None
    diagnostics: bool = False
    fix: bool = False
