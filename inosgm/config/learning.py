"""What is trained, with what, and how often it is looked at."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from inosgm.config.section import Count, Options, Positive, Section, Share


class ModelConfig(Section):
    """Which model.

    Attributes:
        name: A name of `inosgm.sgd.models`, or "package.module:function" of your own.
        options: What else that model takes.
    """

    name: str
    options: Options = Field(default_factory=dict)


class TeachersConfig(Section):
    """The teachers of IPATE; see `inosgm.ipate`.

    Attributes:
        count: How many there are.
        queries: How many public records they label for the student.
    """

    count: Count
    queries: Count


class PlanConfig(Section):
    """What the budgets buy; see `plan_sample`, `plan_scale`, `plan_blend` and `plan_uniform`.

    Attributes:
        method: How owners are told apart: by their rates, their sensitivities, both, or not at all.
        steps: How many steps.
        expected_batch: Expected number of records in a batch.
        clip_norm: Mean sensitivity of a record.
        weight: For a blend: 1 is sample, 0 is scale.
        accountant: Exact, or as in the papers.
        teachers: For IPATE, whose teachers and student make so many steps with batches so large, without noise.
    """

    method: Literal["sample", "scale", "blend", "uniform", "ipate_upsample", "ipate_weight"]
    steps: Count
    expected_batch: Positive
    clip_norm: Positive
    weight: Annotated[Share | None, Field(validate_default=True)] = None
    accountant: Literal["pld", "rdp"] = "pld"
    teachers: TeachersConfig | None = None

    @property
    def by_votes(self) -> bool:
        """Whether teachers vote, and a student learns from that: IPATE."""
        return self.method.startswith("ipate")

    @field_validator("weight")
    @classmethod
    def _of_a_blend(cls, weight: float | None, info: Any) -> float | None:
        if "method" in info.data and (info.data["method"] == "blend") != (weight is not None):
            raise ValueError("must be given for the method blend, and only for that")
        return weight


class LossConfig(Section):
    """What is made small.

    Attributes:
        name: A class of `torch.nn`, or "package.module:Class" of your own, which gives one number per record.
        options: What it takes.
    """

    name: str = "CrossEntropyLoss"
    options: Options = Field(default_factory=dict)


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
