"""The power of attacks against the number of shadow models that they have, a panel for each owner."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from matplotlib.axes import Axes

from inosgm.audit.secret_files import WARNING, write_secret
from inosgm.reports.pictures import BLUE, GREEN, GREY, ORANGE, PURPLE, Panel, Style, draw_panels, logarithmic
from inosgm.reports.roc import named

if TYPE_CHECKING:
    from inosgm.audit.attack_power import Power

STYLES = tuple(
    (colour, marker, line)
    for line, marker in (("-", "o"), ((0, (4, 1.5)), "s"))
    for colour in (BLUE, ORANGE, GREEN, PURPLE, GREY)
)
"""Colour, marker and line of each attack: ten attacks can be told apart, also in grey."""


def draw_power(rows: Sequence["Power"], file: str | os.PathLike[str] | BinaryIO) -> None:
    """Draw the area under the ROC curve of each attack against its number of shadow models.

    An attack that has no statistics with so few models has no point there. Bars are confidence intervals.

    Args:
        rows: What `inosgm.audit.attack_power.power` returns. NOT PRIVATE, and neither is the figure.
        file: A path, whose suffix determines the format, or a file that is open for writing, which becomes SVG.

    Raises:
        ValueError: for no rows, and for more attacks than styles.
    """
    attacks = list(dict.fromkeys(row.attack for row in rows))
    if not attacks or len(attacks) > len(STYLES):
        raise ValueError(f"rows must be of 1 to {len(STYLES)} attacks, got {len(attacks)}: choose some of them")
    styles = dict(zip(attacks, STYLES, strict=False))

    def panel(own: Sequence["Power"], axes: Axes) -> None:
        for index, (name, (colour, marker, line)) in enumerate(styles.items()):
            points = [row for row in own if row.attack == name and row.success.auc == row.success.auc]
            aside = 1.03 ** (index - len(styles) / 2)  # bars of different attacks do not cover each other
            area = [row.success.auc for row in points]
            bars = [[a - row.success.auc_low for a, row in zip(area, points, strict=True)]]
            bars += [[row.success.auc_high - a for a, row in zip(area, points, strict=True)]]
            axes.errorbar(
                [row.references * aside for row in points],
                area,
                yerr=bars,
                color=colour,
                marker=marker,
                linestyle=line,
                markersize=3.5,
                linewidth=1.2,
                elinewidth=0.6,
                label=name,
            )
        logarithmic(axes, "x")
        axes.axhline(0.5, color="black", linewidth=0.8, zorder=1)
        axes.set(xlabel="shadow models", ylabel="AUC")
        axes.legend(fontsize=7, frameon=False, ncols=2)

    owners = dict.fromkeys(row.owner for row in rows)
    panels = [
        Panel(title=named(owner), draw=partial(panel, [row for row in rows if row.owner == owner])) for owner in owners
    ]
    confidence = f"{100 * rows[0].success.confidence:g} %"
    title = f"attacks on {rows[0].success.targets} models, {confidence} intervals\n{WARNING}"
    ending = Path(file).suffix[1:].lower() if isinstance(file, str | os.PathLike) else "svg"
    key = [("guessing", Style(colour="#000000", marker=""))]
    write_secret(file, draw_panels(title, panels, (3.6, 3.6), key, ending))
