"""Results of the points of a sweep, read from its store alone."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean, stdev
from typing import Any

from inosgm._internal.text import columns
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.grid import Point
from inosgm.experiments.summary import runs_of
from inosgm.experiments.training_study import holds_sweep
from inosgm.jobs._states import JobState
from inosgm.jobs.purpose import STUDY
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.training.metrics import Evaluation

STOPPED, TABLE = "stopped-{}.json", "sweep.parquet"
"""Documents in the store of a sweep: what a run that was stopped early had reported; what all points came to."""


class Metric(StrEnum):
    """A number by which points are compared on the held-out records; more is better."""

    balanced_accuracy = "balanced_accuracy"
    accuracy = "accuracy"
    worst_owner = "worst_owner"

    def of(self, evaluation: Evaluation) -> float | None:
        """Return it, None where an evaluation has no such number."""
        if self is Metric.worst_owner:
            found = [owner.accuracy for owner in evaluation.by_owner.values()]
            return min((value for value in found if value is not None), default=None)
        value: float | None = getattr(evaluation, self.value)
        return value


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """The results of a point.

    Attributes:
        point: The point.
        evaluations: The evaluation at the end of each run that is done, by index of the seed.
        stopped: The step at which a run was stopped early and what it was worth then, by index of the seed.
        failed: Why a run failed permanently, in a line, by index of the seed.
        left: The indices of the seeds that are still to be run.
    """

    point: Point
    evaluations: Mapping[int, Evaluation] = field(repr=False)
    stopped: Mapping[int, Mapping[str, Any]]
    failed: Mapping[int, str]
    left: Sequence[int]

    def values(self, metric: Metric) -> list[float]:
        """Return a metric at the end of every run that has one."""
        found = [metric.of(evaluation) for evaluation in self.evaluations.values()]
        return [value for value in found if value is not None]

    def mean(self, metric: Metric) -> float | None:
        """Return the mean of a metric over all runs that are done; None if there is none."""
        values = self.values(metric)
        return fmean(values) if values else None

    def deviation(self, metric: Metric) -> float | None:
        """Return the standard deviation of a metric over the runs; None for fewer than two."""
        values = self.values(metric)
        return stdev(values) if len(values) > 1 else None

    def remark(self) -> str:
        """Say what has become of runs that are not done."""
        parts = [f"stopped at step {one['step']}" for one in self.stopped.values()]
        parts += [f"{len(self.failed)} failed"] * bool(self.failed) + [f"{len(self.left)} left"] * bool(self.left)
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep:
    """The results of a sweep.

    Attributes:
        standings: The results of each point, in no order.
    """

    standings: tuple[Standing, ...]

    def ordered(self, metric: Metric = Metric.balanced_accuracy) -> list[Standing]:
        """Return the standings, the best mean first; points of which no run is done come last."""

        def place(standing: Standing) -> tuple[bool, float, str]:
            mean = standing.mean(metric)
            return mean is None, 0.0 if mean is None else -mean, standing.point.name

        return sorted(self.standings, key=place)

    def best(self, metric: Metric = Metric.balanced_accuracy) -> Point:
        """Return the point with the best mean.

        Which one that is was chosen by results: on the records that it was chosen by it looks better than it is.

        Raises:
            ValueError: if no run is done.
        """
        first = self.ordered(metric)[:1]
        if not first or first[0].mean(metric) is None:
            raise ValueError(f"no run of the sweep has a {metric.value} yet")
        return first[0].point

    def table(self, metric: Metric = Metric.balanced_accuracy) -> str:
        """Return a row for each point, for people: mean ± standard deviation over the seeds, the best first."""
        others = [other for other in Metric if other is not metric]
        header = ["point", *(one.value.replace("_", " ") for one in (metric, *others)), "seeds", ""]
        rows = [
            [
                standing.point.name,
                *(_shown(standing, one) for one in (metric, *others)),
                str(len(standing.evaluations)),
                standing.remark(),
            ]
            for standing in self.ordered(metric)
        ]
        return "\n".join(columns(header, rows))

    def to_dict(self, metric: Metric = Metric.balanced_accuracy) -> dict[str, Any]:
        """Return it for JSON: the points, the best first, with mean and deviation of each metric over the seeds."""
        points = [
            {
                "point": one.point.name,
                "values": dict(one.point.values),
                **{other.value: {"mean": one.mean(other), "deviation": one.deviation(other)} for other in Metric},
                "seeds": len(one.evaluations),
                "stopped": dict(one.stopped),
                "failed": dict(one.failed),
                "left": list(one.left),
            }
            for one in self.ordered(metric)
        ]
        return {"metric": metric.value, "points": points}

    def to_parquet(self) -> bytes:
        """Return a Parquet file with a row for each point.

        Its columns are `point`, `values` (JSON), `configuration` (YAML), `seeds`, `stopped`, `failed`, `left`, and mean
        and deviation of each metric.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        numbers = [f"{metric.value}{part}" for metric in Metric for part in ("", "_deviation")]
        counts = ("seeds", "stopped", "failed", "left")
        schema = pa.schema(
            {name: pa.string() for name in ("point", "values", "configuration")}
            | {name: pa.int64() for name in counts}
            | {name: pa.float64() for name in numbers}
        )
        rows = []
        for one in self.ordered():
            row: dict[str, Any] = {
                "point": one.point.name,
                "values": json.dumps(dict(one.point.values)),
                "configuration": one.point.config.to_yaml(),
                "seeds": len(one.evaluations),
                **{name: len(getattr(one, name)) for name in counts[1:]},
            }
            for metric in Metric:
                row[metric.value], row[f"{metric.value}_deviation"] = one.mean(metric), one.deviation(metric)
            rows.append(row)
        stream = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), stream, compression="zstd")
        return stream.getvalue()


