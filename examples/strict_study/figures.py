"""Pictures of the page: balance against utility, the recall of every owner, and how it comes about."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from examples.strict_study.points import Point
from examples.strict_study.runs import Runs
from examples.strict_study.summary import Outcome, measures
from examples.strict_study.tradeoffs import lowered, shows_tails, tails
from examples.strict_study.tuning import counted

COLOURS = {"DP-SGD": "#8a8a8a", "IDP-SGD": "#d98c00", "INO-SGD": "#0b6e99", "ASC": "#7a4fa3"}
LARGEST = 4.0
"""Largest strength after training that is drawn."""

Tasks = Mapping[str, tuple[Runs, Mapping[str, Outcome]]]


def _look(name: str) -> dict[str, Any]:
    """Return the colour of a method, and a filled marker and a solid line if it is corrected."""
    colour = next(colour for prefix, colour in COLOURS.items() if name.startswith(prefix))
    corrected = name.endswith("+ c")
    marker = "s" if "SAMPLE" in name else "o"
    face = colour if corrected else "white"
    return {"color": colour, "marker": marker, "mfc": face, "ls": "-" if corrected else "--", "lw": 1.2, "ms": 5}


def _save(figure: Figure, grid: Any, file: Path) -> None:
    """Add one legend for all panels, and write the figure."""
    pairs = [axis.get_legend_handles_labels() for axis in grid[:, 0]]
    shown = {label: handle for handles, labels in pairs for handle, label in zip(handles, labels, strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, frameon=False)
    FigureCanvasSVG(figure).print_svg(str(file), metadata={"Date": None})


def balance(tasks: Tasks, file: Path) -> None:
    """Draw accuracy against the spread over owners, and against the strictest owner's recall, for every method.

    Lines show what a number trades: thin dotted ones the strength after training (free), the tail of INO-SGD, and
    budgets lowered towards the strictest.
    """
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "strict", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8.2, 3.3 * len(tasks) + 0.4), layout="constrained")
        grid = figure.subplots(len(tasks), 2, squeeze=False)
        for axes, (runs, found) in zip(grid, tasks.values(), strict=True):
            for axis, measure in zip(axes, ("spread", "strictest"), strict=True):
                _panel(axis, runs, found, measure)
                axis.set_title(runs.task.title, fontsize=8)
        _save(figure, grid, file)


def _panel(axis: Any, runs: Runs, found: Mapping[str, Outcome], measure: str) -> None:
    for name, outcome in found.items():
        look = _look(name)
        x, y = outcome.values("accuracy"), outcome.values(measure)
        axis.errorbar(x.mean(), y.mean(), y.std(ddof=1), x.std(ddof=1), **{**look, "ls": ""}, label=name, zorder=3)
        if outcome.method.corrected:
            _line(
                axis,
                [(outcome.rows, after) for after in counted(outcome.rows) if after <= LARGEST],
                measure,
                look["color"],
                ":",
            )
        if shows_tails(name):
            _path(axis, runs, tails(outcome.choice.point), measure, look["color"], "--")
        if name == "IDP-SGD (SCALE)":
            _path(axis, runs, lowered(outcome.choice.point), measure, "#444444", "-.")
    least = min(outcome.values("accuracy").min() for outcome in found.values())
    axis.set_xlim(left=least - 0.02)  # stronger corrections go on beyond, to no use
    axis.set_xlabel("accuracy")
    axis.set_ylabel("standard deviation over owners" if measure == "spread" else "recall of the strictest owner")
    axis.grid(alpha=0.3)


def _path(axis: Any, runs: Runs, points: Sequence[Point], measure: str, colour: str, style: str) -> None:
    """Draw a line through points, over the seeds that all of them have."""
    seeds = [seed for seed in runs.task.seeds if all(runs.get(point, seed) for point in points)]
    if seeds:
        rows = [([row for seed in seeds if (row := runs.get(point, seed))], 0.0) for point in points]
        _line(axis, rows, measure, colour, style)


def _line(axis: Any, rows: Sequence[tuple[Sequence[Any], float]], measure: str, colour: str, style: str) -> None:
    means = [
        np.mean([(m.accuracy, getattr(m, measure)) for m in (measures(row, after) for row in some)], axis=0)
        for some, after in rows
    ]
    axis.plot(*np.array(means).T, color=colour, ls=style, lw=0.9, marker=".", ms=3, alpha=0.8)


def owners(tasks: Tasks, file: Path) -> None:
    """Draw the recall of every owner at the end, and the strictest owner's over training."""
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "strict", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8.2, 2.9 * len(tasks) + 0.4), layout="constrained")
        grid = figure.subplots(len(tasks), 2, squeeze=False)
        for axes, (runs, found) in zip(grid, tasks.values(), strict=True):
            for name, outcome in found.items():
                look = _look(name)
                recalls = np.array([measures(row, outcome.choice.after).recalls for row in outcome.rows])
                axes[0].plot(range(1, recalls.shape[1] + 1), recalls.mean(axis=0), **look, label=name)
                curves = [
                    [measures(row, outcome.choice.after, counts).strictest for _, counts in row["curve"]]
                    for row in outcome.rows
                ]
                steps = [step for step, _ in outcome.rows[0]["curve"]]
                axes[1].plot(steps, np.mean(curves, axis=0), **look)
            axes[0].set_xlabel("owner, from the strictest on")
            axes[1].set_xlabel("step")
            axes[0].set_ylabel("recall at the end")
            axes[1].set_ylabel("recall of the strictest owner")
            for axis in axes:
                axis.set_title(runs.task.title, fontsize=8)
                axis.grid(alpha=0.3)
        _save(figure, grid, file)
