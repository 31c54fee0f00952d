import threading
from io import StringIO

import pytest
from rich.console import Console

from inosgm import Plan
from inosgm.training import progress
from inosgm.training.metrics import evaluation
from inosgm.training.progress import StepProgress

OPEN = dict(sample_rates=[0.1, 0.1], sensitivities=[1, 3], sizes=[100, 50], noise_scale=4, labels=["red", "[bold]"])
BUDGETS = dict(epsilon=[1.0, 5.0], delta=[1e-5, 1e-5], accountant="pld")
FOUND = evaluation([0.5, 0.1, 2.0], [0, 1, 1], [0, 1, 0], owners=["red", "red", "[bold]"])


class Clock:
    """A monotonic clock that moves when told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def console(*, terminal=False):
    return Console(file=StringIO(), force_terminal=terminal, width=140, _environ={})


def watch(plan, clock, screen, *, seconds, start=0, stop=None):
    """Go through the steps of a plan, each taking some seconds; return the lines that were shown."""
    with StepProgress(plan, start=start, console=screen) as bar:
        bar.evaluated(FOUND)
        for step in range(start + 1, 1 + (stop or plan.steps)):
            clock.now += seconds
            bar.advance(step)
    return screen.file.getvalue().splitlines()


def test_plain_lines_by_tenths(clock):
    plan = Plan(**OPEN, **BUDGETS, steps=200)
    lines = watch(plan, clock, console(), seconds=1)
    assert len(lines) == 10
    spent = plan.spent(100)
    wanted = f"step 100/200, 0:01:40 left, epsilon {spent.min():.3g} to {spent.max():.3g}"
    assert lines[4] == f"{wanted}, accuracy 0.667, worst owner [bold] 0.000"
    assert lines[-1].startswith("step 200/200, 0:00:00 left")


def test_a_short_run_says_one_line_and_a_slow_one_says_something_every_minute(clock):
    assert len(watch(Plan(**OPEN, steps=1000), clock, console(), seconds=0.001)) == 1
    lines = watch(Plan(**OPEN, steps=1000), clock, console(), seconds=30, stop=50)
    assert [line.split(",")[0] for line in lines[:2]] == ["step 2/1000", "step 4/1000"]
    assert "epsilon" not in "".join(lines)  # a plan without budgets


def test_a_resumed_run_goes_on_where_it_was(clock):
    lines = watch(Plan(**OPEN, steps=100), clock, console(), seconds=1, start=50)
    assert [line.split("/")[0] for line in lines] == ["step 60", "step 70", "step 80", "step 90", "step 100"]
    assert ", 0:00:40 left" in lines[0]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_that_stops_early_says_where(terminal):
    screen = console(terminal=terminal)
    with StepProgress(Plan(**OPEN, steps=20), console=screen) as bar:
        for step in range(1, 14):
            bar.advance(step)
    assert "13/20" in screen.file.getvalue()


def test_a_terminal_gets_a_bar_without_a_thread():
    screen, threads = console(terminal=True), threading.active_count()
    plan = Plan(**OPEN, **BUDGETS, steps=20)
    with StepProgress(plan, console=screen) as bar:
        for step in range(1, 21):
            bar.advance(step)
        bar.evaluated(FOUND)
        assert threading.active_count() == threads
    shown = screen.file.getvalue()
    spent = plan.spent()
    for text in ("20/20", f"epsilon {spent.min():.3g} to {spent.max():.3g}", "worst owner [bold] 0.000"):
        assert text in shown


def test_disabled_is_silent_and_accounts_nothing(monkeypatch, capsys):
    plan = Plan(**OPEN, **BUDGETS, steps=20)
    monkeypatch.setattr(Plan, "spent", lambda *_: pytest.fail("accounted"))
    for screen in (console(), console(terminal=True), None):
        with StepProgress(plan, enabled=False, console=screen) as bar:
            bar.advance(20)
            bar.evaluated(FOUND)
        assert screen is None or screen.file.getvalue() == ""
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("steps", [1, 7, 20, 130])
def test_epsilon_is_never_too_small_and_accounted_at_twenty_points(steps, monkeypatch):
    plan, asked = Plan(**OPEN, **BUDGETS, steps=steps), []
    spent = {step: plan.spent(step) for step in range(0, steps + 1, 1 if steps < 100 else 13)}
    true = Plan.spent
    monkeypatch.setattr(Plan, "spent", lambda self, step: (asked.append(step), true(self, step))[1])
    bar = StepProgress(plan, enabled=False)
    for step, exact in spent.items():
        shown = bar.epsilon(step)
        assert shown["least"] >= exact.min()
        assert shown["most"] >= exact.max()
        assert steps > 20 or shown["most"] == exact.max()
    for step in range(steps + 1):
        bar.epsilon(step)
    assert len(asked) == len(set(asked)) <= 21
    assert max(asked) == steps
    assert bar.epsilon(0) == {"least": 0.0, "most": 0.0}
    assert bar.epsilon(steps)["most"] == spent[steps].max()


def test_epsilon_does_not_depend_on_where_a_run_was_resumed():
    plan = Plan(**OPEN, **BUDGETS, steps=50)
    assert StepProgress(plan, start=33, enabled=False).epsilon(40) == StepProgress(plan, enabled=False).epsilon(40)


def test_without_budgets_there_is_no_epsilon():
    assert StepProgress(Plan(**OPEN, steps=5), enabled=False).epsilon(3) is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (evaluation([0.5], None, None), "loss 0.5"),
        (evaluation([float("nan")], None, None), "loss not finite"),
        (evaluation([0.5], [0], [0]), "accuracy 1.000"),
    ],
)
def test_evaluations_of_all_kinds(found, text, clock):
    screen = console()
    with StepProgress(Plan(**OPEN, steps=1), console=screen) as bar:
        bar.evaluated(found)
        bar.advance(1)
    assert screen.file.getvalue().splitlines() == [f"step 1/1, 0:00:00 left, {text}"]


def test_the_error_stream_is_where_it_goes(capsys):
    with StepProgress(Plan(**OPEN, steps=1)) as bar:
        bar.advance(1)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "step 1/1, 0:00:00 left\n")
