"""The progress of training: a bar in a terminal, a few plain lines elsewhere. It shows nothing private."""

from datetime import timedelta
from time import monotonic
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inosgm._internal import validate as _validate
from inosgm.planning.plan import Plan
from inosgm.training.metrics import Evaluation

POINTS = 20
"""At how many steps of a plan epsilon is accounted: doing so takes longer than many a step."""

BLINK, PAUSE, MINUTE = 0.2, 2.0, 60.0
"""Seconds: between two looks of a bar, least and most between two lines."""


class StepProgress:
    """Shows the steps of a plan, the time left, the epsilon spent so far, and the last evaluation.

    Batch sizes and losses of training records are private, so neither they nor a number of records per second are
    shown. Where there is no terminal, a line is written at the end, after every tenth of the plan and after every
    minute, but else never within two seconds of another.

    Args:
        plan: Whose steps are counted.
        start: How many of them have been done.
        enabled: False shows nothing.
        console: Where to show it; the error stream if not given.
    """

    def __init__(self, plan: Plan, *, start: int = 0, enabled: bool = True, console: Console | None = None) -> None:
        self._plan, self._start, self._enabled = plan, _validate.count("start", start), enabled
        self._console = Console(stderr=True) if console is None else console
        self._known: dict[int, dict[str, float]] = {}
        self._evaluation = ""
        self._began = self._shown_at = monotonic()
        self._done = self._shown = self._start
        self._bar: Progress | None = None

    def follow(self, plan: Plan) -> None:
        """Count the steps of another plan from now on, which begins."""
        self._plan, self._known = plan, {}
        self._start = self._done = self._shown = 0
        self._began = monotonic()
        if self._bar is not None:
            self._bar.reset(self._task, total=plan.steps, note=self._evaluation)

    def note(self, line: str) -> None:
        """Show a line of text, such as the engine that was chosen."""
        if self._enabled:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def epsilon(self, step: int) -> dict[str, float] | None:
        """Return the least and the most epsilon that any owner has spent after some steps, what came before included.

        They are those of the next of 20 evenly spread steps of the plan, so never too small, and exact there. None
        if the plan knows no budgets.

        >>> plan = Plan(sample_rates=[0.1], sensitivities=[1], sizes=[100], noise_scale=4, steps=40,
        ...             epsilon=[1.0], delta=[1e-5], accountant="pld")
        >>> bar = StepProgress(plan, enabled=False)
        >>> bar.epsilon(39) == bar.epsilon(40) == {"least": plan.spent().min(), "most": plan.spent().max()}
        True
        """
        if self._plan.epsilon is None:
            return None
        steps, points = self._plan.steps, min(POINTS, self._plan.steps)
        point = -(-_validate.count("step", step) * points // steps)  # rounded up, as is the step there
        at = -(-point * steps // points)
        if at not in self._known:
            spent = self._plan.spent(at)
            self._known[at] = {"least": float(spent.min()), "most": float(spent.max())}
        return dict(self._known[at])

    def advance(self, step: int) -> None:
        """Say that so many steps of the plan have been done."""
        self._done = step
        tenth, before = (number * 10 // self._plan.steps for number in (step, self._shown))
        waited = monotonic() - self._shown_at
        if waited >= BLINK if self._bar is not None else waited >= MINUTE or (waited >= PAUSE and tenth > before):
            self._show()

    def _show(self) -> None:
        """Show how far training has got."""
        if not self._enabled:
            return
        step, steps, now = self._done, self._plan.steps, monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=step, note=self._note(step), refresh=True)
        else:
            left = timedelta(seconds=round((now - self._began) / max(step - self._start, 1) * (steps - step)))
            line = f"step {step}/{steps}, {left} left{self._note(step)}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._shown, self._shown_at = step, now

    def evaluated(self, found: Evaluation) -> None:
        """Show an evaluation on held-out records from now on."""
        if found.accuracy is None:
            self._evaluation = ", loss not finite" if found.loss is None else f", loss {found.loss:.4g}"
        else:
            self._evaluation = f", accuracy {found.accuracy:.3f}"
        if found.worst_owner is not None:
            who = "owner" if set(found.by_owner) <= set(self._plan.labels) else "group"
            self._evaluation += f", worst {who} {found.worst_owner} {found.by_owner[found.worst_owner].accuracy:.3f}"
        if self._bar is not None:
            self._show()

    def _note(self, step: int) -> str:
        spent = self.epsilon(step)
        if spent is None:
            return self._evaluation
        least, most = (f"{value:.3g}" for value in spent.values())
        return f", epsilon {least}{f' to {most}' * (least != most)}{self._evaluation}"

    def __enter__(self) -> Self:
        self._began = self._shown_at = monotonic()
        if self._enabled and self._console.is_terminal and not self._console.is_dumb_terminal:
            steps, note = MofNCompleteColumn(), TextColumn("left{task.fields[note]}", markup=False)
            columns = (BarColumn(), steps, TimeRemainingColumn(), note)
            self._bar = Progress(*columns, console=self._console, auto_refresh=False)  # no thread
            self._task = self._bar.add_task("", total=self._plan.steps, completed=self._start, note=self._evaluation)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._done != self._shown:
            self._show()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
