"""The contents of a report, and the table of owners that the terminal and the page show."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from inosgm._internal.text import MAX_ROWS
from inosgm.accounting.units import ADD_REMOVE, described
from inosgm.experiments.methods import title_of
from inosgm.owners import Label
from inosgm.reports.tables import TextTable, listed, measured, short, spread
from inosgm.reports.trained import TrainedStudy

if TYPE_CHECKING:
    from inosgm.audit.report import Audit
    from inosgm.experiments.config import TrainingConfig
    from inosgm.experiments.sweep_results import Sweep
    from inosgm.statistics.estimate import Estimate


SOURCES = {
    "mechanism": "attacks on the mechanism itself",
    "one run": "guesses about many records of one run",
    "many runs": "runs with a record and runs without it",
}
"""Descriptions of the sources of an audit's lower bounds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited:
    """An audit of a method. NOT PRIVATE.

    Attributes:
        name: What it is called.
        path: Its store.
        config: The method under audit.
        private: Whether the method has privacy.
        audit: What was found.
    """

    name: str
    path: str
    config: "TrainingConfig"
    private: bool
    audit: "Audit"

    @cached_property
    def bounds(self) -> dict[Label, float]:
        """The largest lower bound on the epsilon of each owner, of those that hold at once; at least 0."""
        return {
            verdict.claim.owner: max((bound.epsilon for bound in verdict.bounds.values()), default=math.nan)
            for verdict in self.audit.verdicts
        }

    @cached_property
    def source(self) -> str:
        """A sentence about the sources of the largest bound of each owner."""
        known = [verdict.bounds for verdict in self.audit.verdicts if self.bounds[verdict.claim.owner] > 0]
        if not known:
            return "No bound is above 0"
        largest = {max(bounds, key=lambda name: bounds[name].epsilon) for bounds in known}
        return f"Bounds above 0 come from {listed([text for name, text in SOURCES.items() if name in largest])}"

    def about(self, study: TrainedStudy) -> bool:
        """Return whether it audits a method of a study on the study's data and owners."""
        config = study.focus.config
        same = (self.config.data.name, self.config.data.subset, self.config.owners) == (
            config.data.name,
            config.data.subset,
            config.owners,
        )
        return same and any(self.name == title_of(method.config) for method in study.methods.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """A private statistic that was asked for.

    Attributes:
        path: The file of the answer.
        question: What was asked.
        table: Of which table.
        columns: About which columns.
        share: Which part of every budget it may have cost.
        parameters: Of the question.
        estimate: What came out.
    """

    path: str
    question: str
    table: str
    columns: tuple[str, ...]
    share: float
    parameters: Mapping[str, Any]
    estimate: "Estimate"

    @property
    def name(self) -> str:
        """The title of the answer."""
        columns = ", ".join(f'"{column}"' for column in self.columns)
        return f"{self.question.replace('-', ' ').replace('_', ' ').capitalize()} of {columns}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Swept:
    """The points of a sweep."""

    path: str
    sweep: "Sweep"


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """Everything that was read for a report.

    Attributes:
        studies: Methods that were trained, by the owners that they serve.
        audits: Audits of methods. NOT PRIVATE.
        answers: Private statistics.
        sweeps: Sweeps.
        notes: What was found and left out, and why.
    """

    studies: tuple[TrainedStudy, ...] = ()
    audits: tuple[Audited, ...] = ()
    answers: tuple[Answer, ...] = ()
    sweeps: tuple[Swept, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def secret(self) -> bool:
        """True if it holds something that is as secret as the records."""
        return bool(self.audits) or self.private

    @property
    def private(self) -> bool:
        """True if it holds diagnostics on training records."""
        return any(trained.private for study in self.studies for trained in study.methods.values())

    def audits_of(self, study: TrainedStudy) -> tuple[Audited, ...]:
        """Return the audits that are about the owners of a study."""
        return tuple(audited for audited in self.audits if audited.about(study))

    def owners(self, study: TrainedStudy) -> TextTable:
        """Return what each owner of a study granted, has spent and got: what terminal and page show.

        Of more than 40 owners the strictest and those served worst are shown.
        """
        plan, audits = study.plan, self.audits_of(study)
        index_of = {label: index for index, label in enumerate(plan.labels)}
        granted, final = (
            np.asarray(plan.epsilon),
            {name: study.final(trained) for name, trained in study.methods.items()},
        )
        spent = {f"spent ({unit})" if unit != ADD_REMOVE else "spent": study.spent(unit) for unit in study.units}
        named = [f"audited, {audited.name}" for audited in audits]
        titles = [trained.title for trained in study.methods.values()]
        header = [*(["granted", *spent, *named] if study.owned else []), *titles]
        rows = []
        for group in study.shown(MAX_ROWS):
            label = study.groups[group]
            cells = [str(label)]
            if study.owned:
                cells += [short(numbers[index_of[label]]) for numbers in (granted, *spent.values())]
                cells += [_bound(audited.bounds.get(label, math.nan)) for audited in audits]
            rows.append([*cells, *(spread(*_moments(results[:, group])) for results in final.values())])
        everyone = [spread(*_moments(trained.everyone(study.measure))) for trained in study.methods.values()]
        rows.append(["everyone", *[""] * (len(header) - len(study.methods)), *everyone])
        return TextTable(
            caption=f"What every {study.who} granted, spent and got" if study.owned else "What every group got",
            header=(study.who, *header),
            rows=tuple(map(tuple, rows)),
            notes=tuple(
                filter(None, [*breaches(study), *other_units(study), self._about(study), study.hidden(MAX_ROWS)])
            ),
        )

    def _about(self, study: TrainedStudy) -> str:
        """Return a note that explains the columns of the table of owners."""
        seeds = sorted({len(trained.seeds) for trained in study.methods.values()})
        over = "of one run" if seeds == [1] else f"over {' or '.join(map(str, seeds))} seeds, ± standard deviation"
        everyone = ", everyone: balanced accuracy" if study.measure == "recall" else ""
        parts = [f"{study.measure} on held-out records {over}{everyone}"]
        if study.owned:
            parts.insert(0, "granted and spent: epsilon, by the most expensive run")
        audits = self.audits_of(study)
        if audits:
            sources = dict.fromkeys(audited.source[:1].lower() + audited.source[1:] for audited in audits)
            what = "epsilon of the method on half of the records is at least this, NOT PRIVATE"
            parts.insert(1, ", ".join([f"audited: {what}", *sources]))
        return "; ".join(parts)

    @property
    def asked(self) -> TextTable | None:
        """Private statistics and what they cost, if there are any."""
        if not self.answers:
            return None
        rows = []
        for answer in self.answers:
            estimate, cost = answer.estimate, list((answer.estimate.cost or {}).values())
            single = np.ndim(estimate.value) == 0
            value, error = (
                measured(float(estimate.value), float(estimate.standard_error))
                if single
                else (f"{np.size(estimate.value)} numbers", "-")
            )
            ends = dict.fromkeys(f"{end:.3g}" for end in (min(cost), max(cost))) if cost else ["-"]
            rows.append((answer.name, value, error, " to ".join(ends)))
        header = ("statistic", "value", "standard error", "epsilon spent")
        return TextTable(caption="Private statistics", header=header, rows=tuple(rows))

    def table(self) -> str:
        """Return the tables of owners of all studies, and that of private statistics, for a terminal."""
        tables = [*(self.owners(study) for study in self.studies), self.asked]
        return "\n\n".join(table.text() for table in tables if table is not None)


def breaches(study: TrainedStudy) -> list[str]:
    """Return a sentence for each method that spends more than owners granted."""
    told = []
    for trained in study.methods.values():
        if trained.broken:
            worst, granted = trained.broken[0], np.asarray(trained.plan.epsilon)
            label, spent = trained.plan.labels[worst], trained.spent[worst]
            told.append(
                f"{trained.name} BREAKS what {len(trained.broken)} of {len(granted)} owners granted: a run spends "
                f"epsilon {spent:.3g} of owner {label}, who granted {granted[worst]:.3g}"
            )
    return told


def other_units(study: TrainedStudy) -> list[str]:
    """Return a sentence for each method in another unit than add/remove."""
    return [
        f"{trained.name} is in the unit {trained.unit}: its epsilons are {described(trained.unit)}, and not to be "
        "compared with those of others"
        for trained in study.methods.values()
        if trained.unit != ADD_REMOVE
    ]


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation, ignoring NaN."""
    known = values[~np.isnan(values)]
    return (
        float(known.mean()) if known.size else math.nan,
        float(known.std(ddof=1)) if known.size > 1 else math.nan,
    )


def _bound(value: float) -> str:
    return "-" if math.isnan(value) else f"≥ {max(value, 0.0):.2f}"
