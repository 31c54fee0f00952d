"""The command that runs commands written in a YAML file."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from inosgm.cli.options import QuietOption, Voice
from inosgm.cli.supervised import without_key


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="YAML: the name of a command, then its options by their long names.")],
    quiet: QuietOption = False,
) -> None:
    """Run commands that are written in a YAML file, one after the other, in the order in which they are written.

    Everything in the file is checked before the first one begins. The first that fails is the last that is run, and its
    exit code is that of all. Running the file again pays for nothing twice: a question that other commands follow needs
    a store.
    """
    from inosgm.cli.written import read

    root = context.find_root()
    written = read(file, root)
    contexts = [one.command.make_context(one.path[-1], list(one.words), parent=root) for one in written]
    voice = Voice(as_json=True, quiet=quiet)  # this goes to stderr, what commands say to stdout
    for one, inner in zip(written, contexts, strict=True):
        voice.tell(f"$ {shlex.join(['inosgm', *one.path, *map(without_key, one.words)])}")
        with inner:
            one.command.invoke(inner)
