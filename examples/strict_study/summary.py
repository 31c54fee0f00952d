"""What reported runs say: how well each method serves everybody, and each owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from examples.strict_study.points import Method, Point, methods
from examples.strict_study.runs import Runs
from examples.strict_study.training import Row
from examples.strict_study.tuning import Choice, belongs, choose, counted, score

CHOOSING, REPORTED = 0, 1
"""The half of the held-out records that chooses, and the half that is reported."""


class Measures(NamedTuple):
    """What one run achieves on held-out records; recalls are from the strictest owner to the most lenient one."""

    accuracy: float
    balanced: float
    strictest: float
    worst: float
    spread: float
    recalls: tuple[float, ...]


def measures(row: Row, after: float, counts: Any = None, half: int = REPORTED) -> Measures:
    """Return what a run achieves on half of the held-out records.

    Args:
        row: The run.
        after: The strength after training.
        counts: The counts of an earlier moment of the run's curve; those of its end if not given.
        half: Which half.
    """
    right = np.array((row["right"] if counts is None else counts)[str(after)][half])
    held_out = np.array(row["held_out"][half])
    owners = np.array(row["owner_of_class"])
    names = by_strictness(row)
    recalls = np.array([right[owners == name].sum() / held_out[owners == name].sum() for name in names])
    return Measures(
        accuracy=float(right.sum() / held_out.sum()),
        balanced=float(np.mean(right / held_out)),
        strictest=float(recalls[0]),
        worst=float(recalls.min()),
        spread=float(recalls.std()),
        recalls=tuple(recalls.tolist()),
    )


def by_strictness(row: Row) -> list[Any]:
    """Return the owners from the strictest on; groups without a budget of their own are in the order of classes."""
    budgets = dict(zip(row["owner_of_class"], row["epsilon_of_class"], strict=True))
    return sorted(budgets, key=lambda name: 0 if budgets[name] is None else budgets[name])


@dataclass(frozen=True, eq=False)
class Outcome:
    """A tuned method and its reported runs.

    Attributes:
        method: The method.
        choice: What tuning has chosen.
        rows: The reported runs, one per seed.
    """

    method: Method
    choice: Choice
    rows: Sequence[Row]

    def values(self, name: str) -> np.ndarray:
        """Return a measure of every run."""
        return np.array([getattr(measures(row, self.choice.after), name) for row in self.rows])


def outcomes(runs: Runs) -> dict[str, Outcome]:
    """Return the methods whose reported runs are finished, by name."""
    found = {}
    known = {Point(**row["point"]) for row in runs.tuning.all()}
    for method in methods(runs.task):
        if any(belongs(method, point) for point in known):
            choice = choose(runs.tuning, method)
            rows = [row for seed in runs.task.seeds if (row := runs.get(choice.point, seed))]
            if len(rows) == len(runs.task.seeds):
                found[method.name] = Outcome(method, choice, rows)
    return found


def as_strict_as(runs: Runs, outcome: Outcome, baseline: Outcome) -> Outcome | None:
    """Return a corrected method with the least strength after training that serves the strictest as a baseline does.

    The strength is chosen by the tuning seeds and the records that choose; None if no strength does.
    """

    def tuned(point: Point) -> list[Row]:
        return [row for seed in runs.task.tuning_seeds if (row := runs.tuning.get(point, seed))]

    def strictest(point: Point, after: float) -> float:
        return float(np.mean([measures(row, after, half=CHOOSING).strictest for row in tuned(point)]))

    least, point = strictest(*baseline.choice), outcome.choice.point
    after = next((after for after in counted(tuned(point)) if strictest(point, after) >= least), None)
    return None if after is None else Outcome(outcome.method, Choice(point, after), outcome.rows)


def variant(runs: Runs, points: Sequence[Point], corrected: bool) -> Outcome | None:
    """Return the best of some points and strengths by the tuning seeds, with its reported runs; None if one misses."""
    seeds = (*runs.task.tuning_seeds, *runs.task.seeds)
    if not all(runs.get(point, seed) for point in points for seed in seeds):
        return None
    method = Method("", points[0].plan, tailed=points[0].tail > 0, corrected=corrected)
    best = max(points, key=lambda point: score(runs, method, point, runs.task.tuning_seeds)[0])
    choice = Choice(best, -score(runs, method, best, runs.task.tuning_seeds)[1])
    return Outcome(method, choice, [row for seed in runs.task.seeds if (row := runs.get(best, seed))])
