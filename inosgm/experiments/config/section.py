"""The base class of all sections of a configuration, and the types of their values."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """A part of a configuration: frozen; unknown keys are refused, and text such as "3" is not a number."""

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
