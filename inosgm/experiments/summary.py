"""Mean, spread and confidence band of runs that differ in their seed, by owner and step."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Self

import numpy as np
from scipy.special import stdtrit

from inosgm._internal.plugins import plugin
from inosgm._internal.text import MAX_ROWS, columns
from inosgm.experiments.task import KIND
from inosgm.jobs import JobSpec, Store
from inosgm.owners import Label
from inosgm.training.curve import LearningCurve
from inosgm.training.metrics import Evaluation

METRICS = ("accuracy", "recall", "loss")
"""Metrics that are averaged; the recall of everyone is the balanced accuracy."""

CONFIDENCE = 0.95
"""Probability that a band holds the mean of all seeds, for values that are about normal."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """A summary of runs that differ in their seed, on the same held-out records.

    The arrays have the axes metric (as in METRICS), step, owner; the last owner is everyone. NaN is where there is no
    number: a deviation needs two runs, an accuracy needs predictions, a mean loss needs finite losses.

    Attributes:
        owners: Who has held-out records, or the groups that they are looked at by.
        steps: After how many steps.
        seeds: How many runs are in it.
        jobs: How many runs there will be when all are done.
        mean: The mean over the runs.
        deviation: Their standard deviation, with n - 1 in the denominator.
        low: The lower end of the 95 % confidence interval of the mean, by Student's t; that of a rate within [0, 1].
        high: The upper end.
        counts: How many of the runs have a number.
        budgets: For each owner of training records its `owner`, `records`, `epsilon`, `delta`, and what the most
            expensive run has `spent`; empty where that is not known.

    >>> from inosgm.training.metrics import evaluation
    >>> def curve(right):
    ...     made = LearningCurve()
    ...     made.append(0, evaluation([0.7, 0.7], [0, 0], [0, 1], owners=["a", "b"]))
    ...     made.append(10, evaluation([0.2, 0.1], [0, right], [0, 1], owners=["a", "b"]))
    ...     return made
    >>> print(Summary.of_curves([curve(1), curve(0), curve(1)], jobs=4).table())
    after 10 steps, 3 of 4 seeds: mean ± standard deviation
    owner          accuracy       95 % band         recall           loss
    a         1.000 ± 0.000  1.000 to 1.000  1.000 ± 0.000  0.200 ± 0.000
    b         0.667 ± 0.577  0.000 to 1.000  0.667 ± 0.577  0.100 ± 0.000
    everyone  0.833 ± 0.289  0.116 to 1.000  0.833 ± 0.289  0.150 ± 0.000
    """

    owners: tuple[Label, ...]
    steps: tuple[int, ...]
    seeds: int
    jobs: int
    mean: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray
    counts: np.ndarray
    budgets: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of_curves(
        cls, curves: Sequence[LearningCurve], jobs: int | None = None, *, budgets: Sequence[Mapping[str, Any]] = ()
    ) -> Self:
        """Summarise learning curves.

        Args:
            curves: One for each run that is done.
            jobs: How many runs there will be; as many as are done if not given.
            budgets: What each owner of training records grants and has spent.

        Raises:
            ValueError: for no curves, and for curves that were not evaluated after the same steps.
        """
        if not curves:
            raise ValueError("curves must hold one at least: no run is done yet")
        steps = curves[0].steps
        for curve in curves:
            if curve.steps != steps or not steps:
                raise ValueError(
                    f"curves must be evaluated after the same steps, got {_grid(steps)} and {_grid(curve.steps)}: "
                    "summarise runs of one configuration"
                )
        owners = tuple(dict.fromkeys(label for curve in curves for label in curve.owners))
        values = np.array([[_values(found, owners) for found in curve.evaluations] for curve in curves])
        return cls(
            owners=owners,
            steps=steps,
            seeds=len(curves),
            jobs=jobs or len(curves),
            **_statistics(values),
            budgets=tuple(budgets),
        )

    @classmethod
    def of(cls, store: Store) -> Self:
        """Summarise the runs of a store, those that are done.

        Raises:
            ValueError: if none is done, or they are of several configurations.
            StoreDamaged: for a result that is not what was written.
        """
        specs, states = runs_of(store), store.states()
        if not specs and (others := {spec.kind for spec in store.specs().values()}):
            raise ValueError(f"{store.uri} must hold training runs, it holds jobs of another kind: {', '.join(others)}")
        results = [store.values(job) for job in specs if states[job].done]
        kinds = {replace(spec, index=0).id for spec in specs.values()}
        if len(kinds) > 1:
            raise ValueError(f"{store.uri} must hold runs of one configuration, it holds {len(kinds)}")
        if not results:
            raise ValueError(f"{store.uri} holds no results yet: of {len(specs)} runs none is done")
        curves = [LearningCurve.from_json(json.dumps(values["curve"])) for values in results]
        return cls.of_curves(curves, jobs=len(specs), budgets=most_expensive([values["owners"] for values in results]))

    @property
    def owned(self) -> bool:
        """Whether held-out records are looked at by owner, as far as is known, and not by groups such as classes."""
        return not self.budgets or set(self.owners) <= {row["owner"] for row in self.budgets}

    @property
    def about(self) -> str:
        """Say how many of the runs are in it."""
        return f"{self.seeds} of {self.jobs} seeds"

    def worst(self, most: int) -> list[int]:
        """Return the places of the owners that ended worst, at most so many, in their order."""
        predicted = self.counts[0, -1, -1] > 0
        value = self.mean[0, -1, :-1] if predicted else -self.mean[METRICS.index("loss"), -1, :-1]
        ranked = np.argsort(np.where(np.isnan(value), -np.inf, value), kind="stable")
        return sorted(ranked[:most].tolist())

    def table(self) -> str:
        """Return a table for people: what every owner has after the last step. Of very many, the worst are shown."""
        shown = [place for place, name in enumerate(METRICS) if self.counts[place, -1, -1]]
        first, rows = shown[0], []
        for owner in [*self.worst(MAX_ROWS), len(self.owners)]:
            cells = [_shown(self.mean[m, -1, owner], " ± ", self.deviation[m, -1, owner]) for m in shown]
            band = _shown(self.low[first, -1, owner], " to ", self.high[first, -1, owner])
            name = "everyone" if owner == len(self.owners) else str(self.owners[owner])
            rows.append([name, cells[0], band, *cells[1:]])
        names = [METRICS[place] for place in shown]
        who = "owner" if self.owned else "group"
        lines = columns([who, names[0], f"{CONFIDENCE:.0%} band".replace("%", " %"), *names[1:]], rows)
        hidden = len(self.owners) - MAX_ROWS
        lines += [f"({hidden} {who}s that ended better are not shown)"] * (hidden > 0)
        missing = [METRICS[place] for place in shown if (self.counts[place, -1] < self.seeds).any()]
        lines += [f"(not all seeds have a finite {' and '.join(missing)} for every {who})"] * bool(missing)
        title = f"after {self.steps[-1]} steps, {self.about}: mean ± standard deviation"
        return "\n".join([title, *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON, as it is after the last step; None is where there is no number.

        `owners` have their budgets, as far as they are known, and their numbers; where held-out records are looked at
        by other groups, such as classes, `groups` have the numbers.
        """

        def numbers(owner: int) -> dict[str, Any]:
            parts = {"mean": self.mean, "deviation": self.deviation, "low": self.low, "high": self.high}
            return {
                metric: {name: _known(values[place, -1, owner]) for name, values in parts.items()}
                for place, metric in enumerate(METRICS)
            }

        found = {label: numbers(place) for place, label in enumerate(self.owners)}
        owners: dict[Label, dict[str, Any]] = {row["owner"]: dict(row) for row in self.budgets}
        if self.owned:
            for label, values in found.items():
                owners[label] = {**owners.get(label, {"owner": label}), **values}
        return {
            "steps": self.steps[-1],
            "seeds": self.seeds,
            "jobs": self.jobs,
            "owners": list(owners.values()),
            "groups": [] if self.owned else [{"group": label, **values} for label, values in found.items()],
            "everyone": numbers(len(self.owners)),
        }

    def to_parquet(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write a Parquet file with a row per owner, step and metric.

        Its columns are owner (null for everyone), step, metric, mean, standard_deviation, low and high (the confidence
        band), seeds (how many runs have this number) and jobs (how many there will be); null is where there is no
        number. The metadata of its schema also says how many runs are in it: inosgm.seeds, inosgm.jobs.

        Args:
            file: Its name, or a file that is open for writing.
        """
        import pyarrow as pa
        from pyarrow import parquet

        metrics, steps, owners = self.mean.shape
        who = [*map(str, self.owners), None]
        numbers = {"mean": self.mean, "standard_deviation": self.deviation, "low": self.low, "high": self.high}
        data = {
            "owner": pa.array(who * (metrics * steps), pa.string()),
            "step": np.tile(np.repeat(self.steps, owners), metrics),
            "metric": np.repeat(METRICS, steps * owners).tolist(),
            **{name: pa.array(values.ravel(), from_pandas=True) for name, values in numbers.items()},
            "seeds": self.counts.ravel(),
            "jobs": np.full(self.mean.size, self.jobs),
        }
        about = {"inosgm.seeds": str(self.seeds), "inosgm.jobs": str(self.jobs)}
        table = pa.table(data).replace_schema_metadata(about)
        target = file if hasattr(file, "write") else os.fspath(file)
        parquet.write_table(table, target)

    def figure(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Draw mean and band of every owner over the steps, a panel each.

        Args:
            file: Its name, whose ending says the format, or a file that is open for writing, which becomes SVG.
        """
        plugin("draw a summary of seeds")(self, file)


def runs_of(store: Store) -> dict[str, JobSpec]:
    """Return the training runs of a store by job, in the order of their indices, without jobs that they build on."""
    return {job: spec for job, spec in store.specs().items() if spec.kind == KIND}


def most_expensive(runs: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Mapping[str, Any], ...]:
    """Return the owners of some runs, each as in the run that has cost it most."""
    found: dict[Label, Mapping[str, Any]] = {}
    for row in (row for rows in runs for row in rows):
        if row["owner"] not in found or row["spent"] > found[row["owner"]]["spent"]:
            found[row["owner"]] = row
    return tuple(found.values())


def _values(found: Evaluation, owners: Sequence[Label]) -> list[list[float]]:
    """Return the metrics of an evaluation, for every owner and, last, everyone; NaN where there is none."""
    everyone = (found.accuracy, found.balanced_accuracy, found.loss)
    return [
        [
            np.nan if value is None else value
            for value in (*(getattr(found.by_owner.get(label), metric, None) for label in owners), total)
        ]
        for metric, total in zip(METRICS, everyone, strict=True)
    ]


def _statistics(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return what the axes run, step, metric, owner come to over the runs."""
    values = values.swapaxes(1, 2)
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0).sum(axis=0) / counts
        deviation = np.sqrt(
            np.where(known, (values - mean) ** 2, 0).sum(axis=0) / np.where(counts > 1, counts - 1, np.nan)
        )
        margin = stdtrit(counts - 1, (1 + CONFIDENCE) / 2) * deviation / np.sqrt(counts)
    low, high = mean - margin, mean + margin
    rates = slice(METRICS.index("loss"))
    low[rates], high[rates] = np.maximum(low[rates], 0), np.minimum(high[rates], 1)  # where the mean of rates must lie
    return {"mean": mean, "deviation": deviation, "low": low, "high": high, "counts": counts}


def _known(value: float) -> float | None:
    """Return a number, None where there is none."""
    return None if np.isnan(value) else float(value)


def _shown(value: float, sign: str, other: float) -> str:
    """Show two numbers, or those that there are."""
    return sign.join(f"{number:.3f}" for number in (value, other) if not np.isnan(number)) or "-"


def _grid(steps: Sequence[int]) -> str:
    return f"{len(steps)} steps up to {steps[-1]}" if steps else "none"
