"""A figure of learning curves over seeds: the mean of every owner with its confidence band."""

import os
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from inosgm.experiments.summary import METRICS, Summary
from inosgm.reports.pictures import BLUE, GREY, Panel, Style, draw_panels

MAX_PANELS = 12
"""Largest number of owners with a panel of their own: more would not fit on a page."""


def draw(summary: Summary, file: str | os.PathLike[str] | BinaryIO) -> None:
    """Draw a summary: one panel per owner, with everyone for comparison; of many owners, those that ended worst.

    Panels show the accuracy by step, or the loss if there are no predictions.

    Args:
        summary: The summary.
        file: A path, whose suffix determines the format, or a file that is open for writing, which becomes SVG.
    """
    name = "accuracy" if summary.counts[METRICS.index("accuracy")].any() else "loss"

    def draw_owner(owner: int, axes: Axes) -> None:
        line(axes, summary, name, len(summary.owners), GREY)
        line(axes, summary, name, owner, BLUE)
        if name == "accuracy":
            axes.set_ylim(-0.02, 1.02)

    shown = summary.worst(MAX_PANELS)
    panels = [Panel(title=str(summary.owners[owner]), draw=partial(draw_owner, owner)) for owner in shown]
    hidden = len(summary.owners) - len(shown)
    notes = f", {hidden} owners that ended better not shown" * (hidden > 0)
    title = f"{summary.about}: mean {name} by step and 95 % confidence band{notes}"
    keys = [("this owner", Style(colour=BLUE, marker="")), ("everyone", Style(colour=GREY, marker=""))]
    if isinstance(file, str | os.PathLike):
        path = Path(file)
        path.write_bytes(draw_panels(title, panels, (2.4, 1.9), keys, path.suffix[1:].lower()))
    else:
        file.write(draw_panels(title, panels, (2.4, 1.9), keys, "svg"))


def line(axes: Axes, summary: Summary, name: str, owner: int, colour: str, dashes: Any = "-") -> None:
    """Draw the mean and the band of one owner."""
    metric = METRICS.index(name)
    mean, low, high = (values[metric, :, owner] for values in (summary.mean, summary.low, summary.high))
    axes.plot(summary.steps, mean, color=colour, linestyle=dashes, linewidth=1.6)
    axes.fill_between(summary.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
