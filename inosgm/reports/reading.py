"""Readers of everything that a report shows: run directories, stores of seeds, comparisons, sweeps, audits, answers."""

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
from inosgm.experiments.methods import kind_of, title_of
from inosgm.experiments.summary import Summary, runs_of
from inosgm.jobs import JobSpec, Store
from inosgm.jobs.purpose import AUDIT, STATISTIC, STUDY, holds
from inosgm.ledger.cost import Cost
from inosgm.ledger.ledger import Ledger
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.reports.contents import Answer, Audited, Contents, Swept
from inosgm.reports.trained import RunSource, Trained, TrainedStudy
from inosgm.training.curve import LearningCurve
from inosgm.training.run import RunFiles

PRIVATE = "private.jsonl"

KNOWN = (
    "a run directory of `inosgm train`, a store of `train --seeds`, `compare`, `sweep` or `audit`, the JSON of "
    "`inosgm stats --output`, or a directory that holds some of these"
)


def read(*runs: str | os.PathLike[str], private: bool = False) -> Contents:
    """Read the results of runs.

    Args:
        runs: Run directories, stores, answers of `inosgm stats --output`, or directories that hold some of these.
        private: Also read diagnostics on training records. They are NOT PRIVATE.

    Raises:
        ValueError: for something else, and for what has no result yet.
        FileNotFoundError: for what is not there.
    """
    if not runs:
        raise ValueError(f"runs must name one at least: {KNOWN}")
    results = _Found(private=private)
    for run in dict.fromkeys(os.fspath(run) for run in runs):
        results.read(run)
    return Contents(
        studies=tuple(_studies(results.trained)),
        audits=tuple(results.audits),
        answers=tuple(results.answers),
        sweeps=tuple(results.sweeps),
        notes=tuple(results.notes),
    )


@dataclass
class _Found:
    """The results that were read so far."""

    private: bool
    trained: list[Trained] = field(default_factory=list)
    audits: list[Audited] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    sweeps: list[Swept] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(self, location: str) -> None:
        """Read a run, store or answer, or all of them in a directory."""
        if self._one(location):
            return
        inside = list(_inside(Path(location)))
        if not inside:
            raise ValueError(f"{location} holds nothing that a report can show: name {KNOWN}")
        count = self._count()
        for path in inside:
            try:
                self._one(str(path))
            except (ValueError, KeyError, TypeError, RecursionError) as error:  # whatever a stranger's file holds
                self.notes.append(f"left out: {path}: {error if isinstance(error, ValueError) else 'damaged'}")
        if self._count() == count:
            raise ValueError("\n  ".join([f"{location} holds nothing that a report can show yet:", *self.notes]))

    def _count(self) -> int:
        return len(self.trained) + len(self.audits) + len(self.answers) + len(self.sweeps)

    def _one(self, location: str) -> bool:
        """Read a run, store or answer; return false for any other directory."""
        path = Path(location)
        if path.is_file():
            self.answers.append(_answer(path))
        elif _is_run(path):
            self.trained.append(_run(path, self.private))
        elif _is_store(location):
            store = Store(location)
            store.sweep()  # delete secrets that killed processes have left
            self._store(store, location)
        elif path.is_dir():
            return False
        else:
            raise FileNotFoundError(f"there is no {location}: name {KNOWN}")
        return True

    def _store(self, store: Store, location: str) -> None:
        from inosgm.experiments.comparison_results import holds_comparison
        from inosgm.experiments.sweep_results import standings
        from inosgm.experiments.training_study import holds_sweep

        if not store.exists():
            raise FileNotFoundError(f"there is no store {location}: name {KNOWN}")
        if holds(store, AUDIT):
            self.audits.append(_audit(store, location))
        elif holds(store, STATISTIC):
            raise ValueError(
                f"{location} holds the sums of a statistic, not its answer: name what --output has written"
            )
        elif holds_comparison(store):
            self.trained += _comparison(store, location)
        elif holds_sweep(store):
            self.sweeps.append(Swept(path=location, sweep=standings(store)))
        elif holds(store, STUDY):
            self.trained.append(_seeds(store, location))
        else:
            raise ValueError(f"{location} is a store of jobs that no report knows: name {KNOWN}")


def _inside(folder: Path) -> Iterator[Path]:
    """Yield the runs, stores and answers of a directory tree, sorted by name."""
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


