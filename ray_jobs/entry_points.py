"""Entry points for a cluster: commands of `inosgm` that always work on Ray, with the options of the command."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from inosgm.cli.options import ANY_RAY

ADDRESS = Annotated[
    str | None, typer.Option(help="Where Ray is; else RAY_ADDRESS, one that runs here, or one that is started: local.")
]
STORE = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Where jobs are kept: a path that all nodes see, or a URI such as s3://bucket/runs; else runs/NAME-...",
    ),
]


def on_ray(command: Callable[..., None], *, without: tuple[str, ...] = (), **defaults: Any) -> Callable[..., None]:
    """Return a command that works on Ray, whether or not --address is given.

    Args:
        command: A command of `inosgm` that takes --address and --store.
        without: Options that it has not; --processes is one in any case.
        defaults: Defaults that differ.
    """
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in ("processes", *without):
            parameters.append(
                parameter.replace(
                    kind=inspect.Parameter.KEYWORD_ONLY,
                    annotation={"address": ADDRESS, "store": STORE}.get(name, parameter.annotation),
                    default=defaults.get(name, parameter.default),
                )
            )
    left_out = dict.fromkeys(("processes", *without))

    def run(**given: Any) -> None:
        command(**left_out | given | {"address": given["address"] or ANY_RAY})

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.__doc__
    return run


def application(command: Callable[..., None]) -> typer.Typer:
    """Return the program of one command."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return app
