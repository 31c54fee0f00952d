"""The look of help texts: options in panels by purpose, one style of placeholders, no type behind a flag."""

from typing import Any

INPUT = "data-dir set budgets owner-column column columns of where missing by keys rows-in-order target bounds edges"
PRIVACY = (
    "method methods steps expected-batch clip-norm weight accountant delta share ledger stratified assume-alike "
    "add-owners"
)
OUTPUT = "output run store json quiet title figures confidence dry-run tracebacks"
EXECUTION = "seed seeds processes address num-cpus num-gpus max-concurrent attempts workers"

PANELS = {"Input": INPUT, "Privacy": PRIVACY, "Output": OUTPUT, "Execution": EXECUTION}
"""Names of options by panel, in the order of the help. Any other option is in the panel Options, below them."""

PLACEHOLDERS = {"int": "N", "float": "X", "str": "TEXT"}
"""What stands for a value in a help text, by its type."""

_PANEL_OF = {f"--{name}": panel for panel, names in PANELS.items() for name in names.split()}


def dress(command: Any, ctx: Any) -> Any:
    """Return a command whose options, and those of its subcommands, have panels and placeholders."""
    options = [param for param in command.params if param.param_type_name == "option"]
    for param in options:
        if param.rich_help_panel is None:
            param.rich_help_panel = next((_PANEL_OF[name] for name in param.opts if name in _PANEL_OF), None)
        if param.metavar is None:
            param.metavar = "" if param.is_flag else _placeholder(param)
    order = [*PANELS, None]
    command.params.sort(key=lambda param: order.index(param.rich_help_panel) if param in options else -1)
    command.get_help_option(ctx).metavar = ""
    for child in getattr(command, "commands", {}).values():
        dress(child, ctx)
    return command


def _placeholder(param: Any) -> str | None:
    """Return what stands for a value of an option; None for choices, which are listed."""
    kind = param.type_descriptor
    if kind.is_choice:
        return None
    if kind.is_path:
        return "PATH"
    name: str = kind.ranged_type_name if kind.is_ranged else param.bare_type()
    return PLACEHOLDERS.get(name.removeprefix("list[").removesuffix("]"), name.upper())
