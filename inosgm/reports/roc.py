"""How well attacks do: true against false positive rates on logarithmic axes, owner by owner, with bands."""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from inosgm.audit.secret_files import WARNING, write_secret
from inosgm.owners import Label

if TYPE_CHECKING:
    from inosgm.audit.claims import Claim
    from inosgm.audit.report import Audit
    from inosgm.audit.roc import Success

FEW, MOST = 4, 12
"""Up to so many owners are lines of one panel; of more, so many have a panel each."""

WIDE = 4
"""How many panels are side by side."""

EVERYONE = "everyone"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
STYLES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1.5)))
"""Lines differ in both, for those who cannot tell colours apart."""

GREY, DASHES, DOTS = "#6E6E6E", (0, (4, 1, 1, 1, 1, 1)), (0, (1, 2))


@dataclass(frozen=True, kw_only=True)
class Line:
    """How well an attack does on the records of one owner, and what was promised to the owner."""

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
        file: Its name, whose ending says the format, or a file that is open for writing, which becomes SVG.
        attack: The name of the attack.
    """
    panels = {f"{name}\n{audit.about}".strip(): lines_of(audit, attack) for name, audit in audits.items()}
    owners = [line for line in next(iter(panels.values())) if line.name != EVERYONE]
    hidden = 0
    if len(owners) > FEW:
        best = sorted(owners, key=lambda line: -np.nan_to_num(line.success.auc))
        hidden = max(0, len(owners) - MOST)
        panels = _turned(panels, [line.name for line in best[:MOST]])
    high = -(-len(panels) // WIDE)
    wide = -(-len(panels) // high)
    figure = Figure(figsize=(0.8 + 3.8 * wide, 1.2 + 4.1 * high), layout="constrained")
    grid = figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False)
    floor = floor_of([line.success for lines in panels.values() for line in lines])
    for place, (axes, (title, lines)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
        panel(axes, lines, floor)
        axes.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.85, edgecolor="none", handlelength=2.6)
        axes.set_title(title, fontsize=10)
        axes.set_ylabel("true positive rate" if place % wide == 0 else "")
        lowest = place + wide >= len(panels)
        axes.set_xlabel("false positive rate" if lowest else "")
        axes.tick_params(labelbottom=lowest)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    promised = any(_promise(line) < np.inf for lines in panels.values() for line in lines)
    handles = [Line2D([], [], color="black", linewidth=0.8), Line2D([], [], color=GREY, linestyle=DOTS, linewidth=1.2)]
    names = ["guessing", "most that ε allows"][: 1 + promised]
    look: dict[str, Any] = {"ncols": 2, "frameon": False, "fontsize": 9, "title": WARNING, "title_fontsize": 8}
    figure.legend(handles[: len(names)], names, loc="outside lower center", **look)
    confidence = f"{100 * next(iter(audits.values())).confidence:g} %"
    notes = f"\nowners on whom it does worse are not shown: {hidden}" * (hidden > 0)
    figure.suptitle(f"attack: {attack}, {confidence} confidence bands{notes}", fontsize=11)
    ending = Path(file).suffix[1:].lower() if isinstance(file, str | os.PathLike) else "svg"
    stream = io.BytesIO()
    with rc_context({"svg.hashsalt": "inosgm"}):  # the same audit gives the same file
        figure.savefig(stream, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)
    write_secret(file, stream.getvalue())


def lines_of(audit: "Audit", attack: str) -> list[Line]:
    """Return a line for each owner that has records, and one for everyone."""
    claims = {claim.owner: claim for claim in audit.claims}
    return [
        Line(name=named(label), success=success, claim=None if label is None else claims[label])
        for label, success in audit.successes(attack)
        if success.members
    ]


def named(label: Label | None) -> str:
    """Return what an owner is called where it stands alone."""
    return EVERYONE if label is None else label if isinstance(label, str) else f"owner {label}"


def _promise(line: Line) -> float:
    return np.inf if line.claim is None else line.claim.spent


def allowed(epsilon: float, delta: float, fpr: np.ndarray) -> np.ndarray:
    """Return the largest true positive rates that (epsilon, delta) allows.

    >>> allowed(np.log(2), 0.0, np.array([0.01, 0.4, 0.8])).round(4).tolist()
    [0.02, 0.7, 0.9]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        few = np.where(fpr > 0, np.exp(epsilon) * fpr, 0) + delta
        return np.asarray(np.clip(np.minimum(few, 1 - np.exp(-epsilon) * (1 - delta - fpr)), 0, 1))


def _turned(panels: Mapping[str, Sequence[Line]], owners: Sequence[str]) -> dict[str, list[Line]]:
    """Return a panel for each owner, with a line for each method, or one for everyone if there is one method."""
    found: dict[str, list[Line]] = {}
    for owner in owners:
        lines = [replace(line, name=name) for name, panel in panels.items() for line in panel if line.name == owner]
        if len(panels) == 1:
            (panel,) = panels.values()
            lines += [line for line in panel if line.name == EVERYONE]
        found[owner] = lines
    return found


def panel(axes: Axes, lines: Sequence[Line], floor: float) -> None:
    """Draw one panel."""
    axes.set(xscale="log", yscale="log", xlim=(floor, 1), ylim=(floor, 1), aspect="equal")
    axes.minorticks_off()
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.plot([floor, 1], [floor, 1], color="black", linewidth=0.8, zorder=1)
    fine = np.geomspace(floor, 1, 400)
    place = 0
    for line in lines:
        everyone = line.name == EVERYONE
        colour, style = (GREY, DASHES) if everyone else (COLOURS[place % 4], STYLES[place % 4])
        place += not everyone
        found = line.success
        low, high = (np.maximum(values, floor / 10) for values in (found.tpr_low, found.tpr_high))
        if not np.isnan(found.auc):
            axes.fill_between(found.fpr, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(
            found.fpr,
            np.maximum(found.tpr, floor / 10),
            color=colour,
            linestyle=style,
            linewidth=1.8,
            label=_name(line),
        )
        if line.claim is not None and line.claim.spent < np.inf:
            most = allowed(line.claim.spent, line.claim.delta, fine)
            axes.plot(fine, most, color=colour, linewidth=1.2, linestyle=DOTS, zorder=1)


def _name(line: Line) -> str:
    """Return what a legend says: the owner, what it was promised, and the area under the curve."""
    found = line.success
    promise = f", ε = {_promise(line):.3g}" if _promise(line) < np.inf else ""
    area = f"AUC {found.auc:.3f} ({found.auc_low:.3f} to {found.auc_high:.3f})"
    return f"{line.name}{promise}\n{'no statistic' if np.isnan(found.auc) else area}"


def floor_of(found: Sequence["Success"]) -> float:
    """Return where axes begin: a power of ten at which a typical line has a few false alarms, within reason."""
    others = float(np.median([one.others for one in found]))
    return float(10.0 ** np.clip(np.ceil(np.log10(3 / max(others, 1.0))), -4, -1))
