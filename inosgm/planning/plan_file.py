"""The file format of a plan: flat keys, with the names that earlier versions had for the keys of variants."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from inosgm.accounting import Segment
from inosgm.accounting.units import RECORD
from inosgm.planning.choices import Choices
from inosgm.planning.variants import PlanMethod, Sampling, variant_of


class PastFile(BaseModel):
    """Steps that were done before the plan."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample_rates: list[float] | list[list[float]]
    noise_multipliers: list[float] | list[list[float]]
    steps: list[float]


class ChoicesFile(BaseModel):
    """The choices for a step."""

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
    menu: ChoicesFile | None = None
    beside: list["PlanFile"] = []
    sampling: Sampling = "poisson"
    allowance: list[float] | None = None
    unit_name: str = RECORD


VARIANT_KEYS = ("weight", "menu", "beside", "sampling", "allowance")
"""Keys of `PlanFile` that belong to the variant of a plan."""


def to_json(entries: dict[str, Any]) -> str:
    """Write the fields of a plan, without those that have their defaults."""
    return PlanFile(**_plain(entries)).model_dump_json(indent=2, exclude_defaults=True)


def _plain(entries: dict[str, Any]) -> dict[str, Any]:
    entries = dict(entries)
    entries |= entries.pop("variant").entries()
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
    choices = entries.get("menu")
    if choices is not None:
        plain["menu"] = {name: getattr(choices, name).tolist() for name in ChoicesFile.model_fields}
    plain["beside"] = [_plain(plan.entries()) for plan in entries.get("beside", ())]
    return plain


def from_json(text: str | bytes, make: Callable[..., Any]) -> Any:
    """Read a plan, which `make` makes from its fields, or raise for the first key that is wrong."""
    try:
        file = PlanFile.model_validate_json(text)
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(str(part) for part in found["loc"])
        raise ValueError(f"not the JSON text of a plan: {where + ': ' if where else ''}{found['msg']}") from None
    return _made(file, make)


def _made(file: PlanFile, make: Callable[..., Any]) -> Any:
    entries = {
        **dict(file),
        "past": [Segment(part.sample_rates, part.noise_multipliers, part.steps) for part in file.past],
        "menu": None if file.menu is None else Choices(**dict(file.menu)),
        "beside": [_made(plan, make) for plan in file.beside],
    }
    variant = variant_of(entries)
    return make(**{name: value for name, value in entries.items() if name not in VARIANT_KEYS}, variant=variant)
