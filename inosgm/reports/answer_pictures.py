"""Pictures and costs of private statistics, and tables of the points of sweeps and tuning."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from scipy.special import ndtri

from inosgm.reports.contents import Answer
from inosgm.reports.pictures import BLUE, Panel, Picture
from inosgm.reports.tables import TextTable, number

if TYPE_CHECKING:
    from inosgm.experiments.sweep_results import Metric, Standing

MAX_BARS = 40
"""Largest number of values with a bar, and of owners in a table of costs."""

REACH = float(ndtri(0.975))
"""Half the length of a 95 % interval, in standard errors."""


def cost_of(answer: Answer) -> TextTable | None:
    """Return a table of the cost to each owner; of very many owners, those that paid most."""
    cost = answer.estimate.cost
    if cost is None:
        return None
    dearest = sorted(cost, key=lambda label: -cost[label])[:MAX_BARS]
    weights = answer.estimate.weights or {}
    rows = [
        (str(label), f"{epsilon:.4g}", *([f"{weights[label]:.3g}"] if weights else []))
        for label, epsilon in cost.items()
        if label in dearest
    ]
    hidden = len(cost) - len(rows)
    return TextTable(
        caption="What it cost",
        header=("owner", "epsilon spent", *(["weight of a record"] if weights else [])),
        rows=tuple(rows),
        notes=(f"{hidden} owners who paid less are not shown",) * (hidden > 0),
    )


def picture_of(answer: Answer, name: str) -> Picture | None:
    """Draw an answer with its noise: a number by owner, or the bars of a histogram; None for a matrix."""
    estimate = answer.estimate
    own = estimate.by_owner or {}
    if own and all(np.ndim(row.value) == 0 for row in own.values()):
        names = [*map(str, own), "estimate"]
        values = np.array([*(row.value for row in own.values()), estimate.value], dtype=np.float64)
        errors = np.array([*(row.standard_error for row in own.values()), estimate.standard_error], dtype=np.float64)
    elif np.ndim(estimate.value) > 1:
        return None
    else:
        values, errors = np.atleast_1d(estimate.value), np.atleast_1d(estimate.standard_error)
        names = _names(answer, values.size)
    shown = slice(0, MAX_BARS)
    names, values, errors = names[shown], values[shown], errors[shown]
    bars = "edges" in estimate.details or "categories" in estimate.details

    def draw(axes: Axes) -> None:
        rows = np.arange(values.size)
        if bars:
            axes.barh(rows, values, height=0.66, color=BLUE, alpha=0.35, linewidth=0)
        axes.errorbar(values, rows, xerr=REACH * errors, fmt="o", color=BLUE, markersize=5, elinewidth=1.6, capsize=0)
        axes.set_yticks(rows, names)
        axes.set(ylim=(values.size - 0.4, -0.6))
        axes.margins(x=0.25)
        axes.grid(visible=False, axis="y")

    rows = [(label, f"{value:.6g}", f"{error:.2g}") for label, value, error in zip(names, values, errors, strict=True)]
    return Picture(
        name=name,
        title=answer.name,
        text=f"{estimate.estimand}: "
        + "; ".join(f"{label} {value}, standard error {error}" for label, value, error in rows[:6]),
        panels=(Panel(title="", draw=draw),),
        size=(4.7, 0.7 + 0.27 * values.size),
        table=TextTable(caption=estimate.estimand, header=("", "value", "standard error"), rows=tuple(rows)),
        note="Whiskers are 95 % intervals of the noise alone.",
    )


def _names(answer: Answer, count: int) -> list[str]:
    """Return the names of the numbers of an answer."""
    details = answer.estimate.details
    if "edges" in details:
        names = [f"{low:g} to {high:g}" for low, high in pairwise(np.asarray(details["edges"]).tolist())]
    elif "categories" in details:
        names = [str(name) for name in np.asarray(details["categories"]).tolist()]
    elif count == 1:
        names = [answer.question.replace("-", " ")]
    elif "components" in details:
        names = [f"component {index + 1}" for index in range(count)]
    else:
        names = ["intercept", *answer.columns[:-1]]
    return names if len(names) == count else [str(index) for index in range(count)]


def points_of(standings: Mapping[str, Sequence["Standing"]], metric: "Metric") -> TextTable:
    """Return a row for each point of a method: mean and standard deviation over its seeds.

    Args:
        standings: What points came to, by method; with an empty name if they are not about methods.
        metric: What they were chosen by.
    """
    from inosgm.experiments.sweep_results import Metric

    others = [other for other in Metric if other is not metric]

    def shown(standing: "Standing", by: "Metric") -> str:
        mean, deviation = standing.mean(by), standing.deviation(by)
        return number(mean) + ("" if deviation is None else f" ± {number(deviation)}")

    rows = [
        (
            f"{method} {standing.point.name}".strip(),
            *(shown(standing, by) for by in (metric, *others)),
            str(len(standing.evaluations)),
            standing.remark(),
        )
        for method, some in standings.items()
        for standing in some
    ]
    names = (by.value.replace("_", " ") for by in (metric, *others))
    header = ("point", *names, "seeds", "not done")
    width = len(header) if any(row[-1] for row in rows) else len(header) - 1
    return TextTable(caption="Points that were tried", header=header[:width], rows=tuple(row[:width] for row in rows))
