"""Finished runs in a file of lines, so that a study that was killed resumes where it was."""

import json
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from examples.strict_study.points import Point
from examples.strict_study.tasks import TASKS, Task
from examples.strict_study.training import Row, Runner


class Runs:
    """The runs of one task.

    Args:
        task: The task.
        file: One JSON object per line; a line that a killed process has not finished is ignored.
        root: The data directory.
        kept: Where features are kept.
    """

    def __init__(self, task: Task, file: Path, root: str | None, kept: Path) -> None:
        self.task, self._file, self._root, self._kept = task, file, root, kept
        self._rows: dict[tuple[Point, int], Row] = {}
        for line in file.read_text(encoding="utf-8").split("\n") if file.exists() else ():
            if line.endswith("}"):
                self._add(json.loads(line))

    @cached_property
    def tuning(self) -> "Runs":
        """The runs that choose: these, or those of the task whose points are used."""
        name = self.task.tuned_as
        return self if not name else Runs(TASKS[name], self._file.with_stem(name), self._root, self._kept)

    def get(self, point: Point, seed: int) -> Row | None:
        """Return a finished run."""
        return self._rows.get((point, seed))

    def all(self) -> list[Row]:
        """Return all finished runs."""
        return list(self._rows.values())

    def finish(self, points: Iterable[Point], seeds: Iterable[int]) -> None:
        """Run all that are not finished, those of a seed together; seeds that are reported get learning curves."""
        wanted = list(dict.fromkeys(points))
        for seed in seeds:
            missing = [point for point in wanted if (point, seed) not in self._rows]
            if not missing:
                continue
            begun = time.perf_counter()
            runner = Runner(self.task, seed, self._root, self._kept)
            for rows in runner.run(missing, curve=seed in self.task.seeds):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("a", encoding="utf-8") as file:
                    file.write("".join(f"\n{json.dumps(row)}" for row in rows) + "\n")
                for row in rows:
                    self._add(row)
            seconds = time.perf_counter() - begun
            print(f"{self._file.stem}: {len(missing)} runs of seed {seed}, {seconds:.0f} s", flush=True)

    def _add(self, row: Row) -> None:
        self._rows[Point(**row["point"]), row["seed"]] = row
