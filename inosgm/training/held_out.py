"""Held-out records: who owns them, and that they are not those that are trained on."""

from collections.abc import Mapping
from typing import Any

from inosgm._internal.overlap import share_records
from inosgm.training.batches import is_data_set
from inosgm.training.collating import LABELS


def require_apart(data: tuple[Any, ...], held_out: Any) -> None:
    """Raise for held-out records that are training records: evaluations on them would be written down as public."""
    if held_out is not None and share_records(data, with_owners(held_out)[:-1]):
        raise ValueError(
            "held_out must hold no training records, and shares memory or entries of a data set with the data that is "
            "trained on: evaluations on held-out records are public. Hold some out before training, such as x[800:] "
            "beside x[:800]; evaluate(x, y) after training marks what it says about training records as private"
        )


def with_owners(held_out: Any) -> tuple[Any, ...]:
    """Return held-out data and, last, the owners of its records, or None."""
    given = held_out if isinstance(held_out, tuple) else (held_out,)
    owned = len(given) == 3 or (len(given) == 2 and _holds_targets(given[0]))
    return given if owned else (*given, None)


def _holds_targets(part: Any) -> bool:
    """Say whether records come with their targets, so that what is beside them are their owners."""
    return is_data_set(part) or (isinstance(part, Mapping) and any(name in part for name in LABELS))
