"""What commands print, and how they end: with 130 if interrupted, with 1 if a job has failed."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import typer


@dataclass(frozen=True, kw_only=True)
class Output:
    """How a command prints: its result goes to stdout, and so do its notes unless the result is JSON.

    Attributes:
        as_json: Whether the result is JSON.
        quiet: Whether notes are left out.
    """

    as_json: bool = False
    quiet: bool = False

    def note(self, line: str) -> None:
        """Print something that is not the result."""
        if not self.quiet:
            typer.echo(line, err=self.as_json)

    def result(
        self,
        text: Callable[[], str],
        values: Callable[[], Mapping[str, Any]],
        *,
        kept: str = "the same command shows the result",
    ) -> None:
        """Print the result, for people or for machines: only one of both is made.

        If stdout cannot be written to (its reader has ended, its disk is full), the command ends with 1.

        Args:
            text: Makes the result for people.
            values: Makes the result for machines.
            kept: How to see the result later. A result that is kept nowhere, and was paid for, goes to stderr if
                stdout cannot be written to.
        """
        printed = json.dumps(_finite(values()), allow_nan=False) if self.as_json else text()
        try:
            typer.echo(printed)
        except OSError as error:
            discard(1)
            if kept and isinstance(error, BrokenPipeError):  # `| head` has read all that it wants
                raise typer.Exit(1) from None
            instead = kept or f"the result, which was paid for, is\n{printed}"
            typer.echo(f"error: stdout cannot be written to ({(error.strerror or '').lower()}): {instead}", err=True)
            raise typer.Exit(1) from None


def discard(stream: int) -> None:
    """Redirect a stream that failed to the null device: Python writes to it once more when it ends, and would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _finite(value: Any) -> Any:
    """Return values with null for numbers that JSON does not have: a result that was paid for is printed anyway."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


@contextmanager
def interruptible(message: Callable[[int], str]) -> Iterator[None]:
    """End the command with 130 if its jobs, or its work in this process, are interrupted.

    Args:
        message: Returns what to print, given the number of jobs that remain (0 for work in this process).
    """
    from inosgm.jobs import Interrupted

    try:
        yield
    except KeyboardInterrupt as stop:
        remaining = len(stop.outcome.left) if isinstance(stop, Interrupted) else 0
        typer.echo(f"interrupted: {message(remaining)}", err=True)
        raise typer.Exit(130) from None


def interruptible_runs(runs: int, store: str) -> AbstractContextManager[None]:
    """End the command with 130 if its runs are interrupted, and print how many remain."""
    return interruptible(lambda left: f"{left} of {runs} runs remain in {store}; the same command resumes them")


def print_failures(failed: Sequence[str], store: str) -> None:
    """Print which runs failed permanently."""
    for line in failed:
        typer.echo(f"failed: {line}", err=True)
    if failed:
        typer.echo(f"why, in full: inosgm jobs status {store} --tracebacks", err=True)


def end_if_failed(failed: Sequence[str], store: str) -> None:
    """Print which runs failed permanently, and end the command with 1 if any did."""
    print_failures(failed, store)
    if failed:
        raise typer.Exit(1)
