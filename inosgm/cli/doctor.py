"""The command that says what is installed, found and reachable."""

from typing import TYPE_CHECKING

import typer

from inosgm.cli.options import DataOption, JsonOption, QuietOption, Voice

if TYPE_CHECKING:
    from inosgm.cli.checks import Finding

SIGNS = {"good": typer.style("✓", fg="green"), "absent": typer.style("-", fg="yellow")} | {
    "bad": typer.style("✗", fg="red", bold=True)
}


def doctor(data_dir: DataOption = None, quiet: QuietOption = False, as_json: JsonOption = False) -> None:
    """Say what is installed, which devices, data and Ray are there; exit code 1 if something needed is missing.

    Nothing is started, downloaded or left behind.
    """
    from inosgm.cli.checks import State, examine

    found = examine(data_dir)
    bad = [one.name for one in found if one.state is State.bad]
    voice = Voice(as_json=as_json, quiet=quiet)
    voice.result(lambda: _table(found), lambda: {"missing": bad, "findings": [one.to_dict() for one in found]})
    voice.tell(f"{len(bad)} to be mended: {', '.join(bad)}" if bad else "nothing that is needed is missing")
    if bad:
        raise typer.Exit(1)


def _table(found: "list[Finding]") -> str:
    """Return a line for each finding, under the name of its part."""
    width = max(len(one.name) for one in found)
    lines: list[str] = []
    part = ""
    for one in found:
        if one.part != part:
            part = one.part
            lines += [*[""] * bool(lines), typer.style(part, bold=True)]
        lines.append(f"  {SIGNS[one.state]} {one.name:<{width}}  {one.about}")
    return "\n".join(lines)
