"""An ordered sum as bytes: a plan or sensitivities, a tail and an order by name, and arrays."""

import io
import json
import zipfile
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from inosgm import orders, tails
from inosgm.orders import Order
from inosgm.plan import Plan
from inosgm.tails import Tail

_FORMAT = 1


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
        "tail": _named(tail, tails),
        "order": _named(order, orders),
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
        tail, order = _made(header["tail"], tails, Tail), _made(header["order"], orders, Order)
        return plan, arrays.pop("sensitivities"), tail, order, header, arrays
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(f"these bytes are not an ordered sum: {error}") from None


def _named(thing: Any, room: Any) -> dict[str, Any]:
    name = type(thing).__name__
    if getattr(room, name, None) is not type(thing) or not is_dataclass(thing):
        raise TypeError(f"only tails and orders of this package can be written, got {name}: pickle the sum instead")
    return {"name": name, "values": {field.name: getattr(thing, field.name) for field in fields(thing) if field.init}}


def _made(named: dict[str, Any], room: Any, kind: type) -> Any:
    made = getattr(room, named["name"])
    if not (isinstance(made, type) and issubclass(made, kind)):
        raise ValueError(f"{named['name']} is no {kind.__name__}")
    return made(**named["values"])
