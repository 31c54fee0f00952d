"""`inosgm demo`: a demonstration on real data."""

from pathlib import Path
from typing import Annotated

import typer

from inosgm.cli.options import AddressOption, JsonOption, ProcessesOption, QuietOption, executor_of
from inosgm.cli.output import Output
from inosgm.cli.report import show


def demo(
    output: Annotated[Path, typer.Option("--output", help="Where everything is kept.")] = Path("demo"),
    processes: ProcessesOption = None,
    address: AddressOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare DP-SGD, IDP-SGD, INO-SGD and adjusted INO-SGD on real data, attack the guarantees, and write a page.

    Ten owners hold a digit each of 4,000 MNIST images and grant epsilon 0.1 to 2. It trains on a Ray of its own unless
    --processes or --address is given. The same command resumes a demonstration that was stopped.
    """
    from inosgm.cli.demonstration import PAGE, run

    executor = executor_of(processes, "local" if processes is None and address is None else address)
    out = Output(as_json=as_json, quiet=quiet)
    contents = run(output, executor, progress=not quiet, tell=out.note)
    show(contents, output / PAGE, quiet=quiet, as_json=as_json)
