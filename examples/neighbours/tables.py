"""Tables of the study, one per setting, made of its numbers."""

from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

from examples.neighbours.designs import ACCURACY, AVERAGE, SETTINGS, WORST
from examples.study.pages import markdown

HEADS = {ACCURACY: "accuracy", AVERAGE: "average over groups", WORST: "worst group"}
BASE = "dp-sgd"
"""What papers compare with."""

ALIKE = 3.0
"""Differences of the same sign agree if neither is more than this many times the other."""


def table(found: dict[str, Any]) -> str:
    """Return a row for each method: what it promises, what it spent, what it is worth."""
    rows = [["method", "unit", "accountant", "most spent", "learning rate", *HEADS.values(), "seeds"]]
    best = {measure: max(fmean(one[measure]) for one in found["methods"]) for measure in HEADS}
    for one in found["methods"]:
        cells = [_shown(one[measure], best[measure]) for measure in HEADS]
        rows.append(
            [_marked(one), unit(one), one["accountant"], _spent(one), f"{one['lr']:g}", *cells, str(len(one["seeds"]))]
        )
    return markdown(rows)


def agreement(found: dict[str, Any]) -> str:
    """Return what a paper and this study say about each method against DP-SGD, and whether they agree.

    A difference counts if its 95 % confidence interval, over pairs of runs with the same seed, does not hold 0.
    """
    setting, methods = SETTINGS[found["setting"]], {one["method"]: one for one in found["methods"]}
    rows = [[f"minus `{BASE}`", "measure", setting.source, "here", ""]]
    for name, published in setting.published.items():
        if name == BASE or not {name, BASE} <= methods.keys():
            continue
        for measure, value in published.items():
            gap = value - setting.published[BASE][measure]
            pairs = zip(methods[name][measure], methods[BASE][measure], strict=True)
            mean, half = _interval([one - other for one, other in pairs])
            shown = "within noise" if abs(mean) <= half else verdict(gap, mean)
            rows.append([f"`{name}`", HEADS[measure], f"{gap:+.3f}", f"{mean:+.3f} ± {half:.3f}", shown])
    return markdown(rows)


def verdict(published: float, here: float) -> str:
    """Say whether two differences agree: they have the same sign, and neither is more than `ALIKE` times the other.

    >>> verdict(0.01, 0.02), verdict(0.01, 0.3), verdict(0.3, 0.01), verdict(-0.1, 0.1)
    ('agrees', 'same sign, 30 times the size', 'same sign, 0.033 times the size', '**disagrees**')
    """
    ratio = here / published if published else float("inf")
    if ratio <= 0:
        return "**disagrees**"
    if 1 / ALIKE <= ratio <= ALIKE:
        return "agrees"
    return f"same sign, {ratio:.2g} times the size"


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % confidence interval; infinite for a single value."""
    n = len(values)
    return fmean(values), float(t.ppf(0.975, n - 1)) * stdev(values) / n**0.5 if n > 1 else float("inf")


def unit(one: dict[str, Any]) -> str:
    """Return what neighbouring data sets differ in."""
    return "replace-one" if one["plan"].get("sampling") == "without_replacement" else "add/remove"


def breaks(one: dict[str, Any]) -> bool:
    """Say whether an owner spends more than it granted, beyond what epsilons are rounded up by."""
    return any(row["spent"] > 1.001 * row["epsilon"] for row in one["budgets"])


def _marked(one: dict[str, Any]) -> str:
    marks = "¹" * (unit(one) == "replace-one") + "²" * breaks(one)
    return f"`{one['method']}`{marks}"


def _spent(one: dict[str, Any]) -> str:
    """Show the owner that spends the largest part of what it granted."""
    row = max(one["budgets"], key=lambda row: row["spent"] / row["epsilon"])
    return f"{row['spent']:.3g} of {row['epsilon']:.3g}"


def _shown(values: list[float], best: float) -> str:
    """Show mean and standard deviation over the seeds, the best mean in bold."""
    mean = fmean(values)
    text = f"{mean:.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
    return f"**{text}**" if mean == best else text
