"""What users import keeps its name, its arguments and its methods: compared with `public_names.json`.

Names, arguments with a default and methods may be added, and arguments may become optional. What is there may not go,
be renamed or change its default. Types of arguments are left to mypy, because their text holds the paths of modules,
which may change. Where something
is to go all the same, the changelog says so, and the snapshot is written anew:

    PYTHONPATH=$PWD:$PWD/tests python -m nets.test_public_names > tests/nets/public_names.json
"""

import dataclasses
import importlib
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from nets import bits

PACKAGES = (
    "inosgm",
    "inosgm.accounting",
    "inosgm.datasets",
    "inosgm.statistics",
    "inosgm.audit",
    "inosgm.jobs",
    "ray_jobs",
)
SNAPSHOT = Path(__file__).with_name("public_names.json")


def names_of(package):
    """Return the public names of a package: what it lists, and what `dir` says where names are resolved lazily."""
    module = importlib.import_module(package)
    lazy = module.__dir__() if "__dir__" in vars(module) else ()
    names = {*module.__all__, *(name for name in lazy if not name.startswith("_"))}
    found = {name: getattr(module, name) for name in sorted(names)}
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def described(value):
    """Return what users may rely on in something public, as JSON has it."""
    if inspect.isclass(value):
        found = {"kind": "class", "parameters": parameters_of(value), "members": members_of(value)}
        if issubclass(value, BaseException):
            found["caught as"] = [
                kind.__name__ for kind in value.__mro__[1:] if kind.__module__ == "builtins" and kind is not object
            ]
        return found
    if isinstance(value, dict):
        return {"kind": "dict", "entries": sorted(map(str, value))}
    if isinstance(value, tuple | list | frozenset | set):
        return {"kind": type(value).__name__, "entries": sorted(map(str, value))}
    if callable(value):
        return {"kind": "function", "parameters": parameters_of(value)}
    return {"kind": type(value).__name__}


def members_of(kind):
    """Return methods, properties and fields of a class that it or a base of these packages defines."""
    found = {}
    for name in dir(kind):
        home = next((base for base in kind.__mro__ if name in vars(base)), None)
        if name.startswith("_") or home is None or home.__module__.partition(".")[0] not in ("inosgm", "ray_jobs"):
            continue
        value = inspect.getattr_static(kind, name)
        if isinstance(value, classmethod | staticmethod):
            found[name] = {"kind": type(value).__name__, "parameters": parameters_of(getattr(kind, name))}
        elif inspect.isfunction(value):
            found[name] = {"kind": "method", "parameters": parameters_of(value)[1:]}
        else:
            found[name] = {"kind": "attribute"}  # a property or a field: it is read in the same way
    fields = [entry.name for entry in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for name in (*fields, *getattr(kind, "model_fields", ())):
        if not name.startswith("_"):
            found[name] = {"kind": "attribute"}
    return dict(sorted(found.items()))


def parameters_of(function):
    """Return name, kind and default of every parameter."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # made in C
        return []
    return [
        [one.name, one.kind.name, None if one.default is one.empty else default_of(one.default)]
        for one in found
        if not one.name.startswith("_")
    ]


def default_of(value):
    """Return the text of a default, without addresses and paths of modules."""
    text = value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)
    return re.sub(r" at 0x[0-9a-f]+|\b(inosgm|ray_jobs)(\.\w+)*\.", "", text)


def public_names():
    """Return everything that users may rely on, by package."""
    return {package: {name: described(value) for name, value in names_of(package).items()} for package in PACKAGES}


def broken(before, now, where):
    """Yield a sentence about everything that was there and is not any more, or is something else."""
    if before["kind"] != now["kind"]:
        yield f"{where} was a {before['kind']}, and is a {now['kind']}"
        return
    for name in before.get("entries", ()):
        if name not in now["entries"]:
            yield f"{where} has no entry {name!r} any more"
    for name in before.get("caught as", ()):
        if name not in now["caught as"]:
            yield f"{where} is no {name} any more, so `except {name}` does not catch it"
    yield from broken_parameters(before.get("parameters", []), now.get("parameters", []), where)
    for name, member in before.get("members", {}).items():
        if name not in now["members"]:
            yield f"{where}.{name} is gone ({member['kind']})"
        else:
            yield from broken(member, now["members"][name], f"{where}.{name}")


def broken_parameters(before, now, where):
    """Yield a sentence about every call that worked and does not any more, or means something else."""
    known = {name: (kind, default) for name, kind, default in now}
    for name, kind, default in before:
        if name not in known:
            yield f"{where} has no argument {name!r} any more"
        elif known[name] != (kind, default) and (default is not None or known[name][0] != kind):
            was, found = (
                f"{one[0].lower().replace('_', ' ')}, default {one[1]}" for one in ((kind, default), known[name])
            )
            yield f"the argument {name!r} of {where} was {was}, and is {found}"
    by_position = [name for name, kind, _ in before if kind.startswith("POSITIONAL")]
    if by_position != [name for name, kind, _ in now if kind.startswith("POSITIONAL")][: len(by_position)]:
        yield f"{where} takes its arguments in another order than {', '.join(by_position)}"
    for name, kind, default in now:
        if default is None and not kind.startswith("VAR") and name not in {name for name, _, _ in before}:
            yield f"{where} has a new argument {name!r}, which must be given"


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_public_is_missing(package):
    before = json.loads(SNAPSHOT.read_bytes())[package]
    now = {name: described(value) for name, value in names_of(package).items()}
    found = [f"{package}.{name} is gone (a {before[name]['kind']})" for name in before if name not in now]
    for name in before.keys() & now.keys():
        found += broken(before[name], now[name], f"{package}.{name}")
    if found:
        pytest.fail("\n".join([f"{len(found)} things that users rely on have changed:", *sorted(found)]), pytrace=False)


def _before(a, b=1, *, c=2):
    """Stands for something public."""


def _other_name(a, d=1, *, c=2): ...
def _other_default(a, b=2, *, c=2): ...
def _required(a, b=1, *, c=2, d): ...
def _other_order(b=1, a=None, *, c=2): ...
def _keyword_only(a, *, b=1, c=2): ...
def _more(a, b=1, *, c=2, d=3): ...
def _optional(a=None, b=1, *, c=2): ...


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (_other_name, "f has no argument 'b' any more"),
        (_other_default, "the argument 'b' of f was positional or keyword, default 1, and is positional or keyword, "),
        (_required, "f has a new argument 'd', which must be given"),
        (_other_order, "f takes its arguments in another order than a, b"),
        (_keyword_only, "the argument 'b' of f was positional or keyword, default 1, and is keyword only, default 1"),
        (_more, None),
        (_optional, None),
        (42, "f was a function, and is a int"),
    ],
)
def test_a_change_is_told_in_a_sentence(now, sentence):
    found = list(broken(described(_before), described(now), "f"))
    assert not found if sentence is None else any(line.startswith(sentence) for line in found)


def test_a_method_that_goes_and_an_error_that_is_no_longer_caught_are_told():
    class Before(ValueError):
        __module__ = "inosgm"

        def shown(self): ...

    class Now(KeyError):
        __module__ = "inosgm"

    assert list(broken(described(Before), described(Now), "Error")) == [
        "Error is no ValueError any more, so `except ValueError` does not catch it",
        "Error.shown is gone (method)",
    ]


if __name__ == "__main__":
    print(bits.text_of(public_names()))