def standings(store: Store) -> Sweep:
    """Return the results of a sweep so far, from its store alone.

    Raises:
        ValueError: for a store that holds no sweep.
    """
    if not holds_sweep(store):
        raise ValueError(f"{store.uri} must be the store of a sweep, and is none")
    spec = JobSpec.from_json(json.dumps(store.claimed(STUDY)["spec"]))
    base = TrainingConfig.from_dict(spec.configuration).identity()
    states = store.states()
    jobs: dict[str, dict[int, str]] = {}
    configs: dict[str, TrainingConfig] = {}
    for job, spec in runs_of(store).items():
        config = TrainingConfig.from_dict(spec.configuration)
        text = config.to_yaml()
        configs[text] = config
        jobs.setdefault(text, {})[spec.index] = job
    flat = {text: config.identity() for text, config in configs.items()}
    paths = list(dict.fromkeys(path for one in (base, *flat.values()) for path in one))
    varying = [path for path in paths if any(one.get(path) != base.get(path) for one in flat.values())]
    found = []
    for text, config in configs.items():
        values = {path: flat[text][path] for path in varying if path in flat[text]}
        point = Point(values=values, config=config)
        found.append(standing(store, point, {index: (job, states[job]) for index, job in jobs[text].items()}))
    return Sweep(standings=tuple(found))


def standing(store: Store, point: Point, jobs: Mapping[int, tuple[str, JobState]]) -> Standing:
    """Return the results of a point."""
    evaluations, stopped, failed, left = {}, {}, {}, []
    for index, (job, state) in sorted(jobs.items()):
        note = None if state.done else stopped_early(store, job)
        if state.done:
            evaluations[index] = Evaluation.from_dict(store.values(job)["evaluation"])
        elif note is not None:
            stopped[index] = note[-1]
        elif state.status == "failed":
            failed[index] = store.reason(job, state.abandoned_after)
        else:
            left.append(index)
    return Standing(point=point, evaluations=evaluations, stopped=stopped, failed=failed, left=left)


def stopped_early(store: Store, job: str) -> list[dict[str, Any]] | None:
    """Return what a run that a scheduler has stopped reported until then, None if none has."""
    try:
        reports: list[dict[str, Any]] = json.loads(store.get(STOPPED.format(job)))
    except FileNotFoundError:
        return None
    return reports


def shown_mean(values: Sequence[float]) -> str:
    """Show a mean, with the standard deviation where there is one."""
    if not values:
        return "-"
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def _shown(standing: Standing, metric: Metric) -> str:
    """Show the mean of a point; for a run that was stopped early, its last value in parentheses."""
    stopped = [f"({one[metric.value]:.3f})" for one in standing.stopped.values()]
    values = standing.values(metric)
    return stopped[0] if stopped and not values else shown_mean(values)
