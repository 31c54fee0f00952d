"""Model, loss, optimizer, schedule, and how often a model is evaluated."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator

from inosgm.experiments.config.problems import problems
from inosgm.experiments.config.section import Count, Options, Positive, Section, Share
from inosgm.methods.registry import plan_methods


class ModelConfig(Section):
    """Which model.

    Attributes:
        name: A name of `inosgm.training.models`, or "package.module:function" of your own.
        options: What else that model takes.
    """

    name: str
    options: Options = Field(default_factory=dict)


UPDATES = 50
"""How often losses are released unless a configuration says after how many steps."""


class SteeringConfig(Section):
    """How released losses steer the shares of owners; see `inosgm.methods.asc`.

    Attributes:
        every: Steps between releases of the owners' mean losses; a fiftieth of the plan if not given (`UPDATES`).
        loss_bound: What losses are cut to (zeta).
        temperature: How fast shares follow losses (eta).
        noise_ratio: The noise multiplier of the losses, in multiples of that of a step; more, where they would cost
            more than a fifth of an epsilon.
    """

    every: Count | None = None
    loss_bound: Positive = 1.0
    temperature: Positive = 1.0
    noise_ratio: Positive = 25.0


class RoundsConfig(Section):
    """How thresholds are set, in how many rounds; see `inosgm.methods.pdp_sgd`.

    Attributes:
        count: How many rounds.
        waste: How the two wastes of a threshold are weighed: with a fixed weight, or adaptively.
        weight: The fixed weight of the first.
        restart: Train a new model in each round, and average what they say.
    """

    count: Count = 1
    waste: Literal["fixed", "adaptive"] = "fixed"
    weight: Share = 0.7
    restart: bool = False


class TeachersConfig(Section):
    """Who votes, and how often; see `inosgm.methods.ipate`. Both numbers decide how much noise there is for a vote.

    Attributes:
        count: How many teachers.
        queries: About how many public records they vote.
    """

    count: Count
    queries: Count


class PlanConfig(Section):
    """What the budgets buy; see `plan_sample`, `plan_scale`, `plan_blend` and `plan_uniform`, and the guide to methods.

    Attributes:
        method: How owners are told apart: by their rates, their sensitivities, both, or not at all; or one of the
            methods of the neighbouring papers.
        steps: How many steps.
        expected_batch: Expected number of records in a batch.
        clip_norm: Mean sensitivity of a record.
        weight: For a blend: 1 is sample, 0 is scale.
        accountant: Exact, or as in the papers.
        sampling: For asc and azb: each record tosses its coin, or batches of fixed sizes, without replacement, which is
            another unit of privacy.
        steering: For asc and azb: how shares follow losses.
        rounds: For thresholds.
        lasting: For individual, whose batches hold every record that has not left: the share of the steps that records
            last if they contribute their clip norm to each; 0.8 if not given. See `plan_individual`.
        leave_out: So many of the strictest budgets take no part.
        lower: Everyone lowers its budget by this share of what lies between it and the strictest.
        undersample: This share of the records of owners that grant more than the mean takes no part in a batch.
        teachers: For ipate_upsample and ipate_weight, whose teachers and student make the steps, without noise; other
            methods have none, so that a comparison can have one section for all.
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
        """Whether teachers vote, and a student learns from that."""
        return self.method in plan_methods(needing="teachers")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the section with these values; raise one line that names every problem."""
        try:
            return cls.model_validate(values)
        except ValidationError as refusal:
            raise ValueError("; ".join(problems(refusal, cls, ()))) from None

    def with_defaults(self) -> Self:
        """Return the section with `steering` and `rounds` filled in, as methods read it."""
        steering = self.steering or SteeringConfig()
        if steering.every is None:
            steering = steering.model_copy(update={"every": max(1, self.steps // UPDATES)})
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
    """What is made small.

    Attributes:
        name: A class of `torch.nn`, or "package.module:Class" of your own, which gives one number per record.
        options: What it takes.
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
    """Which optimizer.

    Attributes:
        name: A class of `torch.optim`, or "package.module:Class" of your own.
        lr: The learning rate.
        options: What else it takes.
    """

    name: str
    lr: Positive
    options: Options = Field(default_factory=dict)


class ScheduleConfig(Section):
    """Which learning-rate schedule, counted in steps.

    Attributes:
        name: A class of `torch.optim.lr_scheduler`, or "package.module:function" of your own, given the optimizer.
        options: What else it takes.
    """

    name: str
    options: Options = Field(default_factory=dict)


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
