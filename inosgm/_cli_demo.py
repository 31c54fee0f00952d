"""The command that shows what the library does."""

from pathlib import Path
from typing import Annotated

import typer

from inosgm._cli_seeds import AddressOption, ProcessesOption, executor_of
from inosgm._cli_training import QuietOption


def demo(
    output: Annotated[Path, typer.Option("--output", help="Where everything is kept.")] = Path("demo"),
    processes: ProcessesOption = None,
    address: AddressOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compare DP-SGD, IDP-SGD and INO-SGD on real data, attack what was promised, and write a page about it.

    Ten owners hold the digits of 5,000 MNIST images and grant epsilon 0.5 to 5. It trains on a Ray of its own unless
    --processes or --address say otherwise. The same command goes on with a demonstration that was stopped.
    """
    from inosgm.demo import run

    def tell(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    executor = executor_of(processes, "local" if processes is None and address is None else address)
    table = run(output, executor, progress=not quiet, tell=tell)
    typer.echo(table)
    typer.echo(f"written to {output / 'report.html'}")
