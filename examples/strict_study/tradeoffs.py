"""What the balance-utility picture shows: points on the way between the methods' best ones."""

from collections.abc import Mapping
from dataclasses import replace

from examples.strict_study.points import Point
from examples.strict_study.tuning import Choice

TAILS = (0.3, 0.5, 0.7, 0.9)
STRENGTHS = (0.0, 0.5, 1.0, 1.5)
LOWERED = (0.25, 0.5, 0.75)


def paths(choices: Mapping[str, Choice]) -> list[Point]:
    """Return points beside the chosen ones: other tails and strengths, and lowered budgets (ino-sgd.txt Fig. 20)."""
    found = []
    for name, (point, _) in choices.items():
        if point.tail:
            found += [replace(point, tail=tail) for tail in TAILS]
        if name.endswith("+ c") and point.plan in ("scale", "sample"):
            found += [replace(point, inside=inside) for inside in STRENGTHS]
        if point.plan == "scale" and not point.tail and not point.inside:
            found += [replace(point, plan=f"lowered {share}") for share in LOWERED]
    return found
