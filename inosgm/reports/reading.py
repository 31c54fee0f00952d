"""What directories, stores and files hold: run directories, seeds, comparisons, sweeps, audits, answers."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from inosgm.accounting import ACCOUNTANTS
from inosgm.experiments import directory
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.methods import kind_of
from inosgm.experiments.summary import Summary, runs_of
from inosgm.jobs import JobSpec, Store
from inosgm.jobs.purpose import AUDIT, STATISTIC, STUDY, holds
from inosgm.ledger.cost import Cost
from inosgm.ledger.ledger import Ledger
from inosgm.methods.registry import METHODS
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.reports.contents import Answer, Audited, Contents, Swept
from inosgm.reports.trained import Place, Study, Trained
from inosgm.training.curve import LearningCurve
from inosgm.training.run import RunFiles

PRIVATE = "private.jsonl"

KNOWN = (
    "a run directory of `inosgm train`, a store of `train --seeds`, `compare`, `sweep` or `audit`, the JSON of "
    "`inosgm stats --output`, or a directory that holds some of these"
)


def read(*runs: str | os.PathLike[str], private: bool = False) -> Contents:
    """Read what runs came to.

    Args:
        runs: Run directories, stores, answers of `inosgm stats --output`, or directories that hold some of these.
        private: Also read diagnostics on training records. They are NOT PRIVATE.

    Raises:
        ValueError: for something else, and for what has no result yet.
        FileNotFoundError: for what is not there.
    """
    if not runs:
        raise ValueError(f"runs must name one at least: {KNOWN}")
    found = _Found(private=private)
    for run in dict.fromkeys(os.fspath(run) for run in runs):
        found.read(run)
    return Contents(
        studies=tuple(_studies(found.trained)),
        audits=tuple(found.audits),
        answers=tuple(found.answers),
        sweeps=tuple(found.sweeps),
        notes=tuple(found.notes),
    )


@dataclass
class _Found:
    """What was found so far."""

    private: bool
    trained: list[Trained] = field(default_factory=list)
    audits: list[Audited] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    sweeps: list[Swept] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(self, place: str) -> None:
        """Read one thing, or all that a directory holds."""
        if self._one(place):
            return
        inside = list(_inside(Path(place)))
        if not inside:
            raise ValueError(f"{place} holds nothing that a report can show: name {KNOWN}")
        count = self._count()
        for path in inside:
            try:
                self._one(str(path))
            except (ValueError, KeyError, TypeError, RecursionError) as error:  # whatever a stranger's file holds
                self.notes.append(f"left out: {path}: {error if isinstance(error, ValueError) else 'damaged'}")
        if self._count() == count:
            raise ValueError("\n  ".join([f"{place} holds nothing that a report can show yet:", *self.notes]))

    def _count(self) -> int:
        return len(self.trained) + len(self.audits) + len(self.answers) + len(self.sweeps)

    def _one(self, place: str) -> bool:
        """Read one thing; say whether it was one."""
        path = Path(place)
        if path.is_file():
            self.answers.append(_answer(path))
        elif _is_run(path):
            self.trained.append(_run(path, self.private))
        elif _is_store(place):
            store = Store(place)
            store.sweep()
            self._store(store, place)
        elif path.is_dir():
            return False
        else:
            raise FileNotFoundError(f"there is no {place}: name {KNOWN}")
        return True

    def _store(self, store: Store, place: str) -> None:
        from inosgm.experiments.comparison import holds_comparison
        from inosgm.experiments.standings import standings
        from inosgm.experiments.study import holds_sweep

        if not store.exists():
            raise FileNotFoundError(f"there is no store {place}: name {KNOWN}")
        if holds(store, AUDIT):
            self.audits.append(_audit(store, place))
        elif holds(store, STATISTIC):
            raise ValueError(f"{place} holds the sums of a statistic, not its answer: name what --output has written")
        elif holds_comparison(store):
            self.trained += _comparison(store, place)
        elif holds_sweep(store):
            self.sweeps.append(Swept(path=place, sweep=standings(store)))
        elif holds(store, STUDY):
            self.trained.append(_seeds(store, place))
        else:
            raise ValueError(f"{place} is a store of jobs that no report knows: name {KNOWN}")


def _inside(folder: Path) -> Iterator[Path]:
    """Return everything in a directory that is one thing, in the order of names; other directories are looked into."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            continue  # what lies elsewhere was not named
        if path.is_dir():
            if _is_run(path) or _is_store(str(path)):
                yield path
            elif not path.name.startswith("."):
                yield from _inside(path)
        elif path.suffix == ".json" and _is_answer(path):
            yield path


def _is_run(path: Path) -> bool:
    return (path / directory.NAME).is_file() and (path / "plan-0.json").is_file()


def _is_store(place: str) -> bool:
    return "://" in place or (Path(place) / "store.json").is_file()


def _is_answer(path: Path) -> bool:
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(values, Mapping) and {"question", "estimand", "value"} <= values.keys()


def _answer(path: Path) -> Answer:
    from inosgm.statistics.estimate import Estimate

    if not _is_answer(path):
        raise ValueError(f"{path} is no answer of `inosgm stats --output`: name {KNOWN}")
    values = json.loads(path.read_bytes())
    return Answer(
        path=str(path),
        question=values["question"],
        table=values["table"],
        columns=tuple(values["columns"]),
        share=values["share"],
        parameters=values["parameters"],
        estimate=Estimate.from_dict(values),
    )