def _is_store(location: str) -> bool:
    return "://" in location or (Path(location) / "store.json").is_file()


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
        name=title_of(config),
        source=RunSource(path=str(path), costs=costs, keyed=(path / directory.KEYED).exists(), code=None),
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
    """Return the charges of a run and the spent epsilons, which may exceed those of its checkpoint.

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


def _source(store: Store, path: str) -> RunSource:
    """Return the source of the runs of a store."""
    known = store.claimed(STUDY)
    spec = JobSpec.from_json(json.dumps(known["spec"]))
    costs = tuple(store.charges().values())
    return RunSource(path=path, costs=costs, keyed=known["key"] is not None, code=spec.code_version)


def _seeds(store: Store, path: str) -> Trained:
    """Read a store of seeds."""
    summary = Summary.of(store)  # raises for what is no summary
    specs, states = runs_of(store), store.states()
    ordered = sorted(specs.items(), key=lambda item: item[1].index)
    done = [(spec, store.values(job)) for job, spec in ordered if states[job].done]
    config = TrainingConfig.from_dict(done[0][0].configuration)
    plan = _planned(config, done[0][1]["owners"])
    return Trained(
        name=title_of(config),
        source=_source(store, path),
        config=config,
        plan=plan,
        spent=_spent(plan, done[0][1]["owners"]),
        seeds=tuple(spec.seed for spec, _ in done),
        curves=tuple(LearningCurve.from_json(json.dumps(values["curve"])) for _, values in done),
        asked=summary.jobs,
        failed=sum(states[job].status == "failed" for job in specs),
    )


def _comparison(store: Store, path: str) -> list[Trained]:
    """Read the methods of a comparison of which a run is done."""
    from inosgm.experiments.comparison_results import Comparison

    comparison, source = Comparison.of(store), _source(store, path)
    done = [result for result in comparison.methods.values() if result.curves]
    if not done:
        raise ValueError(f"{path} holds a comparison of which no run is done yet")
    trained = []
    for result in done:
        plan = _planned(result.config, result.owners)
        trained.append(
            Trained(
                name=title_of(result.config) if kind_of(result.config) == result.name else result.name,
                source=source,
                config=result.config,
                plan=plan,
                spent=_spent(plan, result.owners),
                seeds=result.seeds,
                curves=result.curves,
                asked=result.asked,
                failed=len(result.failed),
                tuning=result.tuning,
                metric=comparison.metric,
            )
        )
    return trained


def _planned(config: TrainingConfig, rows: Iterable[Mapping[str, Any]]) -> Plan:
    """Return the plan of runs, a function of the owners' grants and the configuration."""
    from inosgm.experiments.plans import planned

    rows = list(rows)
    columns = {name: [row[name] for row in rows] for name in ("owner", "epsilon", "delta", "records")}
    return planned(config, Owners.from_table(columns), None).last


def _spent(plan: Plan, rows: Iterable[Mapping[str, Any]]) -> np.ndarray:
    spent = {row["owner"]: row["spent"] for row in rows}
    return np.array([spent[label] for label in plan.labels])


def _audit(store: Store, path: str) -> Audited:
    from inosgm.audit.report import Audit
    from inosgm.audit.shadow_study import stored

    known = stored(store, 0)
    audit = Audit.of(store)
    if not audit.shadows.count:
        raise ValueError(f"{path} holds an audit of which no shadow model is trained yet")
    name = title_of(known.config) if known.private else "without privacy"
    return Audited(name=name, path=path, config=known.config, private=known.private, audit=audit)


def _studies(trained: Iterable[Trained]) -> Iterator[TrainedStudy]:
    """Group runs by the data and owners of their configurations; runs of one name get that of their directory."""
    together: dict[str, list[Trained]] = {}
    for run in trained:
        same = run.config.model_dump(mode="json", include={"data", "owners"}, exclude={"data": {"root"}})
        together.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    for runs in together.values():
        methods: dict[str, Trained] = {}
        names = [run.name for run in runs]
        for run in runs:
            name = run.name if names.count(run.name) == 1 else f"{run.name} ({Path(run.source.path).name})"
            while name in methods:
                name += " again"
            methods[name] = replace(run, name=name)
        yield TrainedStudy(name=runs[0].config.data.name, methods=methods)
