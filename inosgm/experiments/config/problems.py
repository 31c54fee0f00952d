"""Messages about invalid configurations: the path of the key, the rule, the value."""

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
    """Put the path of a key before the message of an error."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{key}: {error}") from error


def problems(refusal: ValidationError, model: type[BaseModel], unions: Sequence[str]) -> list[str]:
    """Return one line for every problem; `unions` are the top-level keys whose section has several forms."""
    messages: list[tuple[list[str], str]] = []
    meant: set[tuple[str, ...]] = set()
    for error in refusal.errors():
        path = [str(key) for key in error["loc"]]
        form = path.pop(1) if len(path) > 1 and path[0] in unions else None
        if error["type"] in ("extra_forbidden", "invalid_key"):
            known = _keys(model, path[:-1], form)
            close = get_close_matches(path[-1], known, n=1)
            meant |= {(*path[:-1], name) for name in close}
            close = close or _elsewhere(model, path)[:3]  # more suggestions than that do not help
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
            messages.append((path, f"unknown key; {hint}"))
        elif error["type"] == "union_tag_invalid" or (
            error["type"] == "union_tag_not_found" and isinstance(error["input"], dict)
        ):
            messages.append(([*path, "kind"], _rule(error)))
        else:
            messages.append((path, _rule(error)))
    lines = [f"{'.'.join(path)}: {text}" for path, text in messages if text != "missing" or tuple(path) not in meant]
    return list(dict.fromkeys(lines))


def _rule(error: Any) -> str:
    """Return the rule that a value violates, and the value."""
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


def _keys(model: type[BaseModel], path: Sequence[str], form: str | None) -> list[str]:
    """Return the keys of the section with a path."""
    models = [model]
    for key in path:
        models = [inner for outer in models if key in outer.model_fields for inner in sections(outer.model_fields[key])]
    if form is not None:
        models = [section for section in models if form in _forms(section)] or models
    return list(dict.fromkeys(key for section in models for key in section.model_fields))


def _elsewhere(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Return the paths of keys of the same name in other sections."""
    others = (other.split(".") for other in paths(model))
    return [".".join(other) for other in others if other[-1] == path[-1] and other[0] != path[0]]


def sections(field: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that a key may hold."""
    waiting = [field.annotation if hasattr(field, "annotation") else field]
    while waiting:
        annotation = waiting.pop(0)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        else:
            waiting += [inner for inner in getattr(annotation, "__args__", ()) if inner is not None]


def paths(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Yield the path of every key once, with those of every form of a section."""
    for name, field in model.model_fields.items():
        yield f"{before}{name}"
        inside = (path for inner in sections(field) for path in paths(inner, f"{before}{name}."))
        yield from dict.fromkeys(inside)


def _forms(model: type[BaseModel]) -> tuple[str, ...]:
    """Return what distinguishes this form from others: the value of `kind`, or the name of its first key."""
    kind = model.model_fields.get("kind")
    return kind.annotation.__args__ if kind is not None else (next(iter(model.model_fields)),)  # type: ignore[union-attr]
