"""Results of methods on the same data, with the same owners and seeds, read from the store of a comparison alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Self

from inosgm._internal import validate as _validate
from inosgm._internal.text import MAX_ROWS, columns
from inosgm.accounting import ACCOUNTANTS
from inosgm.accounting.units import ADD_REMOVE, described
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.expense import BROKEN, Expense, expenses
from inosgm.experiments.grid import Point, grid_for, points_of
from inosgm.experiments.summary import Summary, most_expensive, runs_of
from inosgm.experiments.sweep_results import Metric, Standing, shown_mean, standing
from inosgm.jobs import JobSpec, Store
from inosgm.jobs.purpose import holds
from inosgm.ledger.affordable import count_equal
from inosgm.ledger.cost import Cost
from inosgm.owners import Label, Owners
from inosgm.training.curve import LearningCurve
from inosgm.training.metrics import Evaluation

COMPARISON = "comparison.json"
"""The document in a store that says what is compared."""

WIDE = 6
"""Most methods in one table of owners: more columns do not fit into a terminal."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodRuns:
    """The results of one method's runs.

    Attributes:
        name: What the method is called.
        config: What was trained: the point that tuning has chosen, if there was any; as it is while that is open.
        seeds: The seeds of the runs that are done.
        curves: The learning curve of each.
        owners: For each owner its `owner`, `records`, `epsilon`, `delta`, and what the most expensive run has `spent`;
            empty if none is done.
        accountant: Who worked out what was spent; None if no run is done.
        asked: How many runs there will be.
        tuning: What the points that were tried came to, in the order of the grid; empty without tuning. Its seeds are
            others than those of the runs.
        failed: Why a run failed permanently, in a line, by index of the seed.
    """

    name: str
    config: TrainingConfig
    seeds: tuple[int, ...]
    curves: tuple[LearningCurve, ...]
    owners: tuple[Mapping[str, Any], ...]
    accountant: str | None
    asked: int
    tuning: tuple[Standing, ...]
    failed: Mapping[int, str]

    @cached_property
    def summary(self) -> Summary:
        """Mean, spread and confidence band by owner and step.

        Raises:
            ValueError: if no run is done.
        """
        return Summary.of_curves(self.curves, jobs=self.asked, budgets=self.owners)

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The evaluation of each run after its last step."""
        return tuple(curve.last for curve in self.curves)

    @property
    def unit(self) -> str:
        """The unit of its epsilons, one of `inosgm.accounting.units`."""
        return ADD_REMOVE if self.accountant is None else ACCOUNTANTS[self.accountant].unit

    @property
    def broken(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of `owners` of whom a run has spent more than they granted, the worst first."""
        over = [row for row in self.owners if row["spent"] > row["epsilon"] * BROKEN]
        return tuple(sorted(over, key=lambda row: -row["spent"] / row["epsilon"]))

    def warnings(self) -> list[str]:
        """Say what must be known before its numbers are compared: promises that are broken, or another unit."""
        told = []
        if self.broken:
            worst = self.broken[0]
            told.append(
                f"WARNING: {self.name} BREAKS what {len(self.broken)} of {len(self.owners)} owners granted: a run "
                f"spends epsilon {worst['spent']:.3g} of owner {worst['owner']}, who granted {worst['epsilon']:.3g}"
            )
        if self.unit != ADD_REMOVE:
            told.append(f"{self.name} is in the unit {self.unit}: its epsilons are {described(self.unit)}")
        return told

    def values(self, name: str) -> list[float]:
        """Return a number of each run at its end: `accuracy`, `balanced_accuracy`, `worst_owner`, `spread`."""
        found = [Metric(name).of(one) if name in list(Metric) else getattr(one, name) for one in self.evaluations]
        return [value for value in found if value is not None]

    def accuracies(self, owner: Label) -> list[float]:
        """Return the accuracy for an owner at the end of each run."""
        found = [one.by_owner[owner].accuracy for one in self.evaluations]
        return [value for value in found if value is not None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """The results of several methods, run for run.

    Attributes:
        methods: The results of each, by name.
        tune: The values that were tried for every method, by path of key; empty without tuning.
        tune_seeds: With how many seeds.
        metric: What they were chosen by.
        costs: What every run was charged, those that tune and those that are not done included; of each, all costs.
    """

    methods: Mapping[str, MethodRuns] = field(repr=False)
    tune: Mapping[str, tuple[Any, ...]]
    tune_seeds: int
    metric: Metric
    costs: tuple[tuple[Cost, ...], ...] = field(repr=False)

    @classmethod
    def of(cls, store: Store) -> Self:
        """Read what a store holds of a comparison, finished or not; neither data nor code are needed.

        Raises:
            ValueError: for a store that holds something else.
            StoreDamaged: for a result that is not what was written.
        """
        if not holds_comparison(store):
            raise ValueError(f"{store.uri} must be the store of a comparison, and is none")
        known = store.claimed(COMPARISON)
        tune, tune_seeds, metric = dict(known["tune"]), known["tune_seeds"], Metric(known["metric"])
        jobs: dict[str, dict[int, str]] = {}
        for job, spec in runs_of(store).items():
            jobs.setdefault(TrainingConfig.from_dict(spec.configuration).to_yaml(), {})[spec.index] = job
        reader = _Reader(store, jobs, tune_seeds, metric)
        specs = {name: JobSpec.from_json(json.dumps(spec)) for name, spec in known["methods"]}
        configs = {name: TrainingConfig.from_dict(spec.configuration) for name, spec in specs.items()}
        return cls(
            methods={
                name: reader.runs(name, points_of(config, grid_for(config, tune))) for name, config in configs.items()
            },
            tune={path: tuple(values) for path, values in tune.items()},
            tune_seeds=tune_seeds,
            metric=metric,
            costs=tuple(store.charges().values()),
        )

    @cached_property
    def together(self) -> tuple[Expense, ...]:
        """The composed cost of all charged runs for every owner, by unit; empty while no run is done."""
        done = [method for method in self.methods.values() if method.curves]
        if not done:
            return ()
        rows = done[0].owners
        columns = {name: [row[name] for row in rows] for name in ("owner", "epsilon", "delta", "records")}
        return expenses(Owners.from_table(columns), count_equal(self.costs), ACCOUNTANTS[str(done[0].accountant)])

    @property
    def owners(self) -> list[Label]:
        """Owners with held-out records, or other groups that these are evaluated by; empty while no run is done."""
        found = [curve.owners for method in self.methods.values() for curve in method.curves]
        return list(found[0]) if found else []

    def table(self) -> str:
        """Return a row per method, and a row per owner with a column per method, for people."""
        numbers = {"accuracy": "accuracy", "balanced": "balanced_accuracy", "worst owner": "worst_owner"}
        header = ["method", "plan", "tail", *["tuned"] * bool(self.tune), *numbers, "spread", "seeds"]
        rows = []
        for name, method in self.methods.items():
            plan, tail = method.config.plan, method.config.tail
            share = f" {getattr(tail, 'fraction', ''):g}" if hasattr(tail, "fraction") else ""
            cells = [name, f"{plan.method}, {method.accountant or plan.accountant}", f"{tail.kind}{share}"]
            if self.tune:
                cells.append(best_of(method.tuning, self.metric).name if method.curves else "-")
            cells += [shown_mean(method.values(number)) for number in (*numbers.values(), "spread")]
            rows.append([*cells, f"{len(method.curves)} of {method.asked}"])
        told = [line for method in self.methods.values() for line in method.warnings()]
        return "\n".join([*columns(header, rows), *told, "", *self._owner_table(), *self._about()])

    def _owner_table(self) -> list[str]:
        """Return a row per owner: what it granted and spent, and its accuracy with each method.

        Of very many owners, those whose worst method serves them worst are shown.
        """
        done = {name: method for name, method in self.methods.items() if method.curves}
        granted = {label: row[0] for expense in self.together for label, row in expense.by_owner().items()}
        paid = [expense.by_owner() for expense in self.together]
        worst = {label: min(map(fmean, self._accuracies(label)), default=0.0) for label in self.owners}
        shown = set(sorted(self.owners, key=worst.__getitem__)[:MAX_ROWS])
        owned = set(self.owners) <= set(granted)
        rows = [label for label in self.owners if label in shown]
        if not rows:
            return []
        heads = ["epsilon granted", *(head for expense in self.together for head in expense.heads)] * owned
        costs = {label: [granted[label], *(x for row in paid for x in row[label][1:])] for label in rows if owned}
        lines: list[str] = []
        for start in range(0, len(done), WIDE):  # many methods are shown in several tables
            part = list(done.values())[start : start + WIDE]
            names = [f"{one.name} (BREAKS BUDGETS)" if one.broken else one.name for one in part]
            cells = [
                [
                    str(label),
                    *(f"{number:.4g}" for number in costs.get(label, ())),
                    *(shown_mean(one.accuracies(label)) for one in part),
                ]
                for label in rows
            ]
            lines += columns(["owner" if owned else "group", *heads, *names], cells)
            heads, costs = [], {}
        hidden = len(self.owners) - MAX_ROWS
        return [*lines, *[f"({hidden} owners that are served better are not shown)"] * (hidden > 0)]

    def _accuracies(self, label: Label) -> list[list[float]]:
        """Return the accuracies of an owner with each method that has any."""
        found = [method.accuracies(label) for method in self.methods.values() if method.curves]
        return [values for values in found if values]

    def _about(self) -> list[str]:
        """Say what the numbers of the table are."""
        done = [method for method in self.methods.values() if method.curves]
        if not done:
            return ["no run is done yet"]
        records = done[0].evaluations[0].records
        many = max(len(method.curves) for method in done) > 1
        lines = [f"accuracy on {records} held-out records" + "; mean ± standard deviation over the seeds" * many]
        if self.tune:
            tried = ", ".join(f"{path} of {_validate.some(values)}" for path, values in self.tune.items())
            seeds = "seed" if self.tune_seeds == 1 else "seeds"
            lines.append(
                f"tuned for each method alike, by the keys that it has: {tried}, by "
                f"{self.metric.value.replace('_', ' ')} on the held-out records, with {self.tune_seeds} other {seeds}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "metric": self.metric.value,
            "tune": {path: list(values) for path, values in self.tune.items()},
            "tune_seeds": self.tune_seeds,
            "together": [expense.to_dict() for expense in self.together],
            "methods": [
                {
                    "method": name,
                    "configuration": method.config.model_dump(mode="json", exclude={"key"}),
                    "runs": method.asked,
                    "seeds": list(method.seeds),
                    "owners": [dict(row) for row in method.owners],
                    "accountant": method.accountant,
                    "unit": method.unit,
                    "breaks": [row["owner"] for row in method.broken],
                    "evaluations": [found.to_dict() for found in method.evaluations],
                    "tuning": [
                        {"values": dict(one.point.values), self.metric.value: one.values(self.metric)}
                        for one in method.tuning
                    ],
                }
                for name, method in self.methods.items()
            ],
        }


def holds_comparison(store: Store) -> bool:
    """Say whether a store holds a comparison of methods."""
    return holds(store, COMPARISON)


def best_of(tuning: tuple[Standing, ...], metric: Metric) -> Point:
    """Return the point with the best mean; of several the first of the grid.

    Raises:
        ValueError: if no run of any point is done.
    """
    means = [one.mean(metric) for one in tuning]
    known = [mean for mean in means if mean is not None]
    if not known:
        raise ValueError(f"no run that was made for tuning has a {metric.value}: look at `inosgm jobs status`")
    return tuning[means.index(max(known))].point


class _Reader:
    """Reads the runs of methods out of a store."""

    def __init__(self, store: Store, jobs: Mapping[str, Mapping[int, str]], tune_seeds: int, metric: Metric) -> None:
        self._store, self._jobs, self._tune_seeds, self._metric = store, jobs, tune_seeds, metric
        self._states = store.states()

    def runs(self, name: str, points: list[Point]) -> MethodRuns:
        """Return what a method came to, given the points that were tried for it."""
        tuning = tuple(self._standing(point) for point in points) if self._tune_seeds else ()
        left = any(one.left or one.failed for one in tuning)
        point = points[0] if left or not tuning else best_of(tuning, self._metric)
        jobs = {} if left else {i: job for i, job in self._of(point).items() if i >= self._tune_seeds}
        done = {index: job for index, job in jobs.items() if self._states[job].done}
        results = [self._store.values(job) for job in done.values()]
        given_up = {index: job for index, job in jobs.items() if self._states[job].status == "failed"}
        return MethodRuns(
            name=name,
            config=point.config,
            seeds=tuple(self._store.spec(job).seed for job in done.values()),
            curves=tuple(LearningCurve.from_json(json.dumps(values["curve"])) for values in results),
            owners=most_expensive([values["owners"] for values in results]),
            accountant=results[0]["accountant"] if results else None,
            asked=len(jobs),
            tuning=tuning,
            failed={i: self._store.reason(job, self._states[job].abandoned_after) for i, job in given_up.items()},
        )

    def _of(self, point: Point) -> Mapping[int, str]:
        return self._jobs.get(point.config.to_yaml(), {})

    def _standing(self, point: Point) -> Standing:
        """Return what a point came to with the seeds that are for tuning."""
        jobs = {i: (job, self._states[job]) for i, job in self._of(point).items() if i < self._tune_seeds}
        found = standing(self._store, point, jobs)
        missing = [index for index in range(self._tune_seeds) if index not in jobs]
        return Standing(
            point=point, evaluations=found.evaluations, stopped={}, failed=found.failed, left=[*found.left, *missing]
        )
