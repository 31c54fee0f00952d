"""The points that an earlier study has chosen: its csv states them, so that its runs are made again without tuning."""

import csv
from collections.abc import Sequence
from pathlib import Path

from examples.strict_study.points import Method, Point


def chosen_points(file: Path, task: str, methods: Sequence[Method]) -> dict[str, Point]:
    """Return the chosen point of every method of a task that a csv of the study reports, by the method's name.

    Args:
        file: The csv that `page.write` writes.
        task: The name of the task.
        methods: The methods of the task.
    """
    plans = {method.name: method.plan for method in methods}
    with file.open(encoding="utf-8", newline="") as lines:
        return {
            row["method"]: Point(
                plans[row["method"]],
                float(row["learning_rate"]),
                float(row["tail"]),
                float(row["strength_in_loss"]),
                float(row["temperature"]),
            )
            for row in csv.DictReader(lines)
            if row["task"] == task and row["method"] in plans
        }
