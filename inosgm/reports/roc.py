"""ROC curves of attacks on logarithmic axes, for each owner, with confidence bands."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from matplotlib.axes import Axes

from inosgm.audit.secret_files import WARNING, write_secret
from inosgm.owners import Label
from inosgm.reports.pictures import BLUE, GREEN, GREY, ORANGE, PURPLE, Panel, Style, draw_panels, logarithmic

if TYPE_CHECKING:
    from inosgm.audit.claims import Claim
    from inosgm.audit.report import Audit
    from inosgm.audit.roc import Success

MAX_LINES, MAX_PANELS = 4, 12
"""Largest number of owners that are lines of one panel (four styles are distinguishable), and that have panels."""

EVERYONE = "everyone"

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
STYLES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1.5)))
"""Lines differ in both, for colour-blind readers."""

DASHES, DOTS = (0, (4, 1, 1, 1, 1, 1)), (0, (1, 2))


@dataclass(frozen=True, kw_only=True)
class RocLine:
    """The success of an attack on the records of one owner, and the claim about the owner's epsilon."""

    name: str
    success: "Success"
    claim: "Claim | None"


def draw(audits: Mapping[str, "Audit"], file: str | os.PathLike[str] | BinaryIO, attack: str) -> None:
    """Draw true against false positive rates with confidence bands, a panel for each audit and a line for each owner.

    With many owners there is a panel for each owner, for those on whom the attack does best. A dotted line shows the
    most that any attack can reach while the owner's epsilon holds: TPR at most exp(epsilon) FPR + delta, and the same
    with the two kinds of error exchanged.

    Args:
        audits: Audits of the same owners, by the name of the method.
        file: A path, whose suffix determines the format, or a file that is open for writing, which becomes SVG.
        attack: The name of the attack.
    """
    panels = {f"{name}\n{audit.about}".strip(): lines_of(audit, attack) for name, audit in audits.items()}
    owners = [line for line in next(iter(panels.values())) if line.name != EVERYONE]
    hidden = 0
    if len(owners) > MAX_LINES:
        best = sorted(owners, key=lambda line: -np.nan_to_num(line.success.auc))
        hidden = max(0, len(owners) - MAX_PANELS)
        panels = _by_owner(panels, [line.name for line in best[:MAX_PANELS]])
    floor = floor_of([line.success for lines in panels.values() for line in lines])

    def draw_lines(lines: Sequence[RocLine], axes: Axes) -> None:
        panel(axes, lines, floor)
        axes.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.85, edgecolor="none", handlelength=2.6)

    promised = any(_promise(line) < np.inf for lines in panels.values() for line in lines)
    keys = [
        ("guessing", Style(colour="#000000", marker="")),
        ("most that ε allows", Style(colour=GREY, dashes=DOTS, marker="")),
    ]
    confidence = f"{100 * next(iter(audits.values())).confidence:g} %"
    notes = f"\nowners on whom it does worse are not shown: {hidden}" * (hidden > 0)
    title = f"attack: {attack}, {confidence} confidence bands{notes}\n{WARNING}"
    drawn = [Panel(title=name, draw=partial(draw_lines, lines)) for name, lines in panels.items()]
    ending = Path(file).suffix[1:].lower() if isinstance(file, str | os.PathLike) else "svg"
    write_secret(file, draw_panels(title, drawn, (3.6, 3.9), keys[: 1 + promised], ending))


def lines_of(audit: "Audit", attack: str) -> list[RocLine]:
    """Return a line for each owner that has records, and one for everyone."""
    claims = {claim.owner: claim for claim in audit.claims}
    return [
        RocLine(name=named(label), success=success, claim=None if label is None else claims[label])
        for label, success in audit.successes(attack)
        if success.members
    ]


def named(label: Label | None) -> str:
    """Return the name of an owner outside of a table."""
    return EVERYONE if label is None else label if isinstance(label, str) else f"owner {label}"


def _promise(line: RocLine) -> float:
    return np.inf if line.claim is None else line.claim.spent


def allowed(epsilon: float, delta: float, fpr: np.ndarray) -> np.ndarray:
    """Return the largest true positive rates that (epsilon, delta) allows.

    >>> allowed(np.log(2), 0.0, np.array([0.01, 0.4, 0.8])).round(4).tolist()
    [0.02, 0.7, 0.9]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        few = np.where(fpr > 0, np.exp(epsilon) * fpr, 0) + delta
        return np.asarray(np.clip(np.minimum(few, 1 - np.exp(-epsilon) * (1 - delta - fpr)), 0, 1))


def _by_owner(panels: Mapping[str, Sequence[RocLine]], owners: Sequence[str]) -> dict[str, list[RocLine]]:
    """Return a panel for each owner, with a line for each method, or one for everyone if there is one method."""
    by_owner: dict[str, list[RocLine]] = {}
    for owner in owners:
        lines = [replace(line, name=name) for name, panel in panels.items() for line in panel if line.name == owner]
        if len(panels) == 1:
            (panel,) = panels.values()
            lines += [line for line in panel if line.name == EVERYONE]
        by_owner[owner] = lines
    return by_owner


def panel(axes: Axes, lines: Sequence[RocLine], floor: float) -> None:
    """Draw one panel."""
    logarithmic(axes, "x", "y")
    axes.set(xlim=(floor, 1), ylim=(floor, 1), aspect="equal")
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    axes.minorticks_off()
    axes.plot([floor, 1], [floor, 1], color="black", linewidth=0.8, zorder=1)
    fine = np.geomspace(floor, 1, 400)
    index = 0
    for line in lines:
        everyone = line.name == EVERYONE
        colour, style = (GREY, DASHES) if everyone else (COLOURS[index % 4], STYLES[index % 4])
        index += not everyone
        success = line.success
        # Rates of 0 have no place on logarithmic axes: they are drawn below the lower end.
        low, high, tpr = (np.maximum(rate, floor / 10) for rate in (success.tpr_low, success.tpr_high, success.tpr))
        if not np.isnan(success.auc):
            axes.fill_between(success.fpr, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(success.fpr, tpr, color=colour, linestyle=style, linewidth=1.8, label=_name(line))
        if line.claim is not None and line.claim.spent < np.inf:
            most = allowed(line.claim.spent, line.claim.delta, fine)
            axes.plot(fine, most, color=colour, linewidth=1.2, linestyle=DOTS, zorder=1)


def _name(line: RocLine) -> str:
    """Return the legend of a line: the owner, its epsilon, and the area under the curve."""
    success = line.success
    promise = f", ε = {_promise(line):.3g}" if _promise(line) < np.inf else ""
    area = f"AUC {success.auc:.3f} ({success.auc_low:.3f} to {success.auc_high:.3f})"
    return f"{line.name}{promise}\n{'no statistic' if np.isnan(success.auc) else area}"


def floor_of(successes: Sequence["Success"]) -> float:
    """Return the lower end of the axes: a power of ten at which a median line has about three false positives."""
    others = float(np.median([success.others for success in successes]))
    return float(10.0 ** np.clip(np.ceil(np.log10(3 / max(others, 1.0))), -4, -1))
