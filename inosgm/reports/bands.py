"""Learning curves over seeds: a line for the mean, a band for what is known about it."""

import os
from typing import TYPE_CHECKING, Any, BinaryIO

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from inosgm.runs.summary import Summary

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F")
"""As different as can be, also for people who do not tell red from green (after Okabe and Ito)."""


def draw(summary: "Summary", file: str | os.PathLike[str] | BinaryIO) -> None:
    """Draw a summary: accuracy and loss of every owner over the steps; of many owners those that ended worst.

    Args:
        summary: What to draw.
        file: Its name, whose ending says the format, or a file that is open for writing, which becomes SVG.
    """
    panels = [(place, name) for place, name in ((0, "accuracy"), (2, "loss")) if summary.counts[place].any()]
    shown = summary.worst(len(COLOURS))
    figure = Figure(figsize=(4.6 * len(panels) + 1.6, 3.8), layout="constrained")
    for axes, (place, name) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for owner, colour in zip(shown, COLOURS, strict=False):
            _line(axes, summary, place, owner, colour, str(summary.owners[owner]))
        _line(axes, summary, place, len(summary.owners), "black", "everyone")
        axes.set(xlabel="step", ylabel=f"{name} on held-out records")
        if name == "accuracy":
            axes.set_ylim(-0.02, 1.02)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    hidden = len(summary.owners) - len(shown)
    notes = f", {hidden} owners that ended better not shown" * (hidden > 0)
    figure.suptitle(f"{summary.about}: mean and 95 % confidence band{notes}", fontsize=10)
    options: dict[str, Any] = {"format": "svg", "metadata": {"Date": None}} if hasattr(file, "write") else {}
    with rc_context({"svg.hashsalt": "inosgm"}):  # the same summary gives the same file
        figure.savefig(file, **options)


def _line(axes: Axes, summary: "Summary", metric: int, owner: int, colour: str, label: str) -> None:
    """Draw one owner."""
    mean, low, high = (values[metric, :, owner] for values in (summary.mean, summary.low, summary.high))
    axes.plot(summary.steps, mean, color=colour, label=label, linewidth=2 if label == "everyone" else 1.3)
    axes.fill_between(summary.steps, low, high, color=colour, alpha=0.15, linewidth=0)
