"""Figures: errors against budgets, and what individual budgets buy for every question."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from examples.statistics_study.measuring import Row
from examples.statistics_study.running import DEALT
from examples.statistics_study.ways import EACH_ONCE, OPENDP, OPENDP_CENTRED, STRATIFIED, STRICTEST, WEIGHTED

LINES = {
    EACH_ONCE: ("#000000", "-", "x"),
    WEIGHTED: ("#0072B2", "-", "o"),
    STRATIFIED: ("#009E73", (0, (6, 1.5, 1.5, 1.5)), "D"),
    STRICTEST: ("#D55E00", (0, (6, 1.5)), "s"),
    OPENDP_CENTRED: ("#CC79A7", (0, (1, 1.5)), "v"),
    OPENDP: ("#6E6E6E", (0, (3, 1.5)), "^"),
}
"""Colour, line and mark: they differ in all three, for those who cannot tell colours apart."""

WIDE = 4
"""How many panels are side by side."""


def draw_budgets(rows: Sequence[Row], strictest: dict[str, float], file: Path) -> None:
    """Draw the error of means against the strictest budget: a column of panels per question, a row per kind of owners.

    Args:
        rows: What was found.
        strictest: The least epsilon that an owner of each table grants at factor 1.
        file: Where the figure goes, as SVG.
    """
    means = [row for row in rows if row.statistic == "mean"]
    questions = list(dict.fromkeys(row.question for row in means))[:WIDE]
    figure = Figure(figsize=(1 + 2.6 * len(questions), 5.6), layout="constrained")
    grid = figure.subplots(2, len(questions), sharex="col", sharey="col", squeeze=False)
    for column, question in enumerate(questions):
        table, _, of = question
        for axes, related in zip(grid[:, column], (True, False), strict=True):
            some = [row for row in means if row.question == question and (row.owners != DEALT) == related]
            _panel(axes, some, strictest[table])
            owners = f"owners by {some[0].owners}" if related and some else f"owners {DEALT}"
            axes.set_title(f"{table}, {of}\n{owners}", fontsize=9)
        grid[1, column].set_xlabel("epsilon of the strictest owner")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error (RMSE)")
    shown = [way for way in LINES if any(row.way == way for row in means)]
    handles = [
        Line2D([], [], color=colour, linestyle=style, marker=mark, markersize=4)
        for colour, style, mark in map(LINES.__getitem__, shown)
    ]
    figure.legend(handles, shown, loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9)
    _save(figure, file)


def draw_ratios(rows: Sequence[Row], file: Path) -> None:
    """Draw for every question what the error at the strictest budget becomes with weights by budgets; factor 1."""
    found = {(row.question, row.owners != DEALT, row.way): row.rmse for row in rows if row.factor == 1}
    questions = list(dict.fromkeys(row.question for row in rows))[::-1]
    figure = Figure(figsize=(8.5, 1.1 + 0.19 * len(questions)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1, color="black", linewidth=0.8)
    for place, question in enumerate(questions):
        for related, (colour, mark) in {True: ("#D55E00", "s"), False: ("#0072B2", "o")}.items():
            ours, theirs = (found.get((question, related, way)) for way in (WEIGHTED, STRICTEST))
            if ours and theirs:
                axes.plot(ours / theirs, place, marker=mark, color=colour, markersize=4.5, linestyle="none")
    axes.set_xscale("log")
    names = [f"{statistic}: {table}, {of}" for table, statistic, of in questions]
    axes.set_yticks(range(len(questions)), names, fontsize=7)
    axes.set_ylim(-0.7, len(questions) - 0.3)
    figure.supxlabel("error weighted by budgets / error with the strictest budget for all", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [
        Line2D([], [], color=colour, marker=mark, linestyle="none", markersize=4.5)
        for colour, mark in (("#D55E00", "s"), ("#0072B2", "o"))
    ]
    names = ["owners differ in what they hold", f"owners {DEALT}"]
    figure.legend(handles, names, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    _save(figure, file)


def _panel(axes: Axes, rows: Sequence[Row], strictest: float) -> None:
    """Draw the lines of one question."""
    for way, (colour, style, mark) in LINES.items():
        points = sorted((strictest * row.factor, row.rmse) for row in rows if row.way == way)
        if points:
            x, y = zip(*points, strict=True)
            look: dict[str, Any] = {"linestyle": style, "marker": mark, "markersize": 4, "linewidth": 1.5}
            axes.plot(x, y, color=colour, **look)
    axes.set(xscale="log", yscale="log")
    budgets = sorted({strictest * row.factor for row in rows})
    axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    axes.xaxis.minorticks_off()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, file: Path) -> None:
    """Write a figure: the same numbers give the same file."""
    with rc_context({"svg.hashsalt": "inosgm"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
