"""Tables of the page, in Markdown, and the rows of its csv."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from examples.strict_study.extras import variants
from examples.strict_study.points import Point
from examples.strict_study.runs import Runs
from examples.strict_study.summary import Outcome, as_strict_as, measures, variant
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
    rows += [_row(name, outcome, shown) for name, outcome in found.items()]
    return markdown(rows)


def _row(name: str, outcome: Outcome, shown: Sequence[str]) -> list[str]:
    values = [outcome.values(column) for column in shown]
    return [name, *(f"{decimal(some.mean())} ± {decimal(some.std(ddof=1))}" for some in values), chosen(outcome)]


def as_strict_table(runs: Runs, found: Mapping[str, Outcome]) -> str:
    """Return corrected methods with the strength that serves the strictest owner as DP-SGD does."""
    shown = columns(runs)
    if "DP-SGD" not in found:
        return ""
    rows = [["at the recall of DP-SGD's strictest owner", *shown, "strengths"]]
    rows.append(_row("DP-SGD", found["DP-SGD"], shown))
    for name, outcome in found.items():
        if outcome.method.corrected and outcome.method.plan != "uniform":
            same = as_strict_as(runs, outcome, found["DP-SGD"])
            if same is not None:
                rows.append(_row(name, same, shown))
    return markdown(rows) if len(rows) > 2 else ""


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


def rates_table(runs: Runs) -> str:
    """Return what tails do at every learning rate of the starting grid: accuracy / strictest, one tuning seed.

    The text is empty if a run is missing.
    """
    tails = (0.0, *runs.task.grid.tails)
    rows = [["learning rate", *(f"tail {tail:g}" if tail else "IDP-SGD" for tail in tails)]]
    for rate in runs.task.grid.rates:
        found = [runs.get(Point(runs.task.plans[0], rate, tail), runs.task.tuning_seeds[0]) for tail in tails]
        shown = [measures(row, 0.0) for row in found if row]
        if len(shown) < len(found):
            return ""
        rows.append([f"{rate:g}", *(f"{decimal(one.accuracy)} / {decimal(one.strictest)}" for one in shown)])
    return markdown(rows)


def extras_table(runs: Runs, found: Mapping[str, Outcome]) -> str:
    """Return how the extras differ from the methods that they change, seed by seed: mean ± standard error.

    The text is empty if a run is missing.
    """
    shown = columns(runs)
    rows = [["tried", "instead of", *shown, "best of what was tried"]]
    for some in variants({name: outcome.choice for name, outcome in found.items()}):
        outcome = variant(runs, some.points, some.corrected)
        if outcome is None:
            return ""
        cells = [_difference(outcome, found[some.base], column) for column in shown]
        rows.append([some.title, some.base, *cells, _setting(outcome)])
    return markdown(rows)


def _setting(outcome: Outcome) -> str:
    """Return the numbers of a variant."""
    point = outcome.choice.point
    special = [f"decay {point.averaging:g}"] if point.averaging else []
    special += [point.plan] if " " in point.plan else []
    special += [f"clip norm {point.clip}"] if point.clip != Point("", 0.0).clip else []
    return ", ".join([*special, chosen(outcome)])


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
