"""What a plan looks like in a file."""

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from inosgm.accounting import Segment
from inosgm.planning.choices import Menu

PlanMethod = Literal["sample", "scale", "blend", "uniform", "individual"]
Sampling = Literal["poisson", "without_replacement"]


class PastFile(BaseModel):
    """Steps that were done before the plan."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample_rates: list[float] | list[list[float]]
    noise_multipliers: list[float] | list[list[float]]
    steps: list[float]


class MenuFile(BaseModel):
    """What released values may choose among."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample_rates: list[list[float]]
    sensitivities: list[list[float]]


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
    method: PlanMethod | None = None
    weight: float | None = None
    past: list[PastFile] = []
    menu: MenuFile | None = None
    beside: list["PlanFile"] = []
    sampling: Sampling = "poisson"
    allowance: list[float] | None = None


def to_json(entries: dict[str, Any]) -> str:
    """Write the fields of a plan, without those that are not set."""
    return PlanFile(**_plain(entries)).model_dump_json(indent=2, exclude_defaults=True)


def _plain(entries: dict[str, Any]) -> dict[str, Any]:
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
    menu = entries["menu"]
    if menu is not None:
        plain["menu"] = {name: getattr(menu, name).tolist() for name in MenuFile.model_fields}
    plain["beside"] = [_plain({name: getattr(plan, name) for name in entries}) for plan in entries["beside"]]
    return plain


def from_json(text: str | bytes) -> dict[str, Any]:
    """Read the fields of a plan, or say which of them is wrong."""
    try:
        file = PlanFile.model_validate_json(text)
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(str(part) for part in found["loc"])
        raise ValueError(f"not the JSON text of a plan: {where + ': ' if where else ''}{found['msg']}") from None
    return _entries(file)


def _entries(file: PlanFile) -> dict[str, Any]:
    """Return the fields of a plan; those of plans beside it as such."""
    return {
        **dict(file),
        "past": [Segment(part.sample_rates, part.noise_multipliers, part.steps) for part in file.past],
        "menu": None if file.menu is None else Menu(**dict(file.menu)),
        "beside": [_entries(plan) for plan in file.beside],
    }
