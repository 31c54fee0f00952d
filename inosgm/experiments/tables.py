"""Tables for people: what every owner granted, spent and got."""

import numpy as np

from inosgm._internal.text import MAX_ROWS, columns
from inosgm.planning.plan import Plan
from inosgm.training.metrics import Evaluation


def owner_table(plan: Plan, step: int, found: Evaluation) -> str:
    """Return what every owner granted and has spent after some steps of a plan, and what the model is worth to it."""
    spent = plan.spent(step) if plan.epsilon is not None else np.full(len(plan.labels), np.nan)
    granted = spent if plan.epsilon is None else plan.epsilon
    place = {label: index for index, label in enumerate(plan.labels)}
    owned = set(found.by_owner) <= set(place)
    ordered = sorted(found.by_owner, key=lambda label: found.by_owner[label].accuracy or 0.0)
    shown = set(ordered[:MAX_ROWS])
    rows = [
        [
            str(label),
            *([f"{granted[place[label]]:.4g}", f"{spent[place[label]]:.4g}"] if owned else []),
            str(owner.records),
            _share(owner.accuracy),
        ]
        for label, owner in found.by_owner.items()
        if label in shown
    ]
    rows.append(["everyone", *["", ""] * owned, str(found.records), _share(found.accuracy)])
    who = "owner" if owned else "group"
    lines = columns([who, *["epsilon granted", "spent"] * owned, "held out", "accuracy"], rows)
    lines += [f"({len(ordered) - MAX_ROWS} {who}s with a better accuracy are not shown)"] * (len(ordered) > MAX_ROWS)
    if not owned:
        lines.append(
            f"held-out records have no owner; {len(place)} owners granted epsilon {granted.min():.4g} to "
            f"{granted.max():.4g} and have spent {spent.min():.4g} to {spent.max():.4g}"
        )
    lines.append(
        f"balanced accuracy {_share(found.balanced_accuracy)}, worst {who} {found.worst_owner}, "
        f"spread {_share(found.spread)}"
    )
    return "\n".join(lines)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
