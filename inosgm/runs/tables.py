"""Tables for people: what every owner granted, spent and got."""

from collections.abc import Sequence

import numpy as np

from inosgm.plan import Plan
from inosgm.sgd.metrics import Evaluation

MOST = 40
"""How many owners a table shows."""


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in (header, *rows)
    ]


def owner_table(plan: Plan, step: int, found: Evaluation) -> str:
    """Return what every owner granted and has spent after some steps of a plan, and what the model is worth to it."""
    spent = plan.spent(step) if plan.epsilon is not None else np.full(len(plan.labels), np.nan)
    granted = spent if plan.epsilon is None else plan.epsilon
    place = {label: index for index, label in enumerate(plan.labels)}
    ordered = sorted(found.by_owner, key=lambda label: found.by_owner[label].accuracy or 0.0)
    shown = set(ordered[:MOST])
    rows = []
    for label, owner in found.by_owner.items():
        if label in shown:
            known = place.get(label)
            budget = ["", ""] if known is None else [f"{granted[known]:.4g}", f"{spent[known]:.4g}"]
            rows.append([str(label), *budget, str(owner.records), _share(owner.accuracy)])
    rows.append(["everyone", "", "", str(found.records), _share(found.accuracy)])
    lines = columns(["owner", "epsilon granted", "spent", "held out", "accuracy"], rows)
    lines += [f"({len(ordered) - MOST} owners with a better accuracy are not shown)"] * (len(ordered) > MOST)
    if set(found.by_owner) - set(place):
        lines.append(
            f"held-out records are grouped by class; {len(place)} owners granted epsilon {granted.min():.4g} to "
            f"{granted.max():.4g} and have spent {spent.min():.4g} to {spent.max():.4g}"
        )
    lines.append(
        f"balanced accuracy {_share(found.balanced_accuracy)}, worst owner {found.worst_owner}, "
        f"spread {_share(found.spread)}"
    )
    return "\n".join(lines)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
