"""Problems of a configuration in plain words: the path of the key, the rule, the value."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

KINDS = {
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "string_type": "text",
    "tuple_type": "a list",
}
LIMITS = {"greater_than": ("gt", ">"), "greater_than_equal": ("ge", ">="), "less_than": ("lt", "<")} | {
    "less_than_equal": ("le", "<=")
}


@contextmanager
def about(key: str) -> Iterator[None]:
    """Put the path of a key before the message of what goes wrong."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{key}: {error}") from error


def problems(refusal: ValidationError, model: type[BaseModel], unions: Sequence[str]) -> list[str]:
    """Return every problem as one line; `unions` are the keys at the top whose content has several forms."""
    found: list[tuple[list[str], str]] = []
    meant: set[tuple[str, ...]] = set()
    for error in refusal.errors():
        place = [str(part) for part in error["loc"]]
        form = place.pop(1) if len(place) > 1 and place[0] in unions else None
        if error["type"] in ("extra_forbidden", "invalid_key"):
            known = _keys(model, place[:-1], form)
            close = get_close_matches(place[-1], known, n=1)
            meant |= {(*place[:-1], name) for name in close}
            close = close or _elsewhere(model, place)[:3]
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
            found.append((place, f"unknown key; {hint}"))
        elif error["type"] == "union_tag_invalid" or (
            error["type"] == "union_tag_not_found" and isinstance(error["input"], dict)
        ):
            found.append(([*place, "kind"], _rule(error)))
        else:
            found.append((place, _rule(error)))
    lines = [f"{'.'.join(place)}: {text}" for place, text in found if text != "missing" or tuple(place) not in meant]
    return list(dict.fromkeys(lines))


def _rule(error: Any) -> str:
    """Return what must be, and what is."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return str(context["error"])
    if kind in LIMITS:
        name, sign = LIMITS[kind]
        return f"must be {sign} {context[name]:g}, got {value!r}"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}, got {value!r}"
    if kind == "union_tag_invalid":
        return f"must be one of {context['expected_tags'].replace(chr(39), '')}, got {context['tag']!r}"
    if kind == "union_tag_not_found":
        return "missing" if isinstance(value, dict) else f"must be a mapping of keys to values, got {value!r}"
    if kind == "finite_number":
        return f"must be finite, got {value!r}"
    if kind in KINDS:
        return f"must be {KINDS[kind]}, got {value!r}"
    return f"{error['msg'][0].lower()}{error['msg'][1:]}, got {value!r}"


def _keys(model: type[BaseModel], place: Sequence[str], form: str | None) -> list[str]:
    """Return the keys that there are at a place."""
    models = [model]
    for part in place:
        models = [inner for one in models if part in one.model_fields for inner in sections(one.model_fields[part])]
    if form is not None:
        models = [one for one in models if form in _forms(one)] or models
    return list(dict.fromkeys(key for one in models for key in one.model_fields))


def _elsewhere(model: type[BaseModel], place: Sequence[str]) -> list[str]:
    """Return the paths of keys of this name in other sections."""
    found = (path.split(".") for path in paths(model))
    return [".".join(parts) for parts in found if parts[-1] == place[-1] and parts[0] != place[0]]


def sections(field: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that a key may hold."""
    waiting = [field.annotation if hasattr(field, "annotation") else field]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, type) and issubclass(one, BaseModel):
            yield one
        else:
            waiting += [part for part in getattr(one, "__args__", ()) if part is not None]


def paths(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Yield the paths of all keys, those of every form that a section may have, each once."""
    for name, field in model.model_fields.items():
        yield f"{before}{name}"
        found = (path for inner in sections(field) for path in paths(inner, f"{before}{name}."))
        yield from dict.fromkeys(found)


def _forms(model: type[BaseModel]) -> tuple[str, ...]:
    """Return what tells this form from others: the value of `kind`, or the name of its first key."""
    kind = model.model_fields.get("kind")
    return kind.annotation.__args__ if kind is not None else (next(iter(model.model_fields)),)  # type: ignore[union-attr]
