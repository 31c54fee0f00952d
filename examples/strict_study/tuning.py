"""How the numbers of a method are chosen: by one rule for all, with seeds and held-out records that are not reported.

All points of the starting grid run with the first tuning seed. The best few and, again and again, the neighbours of the
best point run with all tuning seeds, until every neighbour of the best point has been tried: so it is at no edge.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from examples.strict_study.points import Method, Point
from examples.strict_study.runs import Runs
from examples.strict_study.training import Row

FINALISTS = 4
"""How many points of the starting grid get all tuning seeds."""

MARGIN = 0.01
"""A point that is worse by more than this with the first tuning seed gets no other."""


class Choice(NamedTuple):
    """What tuning has chosen."""

    point: Point
    after: float


def balanced(row: Row, after: float, half: int) -> float:
    """Return the mean recall of the classes: of the half that chooses (0), or of the other (1)."""
    return float(np.mean(np.array(row["right"][str(after)][half]) / row["held_out"][half]))


def score(runs: Runs, method: Method, point: Point, seeds: Sequence[int]) -> tuple[float, float]:
    """Return the score of a point with its best strength after training, and that strength; -1 if a run is missing."""
    rows = [runs.get(point, seed) for seed in seeds]
    if not all(rows):
        return -1.0, 0.0
    some = [row for row in rows if row]
    strengths = counted(some) if method.corrected else [0.0]
    return max((float(np.mean([balanced(row, after, 0) for row in some])), -after) for after in strengths)


def counted(rows: Sequence[Row]) -> list[float]:
    """Return the strengths after training that all of some runs have counted, ascending."""
    return sorted(set.intersection(*({float(after) for after in row["right"]} for row in rows)))


def choose(runs: Runs, method: Method) -> Choice:
    """Return the best point among those with all tuning seeds."""
    seeds = runs.task.tuning_seeds
    points = dict.fromkeys(Point(**row["point"]) for row in runs.all())
    of_method = [point for point in points if belongs(method, point)]
    best = max(of_method, key=lambda point: score(runs, method, point, seeds)[0])
    return Choice(best, -score(runs, method, best, seeds)[1])


def belongs(method: Method, point: Point) -> bool:
    """Say whether a point is one of a method's; the extras of the study belong to none."""
    return (
        (point.tail > 0) == method.tailed
        and (method.corrected or not point.inside)
        and replace(point, rate=0.0, tail=0.0, inside=0.0, temperature=0.0) == Point(method.plan, 0.0)
    )


def tune(runs: Runs, methods: Sequence[Method]) -> dict[str, Choice]:
    """Tune all methods, round by round, so that those of one round share batches."""
    first, *others = runs.task.tuning_seeds

    def leading(method: Method, points: Sequence[Point]) -> list[Point]:
        """Return the points that are close to the best of their method with the first seed."""
        scores = {point: score(runs, method, point, [first])[0] for point in points}
        ranked = sorted(scores, key=lambda point: -scores[point])
        return [point for point in ranked if scores[point] >= scores[ranked[0]] - MARGIN]

    grids = {method: method.start(runs.task.grid) for method in methods}
    runs.finish([point for grid in grids.values() for point in grid], [first])
    runs.finish([p for method in methods for p in leading(method, grids[method])[:FINALISTS]], others)
    known: set[tuple[Method, Point]] = set()
    while True:
        best = {method: choose(runs, method).point for method in methods}
        if set(best.items()) <= known:
            return {method.name: choose(runs, method) for method in methods}
        known |= set(best.items())
        around = {method: method.neighbours(point) for method, point in best.items()}
        runs.finish([point for points in around.values() for point in points], [first])
        runs.finish([p for method in methods for p in leading(method, [best[method], *around[method]])], others)
