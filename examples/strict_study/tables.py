"""Tables of the page, in Markdown, and the rows of its csv."""

from collections.abc import Iterator, Mapping

import numpy as np

from examples.strict_study.extras import variants
from examples.strict_study.points import AFTER
from examples.strict_study.runs import Runs
from examples.strict_study.summary import Outcome, measures, variant
from examples.study.pages import markdown

COLUMNS = ("accuracy", "balanced", "strictest", "worst", "spread")

CONTRASTS = (
    ("INO-SGD ({}) + c", "IDP-SGD ({})"),
    ("INO-SGD ({}) + c", "DP-SGD"),
    ("INO-SGD ({}) + c", "IDP-SGD ({}) + c"),
    ("IDP-SGD ({}) + c", "IDP-SGD ({})"),
    ("INO-SGD ({})", "IDP-SGD ({})"),
    ("INO-SGD ({}) + c", "ASC + c"),
)
"""Pairs of methods whose difference is shown."""


def decimal(value: float, signed: bool = False) -> str:
    """Return three decimals without a leading zero.

    >>> decimal(0.5), decimal(-0.25), decimal(0.1, signed=True)
    ('.500', '-.250', '+.100')
    """
    return f"{value:{'+' if signed else ''}.3f}".replace("0.", ".", 1)


def columns(runs: Runs) -> tuple[str, ...]:
    """Return the measures that a task needs: with equal classes, accuracy and balanced accuracy are the same."""
    return COLUMNS if runs.task.unequal else tuple(name for name in COLUMNS if name != "balanced")


def table(runs: Runs, found: Mapping[str, Outcome]) -> str:
    """Return the methods of a task: mean ± standard deviation over seeds, and what tuning has chosen."""
    shown = columns(runs)
    rows = [["method", *shown, "chosen by tuning"]]
    for name, outcome in found.items():
        cells = []
        for column in shown:
            values = outcome.values(column)
            cells.append(f"{decimal(values.mean())} ± {decimal(values.std(ddof=1))}")
        rows.append([name, *cells, chosen(outcome)])
    return markdown(rows)


def chosen(outcome: Outcome) -> str:
    """Return the numbers that tuning has chosen."""
    point, after = outcome.choice
    parts = [f"lr {point.rate:g}"]
    if point.tail:
        parts.append(f"tail {point.tail:g}")
    if outcome.method.corrected:
        parts.append(f"strengths {point.inside:g} + {after:g}")
    if point.temperature:
        parts.append(f"temperature {point.temperature:g}")
    return ", ".join(parts)


def contrasts(runs: Runs, found: Mapping[str, Outcome]) -> str:
    """Return differences of methods, seed by seed: mean ± standard error."""
    shown = columns(runs)
    rows = [["difference", *shown]]
    for first, second in CONTRASTS:
        for plan in runs.task.plans:
            names = first.format(plan.upper()), second.format(plan.upper())
            if all(name in found for name in names):
                one, other = (found[name] for name in names)
                rows.append([f"{names[0]} minus {names[1]}", *(_difference(one, other, column) for column in shown)])
    return markdown(rows) if len(rows) > 1 else ""


def _difference(one: Outcome, other: Outcome, column: str) -> str:
    values = one.values(column) - other.values(column)
    error = float(values.std(ddof=1) / np.sqrt(values.size))
    return f"{decimal(float(values.mean()), signed=True)} ± {decimal(error)}"


def extras_table(runs: Runs, found: Mapping[str, Outcome]) -> str:
    """Return what the extras achieve, each at the best of its settings by the tuning seeds."""
    shown = columns(runs)
    rows = [["tried", *shown, "best setting"]]
    choices = {name: outcome.choice for name, outcome in found.items()}
    for name, points in variants(choices).items():
        corrected = points[0].inside or name in ("averages", "blends", "offsets")
        groups = {name: points} if corrected else {f"{name}: {_change(point)}": [point] for point in points}
        for title, some in groups.items():
            outcome = variant(runs, some, AFTER if corrected else (0.0,))
            if outcome is not None:
                cells = [decimal(outcome.values(column).mean()) for column in shown]
                point, after = outcome.choice
                rows.append([title, *cells, f"{_change(point)}, lr {point.rate:g}, {point.inside:g} + {after:g}"])
    return markdown(rows) if len(rows) > 1 else ""


def _change(point: object) -> str:
    """Return what a variant changes, in words."""
    names = ("plan", "averaging", "leveled", "form", "order")
    usual = {"plan": "scale", "averaging": 0.0, "leveled": False, "form": "linear", "order": "descending"}
    changed = [f"{name} {getattr(point, name)}" for name in names if getattr(point, name) != usual[name]]
    return ", ".join(changed) or "as chosen"


def csv_rows(task: str, found: Mapping[str, Outcome]) -> Iterator[list[str]]:
    """Return a line of the csv for every reported run."""
    for name, outcome in found.items():
        point, after = outcome.choice
        for row in outcome.rows:
            values = measures(row, after)
            numbers = [f"{value:.4f}" for value in values[:-1]]
            recalls = " ".join(f"{value:.4f}" for value in values.recalls)
            chosen_numbers = [f"{v:g}" for v in (point.rate, point.tail, point.inside, after, point.temperature)]
            yield [task, name, str(row["seed"]), *chosen_numbers, *numbers, recalls]


CSV_HEAD = [
    *("task", "method", "seed", "learning_rate", "tail", "strength_in_loss", "strength_after", "temperature"),
    *COLUMNS,
    "recalls_from_the_strictest_owner",
]
