"""Figures: every owner's recall over training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from examples.study.cases import Arm, Design
from examples.study.tables import Results, last, recalls

COLOURS = ("#b4541a", "#8a8a8a", "#0b6e99")
"""DP-SGD, IDP-SGD, INO-SGD."""

WIDEST = 5
"""Owners in a row."""


def draw(design: Design, plan: str, found: dict[Arm, Results], file: Path) -> None:
    """Draw every owner's recall over training: DP-SGD, IDP-SGD, and INO-SGD with the longest tail.

    Lines are means over seeds, bands one standard deviation; there is a block of rows for each accountant.

    Args:
        design: What was run.
        plan: Which plan to show.
        found: The results by arm.
        file: Where the figure goes, as SVG.
    """
    accountants = [accountant for name, accountant in design.plans if name == plan]
    labels = list(recalls(last(next(filter(None, found.values()))[0])))
    columns = min(WIDEST, len(labels))
    rows = -(-len(labels) // columns)
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "study", "svg.fonttype": "none"}):
        figure = Figure(figsize=(1 + 1.9 * columns, 0.6 + 1.5 * rows * len(accountants)), layout="constrained")
        grid = figure.subplots(rows * len(accountants), columns, sharex=True, sharey=True, squeeze=False)
        for block, accountant in enumerate(accountants):
            axes = grid[block * rows : (block + 1) * rows].flatten()
            arms = [Arm(plan="uniform", accountant=accountant)]
            arms += [Arm(plan=plan, accountant=accountant, tail=tail) for tail in (0.0, max(design.tails))]
            for arm, colour in zip(arms, COLOURS, strict=True):
                _lines(axes, found[arm], labels, colour)
            for axis, label in zip(axes, labels, strict=False):
                axis.set_title(f"{label} ({accountant.upper()})", fontsize=8)
        for axis in grid[:, 0]:
            axis.set_ylabel("recall")
        for axis in grid[-1]:
            axis.set_xlabel("step")
        handles = [Line2D([], [], color=colour) for colour in COLOURS]
        names = ["DP-SGD", "IDP-SGD", f"INO-SGD, tail {max(design.tails):g}"]
        figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
        FigureCanvasSVG(figure).print_svg(str(file), metadata={"Date": None})


def _lines(axes: Sequence[Any], results: Results, labels: list[Any], colour: str) -> None:
    """Draw mean and deviation, an axis for each owner."""
    for axis, label in zip(axes, labels, strict=False) if results else ():
        steps = results[0]["curve"]["steps"]
        curves = np.array([[recalls(found)[label] for found in one["curve"]["evaluations"]] for one in results])
        mean, deviation = curves.mean(axis=0), curves.std(axis=0, ddof=min(1, len(curves) - 1))
        axis.plot(steps, mean, color=colour, linewidth=1.4)
        axis.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
        axis.set_ylim(-0.02, 1.02)
        axis.grid(alpha=0.3)
