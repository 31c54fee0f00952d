"""Learning curves over seeds: a line for the mean, a band for what is known about it."""

import os
from typing import Any, BinaryIO

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from inosgm.experiments.summary import METRICS, Summary

MOST = 12
"""How many owners have a panel."""

WIDE = 4
"""How many panels are side by side."""

OWNER, EVERYONE = "#0072B2", "#7F7F7F"


def draw(summary: Summary, file: str | os.PathLike[str] | BinaryIO) -> None:
    """Draw a summary: a panel for each owner, with everyone for comparison; of many owners those that ended worst.

    Panels show the accuracy over the steps, or the loss where there are no predictions.

    Args:
        summary: What to draw.
        file: Its name, whose ending says the format, or a file that is open for writing, which becomes SVG.
    """
    name = "accuracy" if summary.counts[METRICS.index("accuracy")].any() else "loss"
    shown = summary.worst(MOST)
    wide = min(WIDE, len(shown))
    high = -(-len(shown) // wide)
    figure = Figure(figsize=(1.2 + 2.4 * wide, 1.1 + 1.9 * high), layout="constrained")
    grid = figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False)
    for axes, owner in zip(grid.flat, shown, strict=False):
        line(axes, summary, name, len(summary.owners), EVERYONE)
        line(axes, summary, name, owner, OWNER)
        axes.set_title(str(summary.owners[owner]), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    if name == "accuracy":
        grid[0, 0].set_ylim(-0.02, 1.02)
    figure.supxlabel("step", fontsize=10)
    figure.supylabel(f"{name} on held-out records", fontsize=10)
    handles = [Line2D([], [], color=colour) for colour in (OWNER, EVERYONE)]
    figure.legend(handles, ["this owner", "everyone"], loc="outside lower right", ncols=2, frameon=False)
    hidden = len(summary.owners) - len(shown)
    notes = f", {hidden} owners that ended better not shown" * (hidden > 0)
    figure.suptitle(f"{summary.about}: mean and 95 % confidence band{notes}", fontsize=11)
    options: dict[str, Any] = {"format": "svg", "metadata": {"Date": None}} if hasattr(file, "write") else {}
    with rc_context({"svg.hashsalt": "inosgm"}):  # the same summary gives the same file
        figure.savefig(file, **options)


def line(axes: Axes, summary: Summary, name: str, owner: int, colour: str, dashes: Any = "-") -> None:
    """Draw mean and band of one owner."""
    metric = METRICS.index(name)
    mean, low, high = (values[metric, :, owner] for values in (summary.mean, summary.low, summary.high))
    axes.plot(summary.steps, mean, color=colour, linestyle=dashes, linewidth=1.6)
    axes.fill_between(summary.steps, low, high, color=colour, alpha=0.2, linewidth=0)
