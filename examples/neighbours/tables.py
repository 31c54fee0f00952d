"""Tables of the study, one per setting, made of its numbers."""

from statistics import fmean, stdev
from typing import Any

from examples.neighbours.designs import SETTINGS
from examples.study.pages import markdown

HEADS = {"accuracy": "accuracy", "balanced_accuracy": "average over groups", "worst_owner": "worst group"}


def table(found: dict[str, Any]) -> str:
    """Return a row for each method: what it promises, what it spent, what it is worth, what its paper says."""
    setting = SETTINGS[found["setting"]]
    rows = [["method", "unit", "accountant", "most spent", "learning rate", *HEADS.values(), setting.source]]
    best = {measure: max(fmean(one[measure]) for one in found["methods"]) for measure in HEADS}
    for one in found["methods"]:
        cells = [_shown(one[measure], best[measure]) for measure in HEADS]
        published = setting.published.get(one["method"], "")
        rows.append(
            [_marked(one), unit(one), one["accountant"], _spent(one), f"{one['lr']:g}", *cells, published],
        )
    return markdown(rows)


def unit(one: dict[str, Any]) -> str:
    """Return what neighbouring data sets differ in."""
    return "replace-one" if one["plan"].get("sampling") == "without_replacement" else "add/remove"


def breaks(one: dict[str, Any]) -> bool:
    """Say whether an owner spends more than it granted."""
    return any(row["spent"] > row["epsilon"] for row in one["budgets"])


def _marked(one: dict[str, Any]) -> str:
    marks = "¹" * (unit(one) == "replace-one") + "²" * breaks(one)
    return f"`{one['method']}`{marks}"


def _spent(one: dict[str, Any]) -> str:
    """Show the owner that spends the largest part of what it granted."""
    row = max(one["budgets"], key=lambda row: row["spent"] / row["epsilon"])
    return f"{row['spent']:.3g} of {row['epsilon']:g}"


def _shown(values: list[float], best: float) -> str:
    """Show mean and standard deviation over the seeds, the best mean in bold."""
    mean = fmean(values)
    text = f"{mean:.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
    return f"**{text}**" if mean == best else text
