"""Pictures of an audit: NOT PRIVATE, as secret as the records."""

from functools import partial

import numpy as np
from matplotlib.axes import Axes

from inosgm.reports import roc
from inosgm.reports.contents import Audited
from inosgm.reports.pictures import BLUE, GREY, Panel, Picture, Style
from inosgm.reports.tables import TextTable, number

MAX_PANELS = 12
"""Largest number of owners with a panel: those on whom the attack does best."""


KEYS = (
    ("attack on an owner", Style(colour=BLUE, marker="")),
    ("attack on everyone", Style(colour=GREY, dashes=roc.DASHES, marker="")),
    ("guessing", Style(colour="#000000", marker="")),
)
"""The legend of an ROC picture."""

ALLOWED = ("most that ε allows", Style(colour=BLUE, dashes=roc.DOTS, marker=""))
"""The entry of the legend for claimed epsilons."""


def roc_of(audited: Audited, name: str) -> Picture:
    """Draw true against false positive rates of the first attack, a panel for each owner, and one for everyone."""
    audit = audited.audit
    lines = roc.lines_of(audit, audit.attacks[0])
    everyone = [line for line in lines if line.name == roc.EVERYONE]
    owners = sorted((line for line in lines if line not in everyone), key=lambda line: -np.nan_to_num(line.success.auc))
    shown = [line for line in lines if line in owners[:MAX_PANELS]]
    floor = roc.floor_of([line.success for line in lines])

    def draw(line: roc.RocLine, axes: Axes) -> None:
        roc.panel(axes, [line], floor)

    rows = []
    for line in [*shown, *everyone]:
        success = line.success
        rates = [f"{number(rate.tpr)} ({number(rate.low)} to {number(rate.high)})" for rate in success.at.values()]
        area = f"{number(success.auc)} ({number(success.auc_low)} to {number(success.auc_high)})"
        rows.append((line.name, str(success.records), area, *rates))
    hidden = len(owners) - len(shown)
    best = owners[0]
    return Picture(
        name=name,
        title=f"Membership inference against {audited.name}",
        text=f"True against false positive rates of the attack {audit.attacks[0]} on logarithmic axes, with "
        f"{100 * audit.confidence:g} % bands; the diagonal is guessing, a dotted line the most that epsilon allows. It "
        f"does best on {best.name}, with an area under the curve of {number(best.success.auc)}.",
        panels=tuple(Panel(title=_title(line), draw=partial(draw, line)) for line in [*shown, *everyone]),
        size=(3.4, 3.4),
        table=TextTable(
            caption=f"How well {audit.attacks[0]} does, with {100 * audit.confidence:g} % intervals",
            header=("attack on", "records", "AUC", "TPR at FPR 0.1 %", "at 1 %", "at 10 %"),
            rows=tuple(rows),
        ),
        keys=(*KEYS, ALLOWED) if any(map(_promised, shown)) else KEYS,
        note=f"{hidden} owners on whom the attack does worse are not shown" * (hidden > 0),
        secret=True,
    )


def _title(line: roc.RocLine) -> str:
    """Return the owner under attack, the spent epsilon and the AUC."""
    spent = f", ε = {line.claim.spent:.3g}" if line.claim is not None and _promised(line) else ""
    return f"{line.name}{spent}, AUC {number(line.success.auc)}"


def _promised(line: roc.RocLine) -> bool:
    """Return whether the owner under attack has a finite epsilon."""
    return line.claim is not None and bool(np.isfinite(line.claim.spent))


def verdicts_of(audited: Audited) -> TextTable:
    """Return a table of claims and lower bounds; of many owners, the contradicted ones and the largest bounds."""
    from inosgm.audit.tables import BOUNDS

    ranked = sorted(
        audited.audit.verdicts, key=lambda verdict: (not verdict.contradicted, -audited.bounds[verdict.claim.owner])
    )
    shown = [verdict for verdict in audited.audit.verdicts if verdict in ranked[:40]]
    rows = [
        (
            str(verdict.claim.owner),
            "-" if verdict.claim.granted is None else f"{verdict.claim.granted:.4g}",
            f"{verdict.claim.spent:.4g}",
            *(f"{verdict.bounds[name].epsilon:.3f}" if name in verdict.bounds else "-" for name in BOUNDS),
            "CONTRADICTED" if verdict.contradicted else "not contradicted",
        )
        for verdict in shown
    ]
    hidden = len(audited.audit.verdicts) - len(shown)
    return TextTable(
        caption=f"Lower bounds on epsilon, all at once with {100 * audited.audit.confidence:g} % confidence",
        header=("owner", "granted", "spent by a shadow model", *(f"by {name}" for name in BOUNDS), "verdict"),
        rows=tuple(rows),
        notes=(f"{hidden} owners with smaller bounds are not shown",) * (hidden > 0),
    )