def _run(path: Path, private: bool) -> Trained:
    """Read a run directory: its latest checkpoint, whether or not it is finished."""
    config = TrainingConfig.from_yaml(path / directory.NAME)
    files = RunFiles(path)
    latest = files.latest()
    curve = LearningCurve() if latest is None else LearningCurve.from_json(latest.curve)
    if latest is None or not len(curve):
        raise ValueError(f"{path} holds a run that was not evaluated yet: train it, and evaluate it now and then")
    plan = files.plan(latest.revision)
    step = latest.step - latest.first
    costs, spent = _charged(path, plan, step)
    rows = [json.loads(line) for line in (path / PRIVATE).read_bytes().splitlines()] if _private(path, private) else []
    return Trained(
        name=METHODS[kind_of(config)].title,
        place=Place(path=str(path), costs=costs, keyed=(path / directory.KEYED).exists(), code=None),
        config=config,
        plan=plan,
        spent=spent,
        seeds=(config.seed,),
        curves=(curve,),
        asked=1,
        at=(step, plan.steps),
        private=tuple({"step": row["step"], **row["diagnostics"]} for row in rows),
    )


def _charged(path: Path, plan: Plan, step: int) -> tuple[tuple[tuple[Cost, ...], ...], np.ndarray]:
    """Return what a run was charged, and what owners have spent: more than a checkpoint knows, perhaps.

    A run that shares a ledger with others is taken at its checkpoint, and at what all have spent if it has a past.
    """
    if (path / "ledger").exists():
        ledger = Ledger(path / "ledger", accountant=ACCOUNTANTS[str(plan.accountant)])
        costs, spent = ledger.costs(), ledger.spent()
        return (costs,) if costs else (), np.array([spent[label] for label in plan.labels])
    if plan.past or not step:
        return (), plan.spent(step)
    steps = replace(plan.cost(job=str(path)), steps=int(plan.segment(step).steps.max()))
    return ((steps, *(other.cost(job=str(path)) for other in plan.side_releases)),), plan.spent(step)


def _private(path: Path, wanted: bool) -> bool:
    return wanted and (path / PRIVATE).exists()


def _place(store: Store, path: str) -> Place:
    """Return what a store says about its runs."""
    known = store.claimed(STUDY)
    spec = JobSpec.from_json(json.dumps(known["spec"]))
    costs = tuple(store.charges().values())
    return Place(path=path, costs=costs, keyed=known["key"] is not None, code=spec.code_version)


def _seeds(store: Store, path: str) -> Trained:
    """Read a store of seeds."""
    summary = Summary.of(store)  # raises for what is no summary
    specs, states = runs_of(store), store.states()
    ordered = sorted(specs.items(), key=lambda item: item[1].index)
    done = [(spec, store.values(job)) for job, spec in ordered if states[job].done]
    config = TrainingConfig.from_dict(done[0][0].configuration)
    plan = _planned(config, done[0][1]["owners"])
    return Trained(
        name=METHODS[kind_of(config)].title,
        place=_place(store, path),
        config=config,
        plan=plan,
        spent=_spent(plan, done[0][1]["owners"]),
        seeds=tuple(spec.seed for spec, _ in done),
        curves=tuple(LearningCurve.from_json(json.dumps(values["curve"])) for _, values in done),
        asked=summary.jobs,
        failed=sum(states[job].status == "failed" for job in specs),
    )


def _comparison(store: Store, path: str) -> list[Trained]:
    """Read a comparison, those methods of which a run is done."""
    from inosgm.experiments.comparison import Comparison

    found, place = Comparison.of(store), _place(store, path)
    done = [one for one in found.methods.values() if one.curves]
    if not done:
        raise ValueError(f"{path} holds a comparison of which no run is done yet")
    trained = []
    for one in done:
        plan = _planned(one.config, one.owners)
        trained.append(
            Trained(
                name=METHODS[one.name].title if kind_of(one.config) == one.name else one.name,
                place=place,
                config=one.config,
                plan=plan,
                spent=_spent(plan, one.owners),
                seeds=one.seeds,
                curves=one.curves,
                asked=one.asked,
                failed=len(one.failed),
                tuning=one.tuning,
                metric=found.metric,
            )
        )
    return trained


def _planned(config: TrainingConfig, rows: Iterable[Mapping[str, Any]]) -> Plan:
    """Return the plan that runs followed: a function of what owners grant, and of the configuration."""
    from inosgm.experiments.plans import planned

    rows = list(rows)
    columns = {name: [row[name] for row in rows] for name in ("owner", "epsilon", "delta", "records")}
    return planned(config, Owners.from_table(columns), None).last


def _spent(plan: Plan, rows: Iterable[Mapping[str, Any]]) -> np.ndarray:
    spent = {row["owner"]: row["spent"] for row in rows}
    return np.array([spent[label] for label in plan.labels])


def _audit(store: Store, path: str) -> Audited:
    from inosgm.audit.report import Audit
    from inosgm.audit.study import stored

    known = stored(store, 0)
    audit = Audit.of(store)
    if not audit.shadows.count:
        raise ValueError(f"{path} holds an audit of which no shadow model is trained yet")
    name = METHODS[kind_of(known.config)].title if known.private else "without privacy"
    return Audited(name=name, path=path, config=known.config, private=known.private, audit=audit)


def _studies(trained: Iterable[Trained]) -> Iterator[Study]:
    """Put together what was trained on the same data and owners, by configuration; names that are taken get a place."""
    together: dict[str, list[Trained]] = {}
    for one in trained:
        same = one.config.model_dump(mode="json", include={"data", "owners"}, exclude={"data": {"root"}})
        together.setdefault(json.dumps(same, sort_keys=True), []).append(one)
    for runs in together.values():
        methods: dict[str, Trained] = {}
        names = [one.name for one in runs]
        for one in runs:
            name = one.name if names.count(one.name) == 1 else f"{one.name} ({Path(one.place.path).name})"
            while name in methods:
                name += " again"
            methods[name] = replace(one, name=name)
        yield Study(name=runs[0].config.data.name, methods=methods)
