"""Sections of a configuration about the tail and the clipping."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from inosgm.experiments.config.section import Section, Share
from inosgm.mechanism.clipping import (
    LEAST_STABILITY,
    AutomaticClipping,
    Clipping,
    ClipToShare,
    PerSampleAdaptive,
    ScaleClipped,
)
from inosgm.mechanism.tails import BetaTail, HardTail, LinearTail, NoTail, StepTail, Tail
from inosgm.planning.plan import Plan


class NoTailConfig(Section):
    """No record is down-weighted: IDP-SGD, or DP-SGD if the plan is uniform."""

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


Stability = Annotated[float, Field(ge=LEAST_STABILITY)]


class AutomaticClippingConfig(Section):
    """`AutomaticClipping`."""

    kind: Literal["automatic"]
    stability: Stability = AutomaticClipping.stability

    def clipping(self) -> Clipping:
        """Return it."""
        return AutomaticClipping(self.stability)


class PerSampleAdaptiveConfig(Section):
    """`PerSampleAdaptive`."""

    kind: Literal["per_sample_adaptive"]
    stability: Stability = PerSampleAdaptive.stability

    def clipping(self) -> Clipping:
        """Return it."""
        return PerSampleAdaptive(self.stability)


ClippingConfig = ScaleClippedConfig | ClipToShareConfig | AutomaticClippingConfig | PerSampleAdaptiveConfig
