"""Commands in a YAML file: what is written there, as the words of a command line."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from inosgm._internal import yaml as _yaml

FORM = "must be the name of a command, then its options: train: {file: run.yaml, seeds: 5}"
PAID_AGAIN = (
    "missing: if a later command fails and the file is run again, this question would be asked, and paid for, again"
)
NOT_WRITTEN = ("run",)
"""Commands that a file cannot hold."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """A command in a file.

    Attributes:
        path: Its name, after the names of the groups that it is in.
        command: The command.
        words: What would follow its name on a command line.
    """

    path: tuple[str, ...]
    command: Any
    words: tuple[str, ...]


def read(file: Path, context: Any) -> list[Written]:
    """Return the commands of a file, in the order in which they are written.

    Args:
        file: A mapping from commands to their options, or a list of such mappings.
        context: That of the group of all commands.

    Raises:
        ValueError: listing all that is wrong, each with the path of its key.
        OSError: for a file that cannot be read.
    """
    try:
        values = _yaml.read(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{file}: must be YAML, text in UTF-8") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    problems: list[str] = []
    parts = values if isinstance(values, list) else [values]
    found = [one for part in parts for one in _commands(context, context.command, (), part, problems)]
    problems += [_at((*one.path, "store"), PAID_AGAIN) for one in found[:-1] if one.path[0] == "stats" and _unkept(one)]
    if problems or not found:
        lines = problems or [FORM]
        if len(lines) == 1:
            raise ValueError(f"{file}: {lines[0]}")
        raise ValueError("\n  ".join([f"{file} has {len(lines)} problems:", *lines]))
    return found


def _commands(context: Any, group: Any, path: tuple[str, ...], written: Any, problems: list[str]) -> Iterator[Written]:
    """Yield the commands of a group that are written in a mapping, and enter what is wrong."""
    if not isinstance(written, Mapping):
        problems.append(_at(path, f"must be a mapping of commands to options, got {written!r}") if path else FORM)
        return
    known = [name for name in group.list_commands(context) if name not in NOT_WRITTEN]
    for name, options in written.items():
        here, command = (*path, str(name)), group.get_command(context, name) if name in known else None
        if command is None:
            problems.append(_at(here, _unknown("command", str(name), known)))
        elif hasattr(command, "list_commands"):
            yield from _commands(context, command, here, options, problems)
        else:
            words = _words(context, command, here, {} if options is None else options, problems)
            yield Written(path=here, command=command, words=tuple(words))


def _words(context: Any, command: Any, path: tuple[str, ...], written: Any, problems: list[str]) -> list[str]:
    """Return the words of a command, and enter what is wrong with its options."""
    if not isinstance(written, Mapping):
        problems.append(_at(path, f"must be a mapping of options to values, got {written!r}"))
        return []
    parameters = {name: one for one in command.params for name in _names(one) if name != "help"}
    options: list[str] = []
    arguments: list[str] = []
    meant: list[str] = []
    given: dict[str, str] = {}
    for key, value in written.items():
        name = str(key).replace("_", "-")
        if name not in parameters:
            problems.append(_at((*path, str(key)), _unknown("option", name, list(parameters))))
            meant += get_close_matches(name, parameters, n=1)
            continue
        one = parameters[name]
        if one.name in given:
            problems.append(_at((*path, str(key)), f"is there twice: {given[one.name]} is the same"))
        given[one.name] = str(key)
        try:
            texts = [] if value is None else _texts(one, value)
            _check(context, one, value, texts)
        except ValueError as error:
            problems.append(_at((*path, str(key)), str(error)))
        else:
            if one.param_type_name == "argument":
                arguments += texts
            else:
                options += [_option(one, text) for text in texts]
    needed = {one.name: name for name, one in parameters.items() if one.required and one.name not in given}
    problems += [_at((*path, name), "missing") for name in needed.values() if name not in meant]
    return [*options, *(["--", *arguments] if any(word.startswith("-") for word in arguments) else arguments)]


def _unkept(question: Written) -> bool:
    return not any(word.startswith("--store=") for word in question.words)


def _names(parameter: Any) -> list[str]:
    """Return what an option or an argument is called in a file: long names, without dashes before them."""
    if parameter.param_type_name == "argument":
        return [parameter.name.replace("_", "-")]
    return [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]


def _texts(parameter: Any, value: Any) -> list[str]:
    """Return a value as words, one for each time that an option is given; of a flag, none or an empty one."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, got {value!r}")
        return [""] * value
    if isinstance(value, Mapping):
        if not _several(parameter):
            raise ValueError(f"must be a value, got the mapping {value!r}")
        return [f"{key}={_set(part, spread='--set' not in parameter.opts)}" for key, part in value.items()]
    if isinstance(value, list):
        texts = [_text(part) for row in value for part in (row if isinstance(row, list) else [row])]
        return texts if _several(parameter) else [",".join(texts)]
    return [_text(value)]


def _text(value: Any) -> str:
    """Return a value as it is typed."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be text or a number, got {value!r}")
    return json.dumps(value)


def _set(value: Any, *, spread: bool) -> str:
    """Return what follows the sign in `--grid KEY=...`: YAML, and with `spread` the values of a list, by commas."""
    if isinstance(value, list) and spread:
        return ",".join(map(json.dumps, value))
    plain = isinstance(value, str) and _yaml.read(value) == value
    return str(value) if plain else json.dumps(value)


def _check(context: Any, parameter: Any, value: Any, texts: Sequence[str]) -> None:
    """Raise if words cannot be what the option wants."""
    if not texts or getattr(parameter, "is_flag", False):
        return
    several = _several(parameter)
    try:
        made = parameter.process_value(context, list(texts) if several else texts[0])
    except typer.BadParameter as refusal:
        rule = " ".join(refusal.message.split()).rstrip(".")
        raise ValueError(f"{rule[:1].lower()}{rule[1:]}, got {value!r}") from None
    if isinstance(value, list) and not several and not isinstance(made, str):
        raise ValueError(f"must be one value, got the list {value!r}")


def _several(parameter: Any) -> bool:
    return getattr(parameter, "multiple", False) or parameter.nargs != 1


def _option(parameter: Any, text: str) -> str:
    name = next(name for name in parameter.opts if name.startswith("--"))
    return name if parameter.is_flag else f"{name}={text}"


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"unknown {what}; " + (f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}")


def _at(path: Sequence[str], problem: str) -> str:
    return f"{'.'.join(path)}: {problem}" if path else problem
