"""Trained methods: the runs of a method, and studies of methods for the same owners."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from inosgm.accounting.units import ADD_REMOVE
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.methods import kind_of
from inosgm.experiments.summary import METRICS, Summary
from inosgm.ledger.cost import Cost
from inosgm.methods.registry import METHODS, USUAL
from inosgm.owners import Label
from inosgm.planning.plan import Plan
from inosgm.reports.intervals import Interval, RegressionLine, interval, regression
from inosgm.training.curve import LearningCurve

if TYPE_CHECKING:
    from inosgm.experiments.expense import Expense
    from inosgm.experiments.sweep_results import Metric, Standing


SIMPLE = tuple(name for name in reversed(USUAL) if not METHODS[name].ordered)
"""The methods that others are compared with first, the closest first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSource:
    """The source of runs.

    Attributes:
        path: The run directory or the store.
        costs: What each of its runs was charged, those included that tuned, failed or were stopped; of each, all costs.
        keyed: Whether its coins and noise are functions of a key that somebody chose; None if it does not say.
        code: Which code made the runs, if it is known.
    """

    path: str
    costs: tuple[tuple[Cost, ...], ...]
    keyed: bool | None
    code: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """The runs of one method and their results.

    Attributes:
        name: What the method is called.
        source: The source of the runs.
        config: What was trained.
        plan: What each run follows.
        spent: The epsilon that a run has spent of every owner of the plan.
        seeds: The seeds of the runs that are done.
        curves: The learning curve of each.
        asked: How many runs there will be.
        at: Of one run, how many steps of how many are done.
        failed: How many runs were given up; why may be told by data, and is not for a page.
        tuning: What the points came to that were tried, if any.
        metric: What they were chosen by.
        private: Rows of diagnostics on training records, if they were asked for. NOT PRIVATE.
    """

    name: str
    source: RunSource
    config: TrainingConfig
    plan: Plan
    spent: np.ndarray
    seeds: tuple[int, ...]
    curves: tuple[LearningCurve, ...]
    asked: int
    at: tuple[int, int] | None = None
    failed: int = 0
    tuning: tuple["Standing", ...] = ()
    metric: "Metric | None" = None
    private: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def summary(self) -> Summary:
        """Mean, spread and confidence band by owner and step."""
        return Summary.of_curves(self.curves, jobs=self.asked)

    @property
    def kind(self) -> str:
        """The name of the method in the registry."""
        return kind_of(self.config)

    @property
    def unit(self) -> str:
        """The unit of its epsilons."""
        return self.plan.unit

    @cached_property
    def broken(self) -> tuple[int, ...]:
        """The indices of owners of whom a run has spent more than they granted, the worst first."""
        from inosgm.experiments.expense import BROKEN

        over = self.spent / np.asarray(self.plan.epsilon)
        return tuple(index for index in np.argsort(-over, kind="stable").tolist() if over[index] > BROKEN)

    @property
    def title(self) -> str:
        """Its name, with a warning if it breaks budgets or has another unit."""
        about = [self.unit] * (self.unit != ADD_REMOVE) + ["BREAKS BUDGETS"] * bool(self.broken)
        return f"{self.name} ({', '.join(about)})" if about else self.name

    @property
    def missing(self) -> str:
        """A description of the runs that are not done yet, if any."""
        if self.at is not None and self.at[0] < self.at[1]:
            return f"step {self.at[0]} of {self.at[1]} with {self.name}"
        return f"{len(self.seeds)} of {self.asked} runs with {self.name}" if len(self.seeds) < self.asked else ""

    def finals(self, groups: tuple[Label, ...], measure: str) -> np.ndarray:
        """Return the final measure of each run (row) for each group (column); NaN if unknown."""
        rows = [[getattr(curve.last.by_owner.get(label), measure, None) for label in groups] for curve in self.curves]
        return np.array(rows, dtype=np.float64).reshape(len(self.curves), len(groups))

    def everyone(self, measure: str) -> np.ndarray:
        """Return the balanced accuracy of each run, or its mean loss."""
        name = "balanced_accuracy" if measure == "recall" else measure
        return np.array([getattr(curve.last, name) for curve in self.curves], dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """The difference between two methods, paired by seed.

    Attributes:
        method: The one.
        base: The other.
        by_group: The change of each owner or group.
        sure: The same, with intervals that hold for all groups at once.
        worst: Of the worst-served owner, whoever that is.
        along: Of the worst-served owner, averaged over training.
        spread: Of the best minus the worst.
        everyone: Of the balanced accuracy, or of the mean loss.
        line: How the change hangs on epsilon.
    """

    method: Trained
    base: Trained
    by_group: tuple[Interval, ...]
    sure: tuple[Interval, ...]
    worst: Interval
    along: Interval
    spread: Interval
    everyone: Interval
    line: RegressionLine | None


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedStudy:
    """Methods that were trained on the same data and owners, as far as configurations say.

    Attributes:
        name: What the data are called.
        methods: Their runs, by name.
    """

    name: str
    methods: Mapping[str, Trained]

    @cached_property
    def plan(self) -> Plan:
        """A plan that knows owners, records and budgets: that of the method that the study is about."""
        return self.focus.plan

    @cached_property
    def focus(self) -> Trained:
        """The method that the study is about: INO-SGD, or another ordered method, or one that is not a baseline.

        Of two that are alike otherwise, the adjusted one is it.

        One that breaks budgets, or is about another unit, is the last to be it.
        """

        def rank(trained: Trained) -> tuple[int, ...]:
            simple = SIMPLE.index(trained.kind) + 1 if trained.kind in SIMPLE else 0
            method, index = METHODS[trained.kind], list(METHODS).index(trained.kind)
            family = not method.ordered, not method.adjusted
            return bool(trained.broken), trained.unit != ADD_REMOVE, simple, *family, index

        return min(reversed(tuple(self.methods.values())), key=rank)

    @cached_property
    def base(self) -> Trained | None:
        """The baseline: the closest simpler method, or else another one."""
        others = [trained for trained in self.methods.values() if trained is not self.focus]
        simpler = [trained for kind in SIMPLE for trained in others if trained.kind == kind != self.focus.kind]
        return next(iter([*simpler, *others]), None)

    @cached_property
    def groups(self) -> tuple[Label, ...]:
        """The owners with held-out records, the strictest first, or the groups by which these are evaluated."""
        labels = dict.fromkeys(label for trained in self.methods.values() for label in trained.summary.owners)
        return tuple(sorted(labels, key=lambda label: self._granted.get(label, np.inf)))

    @property
    def owned(self) -> bool:
        """True if held-out records belong to owners."""
        return set(self.groups) <= self._granted.keys()

    @property
    def measure(self) -> str:
        """The measure: recall, or the loss if nothing is predicted."""
        summary = self.focus.summary
        return "recall" if summary.counts[METRICS.index("recall")].any() else "loss"

    @property
    def better(self) -> float:
        """1 if more of it is better, -1 if less is."""
        return 1.0 if self.measure == "recall" else -1.0

    @property
    def who(self) -> str:
        """The word for a row of results: owner or group."""
        return "owner" if self.owned else "group"

    @cached_property
    def _granted(self) -> dict[Label, float]:
        return dict(zip(self.plan.labels, np.asarray(self.plan.epsilon).tolist(), strict=True))

    @cached_property
    def epsilon(self) -> np.ndarray:
        """The epsilon that each group grants; NaN for groups that are no owners."""
        return np.array([self._granted.get(label, np.nan) for label in self.groups])

    @property
    def units(self) -> tuple[str, ...]:
        """The units of its methods."""
        return tuple(dict.fromkeys(trained.unit for trained in self.methods.values()))

    def spent(self, unit: str) -> np.ndarray:
        """Return the most that one run of any method of a unit has spent of each owner of the plan."""
        return np.asarray(np.max([trained.spent for trained in self.methods.values() if trained.unit == unit], axis=0))

    @cached_property
    def together(self) -> tuple["Expense", ...]:
        """The composed cost of all runs by unit; empty if a source does not know the costs of its runs."""
        from inosgm.accounting import ACCOUNTANTS
        from inosgm.experiments.expense import expenses
        from inosgm.ledger.affordable import count_equal
        from inosgm.owners import Owners

        sources = {trained.source.path: trained.source for trained in self.methods.values()}
        costs = [run for source in sources.values() for run in source.costs]
        plan = self.plan
        if not all(source.costs for source in sources.values()) or len(costs) < 2:
            return ()
        columns = {"owner": list(plan.labels), "epsilon": plan.epsilon, "delta": plan.delta, "records": plan.sizes}
        return expenses(Owners.from_table(columns), count_equal(costs), ACCOUNTANTS[str(plan.accountant)])

    def final(self, method: Trained) -> np.ndarray:
        """Return the final measure of a method's runs, a row for each and a column for each group."""
        return method.finals(self.groups, self.measure)

    def worst(self, method: Trained) -> np.ndarray:
        """Return the final measure of each run for the group that it served worst."""
        return np.asarray(self.better * _least(self.better * self.final(method)))

    def along(self, method: Trained) -> np.ndarray:
        """Return the measure of each run for the group that it served worst at each step, averaged over training.

        Steps are the evaluations after the first, which is about the untrained model.
        """
        return np.array([self._along(curve) for curve in method.curves])

    def _along(self, curve: LearningCurve) -> float:
        rows = [
            [getattr(evaluation.by_owner.get(label), self.measure, None) for label in self.groups]
            for evaluation in curve.evaluations[1:]
        ]
        values = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.groups))
        return float(np.mean(self.better * _least(self.better * values))) if rows else np.nan

    def spread(self, method: Trained) -> np.ndarray:
        """Return the best of each run minus the worst."""
        results = self.final(method)
        return np.asarray(-_least(-results) - _least(results))

    def mean(self, method: Trained) -> np.ndarray:
        """Return the final measure for each group, averaged over the runs of a method; NaN if unknown."""
        results = self.final(method)
        known = ~np.isnan(results)
        total, count = np.where(known, results, 0).sum(axis=0), known.sum(axis=0)
        return np.asarray(np.divide(total, count, out=np.full(count.size, np.nan), where=count > 0))

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The focus minus every other method, the closest first; methods that share no seed are not compared."""
        others = [trained for trained in self.methods.values() if trained not in (self.focus, self.base)]
        changes = (self._change(self.focus, base) for base in (self.base, *others) if base is not None)
        return tuple(change for change in changes if change is not None)

    def _change(self, method: Trained, base: Trained) -> Change | None:
        common = [seed for seed in method.seeds if seed in base.seeds]
        if not common:
            return None
        rows = [[trained.seeds.index(seed) for seed in common] for trained in (method, base)]
        here, there = (self.final(trained)[row] for trained, row in zip((method, base), rows, strict=True))
        moved = here - there
        together = 1 - 0.05 / max(len(self.groups), 1)  # Bonferroni: all intervals hold at once with 95 %

        def of(name: str) -> Interval:
            values = [getattr(self, name)(trained)[row] for trained, row in zip((method, base), rows, strict=True)]
            return interval(values[0] - values[1])

        everyone = [trained.everyone(self.measure)[row] for trained, row in zip((method, base), rows, strict=True)]
        by_group = tuple(interval(column) for column in moved.T)
        return Change(
            method=method,
            base=base,
            by_group=by_group,
            sure=tuple(interval(column, together) for column in moved.T),
            worst=of("worst"),
            along=of("along"),
            spread=of("spread"),
            everyone=interval(everyone[0] - everyone[1]),
            line=regression(self.epsilon, np.array([difference.value for difference in by_group]))
            if self.owned
            else None,
        )

    def shown(self, most: int) -> list[int]:
        """Return the indices of at most `most` groups, in their order: the strictest, and those served worst."""
        if len(self.groups) <= most:
            return list(range(len(self.groups)))
        values = self.better * self.mean(self.focus)
        worst = np.argsort(np.where(np.isnan(values), np.inf, values), kind="stable").tolist()
        strict = np.argsort(self.epsilon, kind="stable").tolist() if self.owned else []
        chosen: dict[int, None] = {}
        for pair in zip(strict or worst, worst, strict=True):
            for index in pair:
                if len(chosen) < most:
                    chosen[index] = None
        return sorted(chosen)

    def hidden(self, most: int) -> str:
        """Return a note on the groups that are not shown, empty if all are."""
        left = len(self.groups) - most
        what = "the strictest and those served worst" if self.owned else "those served worst"
        return f"{left} of {len(self.groups)} {self.who}s are not shown: these are {what}" if left > 0 else ""


def _least(values: np.ndarray) -> np.ndarray:
    """Return the smallest number of each row, ignoring NaN; NaN if there is none."""
    least = np.where(np.isnan(values), np.inf, values).min(axis=1)
    return np.where(np.isfinite(least), least, np.nan)
