"""What a plan looks like in a file."""

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from inosgm.accounting import Segment

Method = Literal["sample", "scale", "blend", "uniform"]


class PastFile(BaseModel):
    """Steps that were done before the plan."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample_rates: list[float]
    noise_multipliers: list[float]
    steps: list[float]


class PlanFile(BaseModel):
    """The fields of a plan; lists instead of arrays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample_rates: list[float]
    sensitivities: list[float]
    sizes: list[int]
    noise_scale: float
    steps: int
    expected_batch: float | None = None
    labels: list[str | int] | None = None
    epsilon: list[float] | None = None
    delta: list[float] | None = None
    accountant: str | None = None
    method: Method | None = None
    weight: float | None = None
    past: list[PastFile] = []


def to_json(entries: dict[str, Any]) -> str:
    """Write the fields of a plan, without those that are not set."""
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in entries.items()}
    plain["labels"] = list(entries["labels"])
    plain["past"] = [
        {
            "sample_rates": segment.sample_rate.tolist(),
            "noise_multipliers": segment.noise_multiplier.tolist(),
            "steps": segment.steps.tolist(),
        }
        for segment in entries["past"]
    ]
    return PlanFile(**plain).model_dump_json(indent=2, exclude_defaults=True)


def from_json(text: str | bytes) -> dict[str, Any]:
    """Read the fields of a plan, or say which of them is wrong."""
    try:
        file = PlanFile.model_validate_json(text)
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(str(part) for part in found["loc"])
        raise ValueError(f"not the JSON text of a plan: {where + ': ' if where else ''}{found['msg']}") from None
    past = [Segment(part.sample_rates, part.noise_multipliers, part.steps) for part in file.past]
    return {**dict(file), "past": past}
