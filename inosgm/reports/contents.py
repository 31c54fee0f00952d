"""What a report is about: everything that was read, and the table of owners that terminal and page show."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from inosgm._internal.text import MAX_ROWS
from inosgm.accounting.units import ADD_REMOVE, UNITS
from inosgm.methods.registry import METHODS
from inosgm.owners import Label
from inosgm.reports.tables import Table, listed, measured, short, spread
from inosgm.reports.trained import Study

if TYPE_CHECKING:
    from inosgm.audit.report import Audit
    from inosgm.experiments.config import TrainingConfig
    from inosgm.experiments.standings import Sweep
    from inosgm.statistics.estimate import Estimate


SOURCES = {
    "mechanism": "attacks on the mechanism itself",
    "one run": "guesses about many records of one run",
    "many runs": "runs with a record and runs without it",
}
"""Where lower bounds of audits come from, in plain words."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited:
    """An audit, and which method it is about. NOT PRIVATE.

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
            one.claim.owner: max((bound.epsilon for bound in one.bounds.values()), default=math.nan)
            for one in self.audit.verdicts
        }

    @cached_property
    def source(self) -> str:
        """Say where the largest bound of each owner comes from."""
        known = [one.bounds for one in self.audit.verdicts if self.bounds[one.claim.owner] > 0]
        if not known:
            return "No bound is above 0"
        largest = {max(bounds, key=lambda name: bounds[name].epsilon) for bounds in known}
        return f"Bounds above 0 come from {listed([text for name, text in SOURCES.items() if name in largest])}"

    def about(self, study: Study) -> bool:
        """Say whether it is about the data and the owners of a study, and about one of its methods."""
        one = study.focus.config
        same = (self.config.data.name, self.config.data.subset, self.config.owners) == (
            one.data.name,
            one.data.subset,
            one.owners,
        )
        return same and any(self.name == METHODS[method.kind].title for method in study.methods.values())


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
        """What was asked, for people."""
        columns = ", ".join(f'"{column}"' for column in self.columns)
        return f"{self.question.replace('-', ' ').replace('_', ' ').capitalize()} of {columns}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Swept:
    """The points of a sweep."""

    path: str
    sweep: "Sweep"


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """What was read for a report.

    Attributes:
        studies: Methods that were trained, by the owners that they serve.
        audits: Audits of methods. NOT PRIVATE.
        answers: Private statistics.
        sweeps: Sweeps.
        notes: What was found and left out, and why.
    """

    studies: tuple[Study, ...] = ()
    audits: tuple[Audited, ...] = ()
    answers: tuple[Answer, ...] = ()
    sweeps: tuple[Swept, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def secret(self) -> bool:
        """Whether there is something in it that is as secret as the records."""
        return bool(self.audits) or self.private

    @property
    def private(self) -> bool:
        """Whether diagnostics on training records are in it."""
        return any(one.private for study in self.studies for one in study.methods.values())

    def audits_of(self, study: Study) -> tuple[Audited, ...]:
        """Return the audits that are about the owners of a study."""
        return tuple(one for one in self.audits if one.about(study))

    def owners(self, study: Study) -> Table:
        """Return what each owner of a study granted, has spent and got: what terminal and page show.

        Of more than 40 owners the strictest and those served worst are shown.
        """
        plan, audits = study.plan, self.audits_of(study)
        place = {label: index for index, label in enumerate(plan.labels)}
        granted, final = np.asarray(plan.epsilon), {name: study.final(one) for name, one in study.methods.items()}
        spent = {f"spent ({unit})" if unit != ADD_REMOVE else "spent": study.spent(unit) for unit in study.units}
        named = [f"audited, {one.name}" for one in audits]
        titles = [one.title for one in study.methods.values()]
        header = [*(["granted", *spent, *named] if study.owned else []), *titles]
        rows = []
        for group in study.shown(MAX_ROWS):
            label = study.groups[group]
            cells = [str(label)]
            if study.owned:
                cells += [short(numbers[place[label]]) for numbers in (granted, *spent.values())]
                cells += [_bound(one.bounds.get(label, math.nan)) for one in audits]
            rows.append([*cells, *(spread(*_moments(found[:, group])) for found in final.values())])
        everyone = [spread(*_moments(one.everyone(study.measure))) for one in study.methods.values()]
        rows.append(["everyone", *[""] * (len(header) - len(study.methods)), *everyone])
        return Table(
            caption=f"What every {study.who} granted, spent and got" if study.owned else "What every group got",
            header=(study.who, *header),
            rows=tuple(map(tuple, rows)),
            notes=tuple(
                filter(None, [*breaches(study), *other_units(study), self._about(study), study.hidden(MAX_ROWS)])
            ),
        )

    def _about(self, study: Study) -> str:
        """Say what the columns of the table of owners are."""
        seeds = sorted({len(one.seeds) for one in study.methods.values()})
        over = "of one run" if seeds == [1] else f"over {' or '.join(map(str, seeds))} seeds, ± standard deviation"
        parts = [f"{study.measure} on held-out records {over}"]
        if study.owned:
            parts.insert(0, "granted and spent: epsilon, by the most expensive run")
        audits = self.audits_of(study)
        if audits:
            sources = dict.fromkeys(one.source[:1].lower() + one.source[1:] for one in audits)
            what = "epsilon of the method on half of the records is at least this, NOT PRIVATE"
            parts.insert(1, ", ".join([f"audited: {what}", *sources]))
        return "; ".join(parts)

    @property
    def asked(self) -> Table | None:
        """Private statistics and what they cost, if there are any."""
        if not self.answers:
            return None
        rows = []
        for answer in self.answers:
            found, cost = answer.estimate, list((answer.estimate.cost or {}).values())
            single = np.ndim(found.value) == 0
            value, error = (
                measured(float(found.value), float(found.standard_error))
                if single
                else (f"{np.size(found.value)} numbers", "-")
            )
            rows.append((answer.name, value, error, f"{min(cost):.3g} to {max(cost):.3g}" if cost else "-"))
        header = ("statistic", "value", "standard error", "epsilon spent")
        return Table(caption="Private statistics", header=header, rows=tuple(rows))

    def table(self) -> str:
        """Return the tables of owners of all studies, and that of private statistics, for a terminal."""
        tables = [*(self.owners(study) for study in self.studies), self.asked]
        return "\n\n".join(table.text() for table in tables if table is not None)


def breaches(study: Study) -> list[str]:
    """Say which methods spend more than owners granted."""
    told = []
    for one in study.methods.values():
        if one.broken:
            worst, granted = one.broken[0], np.asarray(one.plan.epsilon)
            told.append(
                f"{one.name} BREAKS what {len(one.broken)} of {len(one.plan.labels)} owners granted: a run spends "
                f"epsilon {one.spent[worst]:.3g} of owner {one.plan.labels[worst]}, who granted {granted[worst]:.3g}"
            )
    return told


def other_units(study: Study) -> list[str]:
    """Say which methods promise something else."""
    return [
        f"{one.name} is in the unit {one.unit}: its epsilons are {UNITS[one.unit]}, and not to be compared with those "
        "of others"
        for one in study.methods.values()
        if one.unit != ADD_REMOVE
    ]


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of what is known."""
    known = values[~np.isnan(values)]
    return (
        float(known.mean()) if known.size else math.nan,
        float(known.std(ddof=1)) if known.size > 1 else math.nan,
    )


def _bound(value: float) -> str:
    return "-" if math.isnan(value) else f"≥ {max(value, 0.0):.2f}"
