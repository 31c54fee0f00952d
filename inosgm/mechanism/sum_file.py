"""An ordered sum as bytes: a plan or sensitivities, a tail and an order by name, and arrays."""

import io
import json
import zipfile
from dataclasses import fields
from typing import Any

import numpy as np

from inosgm.mechanism.orders import Ascending, Descending, Order, OwnerFirst, RandomOrder
from inosgm.mechanism.tails import BetaTail, HardTail, LinearTail, NoTail, StepTail, TableTail, Tail
from inosgm.planning.plan import Plan

_FORMAT = 1

# Names of the file format: they stay as they are, whatever classes and modules are called.
_TAILS: dict[str, type[Tail]] = {
    "NoTail": NoTail,
    "LinearTail": LinearTail,
    "HardTail": HardTail,
    "StepTail": StepTail,
    "BetaTail": BetaTail,
    "TableTail": TableTail,
}
_ORDERS: dict[str, type[Order]] = {
    "Descending": Descending,
    "Ascending": Ascending,
    "RandomOrder": RandomOrder,
    "OwnerFirst": OwnerFirst,
}


def written(
    plan: Plan | None,
    sensitivities: np.ndarray,
    tail: Tail,
    order: Order,
    about: dict[str, Any],
    arrays: dict[str, np.ndarray],
) -> bytes:
    """Return everything as a zip file: the same bytes for the same things.

    Raises:
        TypeError: for a tail or an order that is not one of this package.
    """
    header = {
        "format": _FORMAT,
        "plan": None if plan is None else json.loads(plan.to_json()),
        "tail": _named(tail, _TAILS),
        "order": _named(order, _ORDERS),
        **about,
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo("sum.json"), json.dumps(header, sort_keys=True))
        for name, array in {"sensitivities": sensitivities, **arrays}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


def read(
    content: bytes,
) -> tuple[Plan | None, np.ndarray, Tail, Order, dict[str, Any], dict[str, np.ndarray]]:
    """Read what was written.

    Raises:
        ValueError: for anything else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            header = json.loads(archive.read("sum.json"))
        if header["format"] != _FORMAT:
            raise ValueError(f"it has format {header['format']}, and this version knows {_FORMAT}")
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files if name != "sum.json"}
        plan = None if header["plan"] is None else Plan.from_json(json.dumps(header["plan"]))
        tail, order = _made(header["tail"], _TAILS), _made(header["order"], _ORDERS)
        return plan, arrays.pop("sensitivities"), tail, order, header, arrays
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(f"these bytes are not an ordered sum: {error}") from None


def _named(thing: Any, known: dict[str, Any]) -> dict[str, Any]:
    name = next((name for name, kind in known.items() if kind is type(thing)), None)
    if name is None:
        raise TypeError(
            f"only tails and orders of this package can be written, got {type(thing).__name__}: pickle the sum instead"
        )
    return {"name": name, "values": {field.name: getattr(thing, field.name) for field in fields(thing) if field.init}}


def _made(named: dict[str, Any], known: dict[str, Any]) -> Any:
    if named["name"] not in known:
        raise ValueError(f"{named['name']!r} is none of {', '.join(known)}")
    return known[named["name"]](**named["values"])
