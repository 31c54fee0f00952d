"""The progress of jobs: a bar in a terminal, plain lines elsewhere."""

from datetime import timedelta
from time import monotonic
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from inosgm.jobs.work import Report

BLINK, PAUSE, MINUTE = 0.2, 2.0, 60.0
"""Seconds: between two looks of a bar, least and most between two lines."""


class JobProgress:
    """Shows how many jobs are done, have failed and are running, and the time left.

    Where there is no terminal, a line is written at the end, after every tenth of the jobs and after every minute, but
    else never within two seconds of another. It shows numbers only.

    Args:
        jobs: How many there are.
        enabled: False shows nothing.
        console: Where to show it; the error stream if not given.
    """

    def __init__(self, jobs: int, *, enabled: bool = True, console: Console | None = None) -> None:
        self._jobs, self._enabled = jobs, enabled
        self._console = Console(stderr=True) if console is None else console
        self._bar: Progress | None = None
        self._counts = self._shown = (-1, -1, -1)
        self._first: int | None = None
        self._began = self._shown_at = monotonic()

    def show(self, done: int, failed: int, running: int) -> None:
        """Show how many jobs are done, have failed, and are running."""
        self._first = done if self._first is None else self._first
        self._counts = (done, failed, running)
        waited = monotonic() - self._shown_at
        tenth = done * 10 // max(self._jobs, 1) > self._shown[0] * 10 // max(self._jobs, 1) or failed > self._shown[1]
        if waited >= BLINK if self._bar is not None else waited >= MINUTE or (waited >= PAUSE and tenth):
            self._draw()

    def ended(self, report: Report) -> None:
        """Print that an attempt failed; the numbers show everything else."""
        if report.status == "failed":
            self.say(f"job {report.job[:8]}, attempt {report.attempt}: {report.about}; `inosgm jobs status` says more")

    def say(self, line: str) -> None:
        """Write a line."""
        if self._enabled:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        done, failed, running = self._counts
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=self._note(), refresh=True)
        elif self._enabled:
            self.say(f"{done}/{self._jobs} jobs done{self._note()}")
        self._shown, self._shown_at = (done, failed, running), monotonic()

    def _note(self) -> str:
        done, failed, running = self._counts
        new = done - (self._first or 0)
        parts = [f"{running} running"] * (running > 0) + [f"{failed} failed"] * (failed > 0)
        if new > 1 and done + failed < self._jobs:
            seconds = (monotonic() - self._began) / new * (self._jobs - done - failed)
            parts.append(f"{timedelta(seconds=round(seconds))} left")
        return "".join(f", {part}" for part in parts)

    def __enter__(self) -> Self:
        if self._enabled and self._console.is_terminal and not self._console.is_dumb_terminal:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("jobs done{task.fields[note]}", markup=False))
            self._bar = Progress(*columns, console=self._console, auto_refresh=False)  # no thread
            self._task = self._bar.add_task("", total=self._jobs, note="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._counts != self._shown and self._counts[0] >= 0:
            self._draw()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
