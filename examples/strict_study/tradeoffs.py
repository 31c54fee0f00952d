"""What the balance-utility picture shows besides the methods' best points: other tails, and lowered budgets."""

from collections.abc import Mapping
from dataclasses import replace

from examples.strict_study.points import Point
from examples.strict_study.tuning import Choice

TAILS = (0.3, 0.5, 0.7, 0.9)
LOWERED = (0.25, 0.5, 0.75)


def tails(point: Point) -> list[Point]:
    """Return a point with shorter and longer tails (ino-sgd.txt Fig. 16)."""
    return [replace(point, tail=tail) for tail in TAILS]


def lowered(point: Point) -> list[Point]:
    """Return a point, and the same with budgets lowered towards the strictest one (ino-sgd.txt Fig. 20)."""
    return [point, *(replace(point, plan=f"lowered {share}") for share in LOWERED)]


def paths(choices: Mapping[str, Choice]) -> list[Point]:
    """Return the points beside the chosen ones; strengths after training need none."""
    found = [point for name, (chosen, _) in choices.items() if shows_tails(name) for point in tails(chosen)]
    return [*found, *lowered(choices["IDP-SGD (SCALE)"].point)]


def shows_tails(method: str) -> bool:
    """Say whether the picture shows other tails of a method."""
    return method.startswith("INO-SGD") and not method.endswith("+ c")
