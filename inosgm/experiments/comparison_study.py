"""Several methods on the same data with the same seeds, each tuned alike: durable jobs, and one table."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.scratch import scratch_directory
from inosgm.experiments.adjusting import class_shares
from inosgm.experiments.comparison_results import COMPARISON, Comparison, best_of, holds_comparison
from inosgm.experiments.components import prepared
from inosgm.experiments.config import TrainingConfig, differences
from inosgm.experiments.grid import grid_for, points_of
from inosgm.experiments.input_files import read
from inosgm.experiments.methods import kind_of, methods_of
from inosgm.experiments.sweep_results import Metric
from inosgm.experiments.training_study import TrainingStudy, holds_sweep
from inosgm.jobs import Executor, SerialExecutor
from inosgm.jobs.stored_study import StoreLike, open_store
from inosgm.ledger.ledger import Ledger
from inosgm.methods.registry import METHODS, USUAL

SAME = ("data", "features", "owners", "seed", "ledger")
"""Keys that all configurations of a comparison have in common."""


class ComparisonStudy(TrainingStudy):
    """A comparison before its first run begins: everything is checked, and nothing is charged yet.

    Arguments are those of `compare`.

    Raises:
        ValueError: for configurations that cannot be compared or trained, naming the keys; for a store of something
            else.

    Attributes:
        configs: What is compared, by name.
    """

    def __init__(
        self,
        configs: TrainingConfig | Mapping[str, TrainingConfig],
        methods: Sequence[str] | None = None,
        *,
        seeds: int = 1,
        tune: Mapping[str, Sequence[Any]] | None = None,
        tune_seeds: int = 1,
        metric: Metric = Metric.balanced_accuracy,
        store: StoreLike,
    ) -> None:
        self.configs = _named(configs, methods)
        self._seeds = _validate.count("seeds", seeds, least=1)
        self._tune, self._metric = dict(tune or {}), metric
        self._tune_seeds = _validate.count("tune_seeds", tune_seeds, least=1) if tune else 0
        _require_tunable(self._tune, self.configs)
        self._points = {
            name: points_of(config, grid_for(config, self._tune), what="tune") for name, config in self.configs.items()
        }
        base, *_ = self.configs.values()
        store = open_store(store)
        if holds_sweep(store) and not holds_comparison(store):
            raise ValueError(f"store: {store.uri} holds a sweep: take another store (--store)")
        self._every = [point.config for points in self._points.values() for point in points]
        self._counted = range(self._tune_seeds, self._tune_seeds + self._seeds)
        self._later = [(config, index) for index in self._counted for config in self.configs.values()]
        first = range(self._tune_seeds or self._seeds)
        super().__init__(base, self._every, first, store=store, sweeps=True, more=self._later if self._tune else ())
        with suppress(FileNotFoundError):
            self.refuse(self._other_comparison(self.store.claimed(COMPARISON)))

    @property
    def runs(self) -> int:
        """The number of runs in total, those that tune included."""
        tuning = sum(map(len, self._points.values())) * self._tune_seeds
        return tuning + len(self.configs) * self._seeds

    def left(self) -> int:
        """Return how many runs are not done, those that tune included."""
        if self._tune:
            self._select_tuning()
            if waiting := super().left():
                return waiting + len(self.configs) * self._seeds
        self._select_methods()
        return super().left()

    def report(self) -> str:
        """Say what the comparison costs every owner, for people."""
        if self._tune:
            self._select_tuning()
        lines = [super().report()]
        if self._tune:
            tuning = self.runs - len(self.configs) * self._seeds
            lines.append(f"{tuning} of the {self.runs} runs choose among values, and are part of what the choice costs")
        warned = {name: METHODS[kind_of(config)].warning for name, config in self.configs.items()}
        lines += [f"WARNING: {name}: {warning}" for name, warning in warned.items() if warning]
        return "\n".join(lines)

    def run(
        self,
        executor: Executor | None = None,
        *,
        attempts: int = 5,
        progress: bool = True,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Comparison:
        """Do the runs that are not done; see `compare`.

        Args:
            executor: Who works.
            attempts: How many attempts of a run may fail.
            progress: Show how many runs are done.
            tell: A function that is called with a line about the runs that come next.
        """
        with SerialExecutor() if executor is None else executor as kept:
            if self._tune:
                self._select_tuning()
                self._finish("tuning", kept, attempts, progress, tell)
                if self.unfinished():
                    return Comparison.of(self.store)  # a run failed permanently: nothing is chosen without it
            self._select_methods()
            self._finish(f"{', '.join(self.configs)}: {self._seeds} seeds each", kept, attempts, progress, tell)
        return Comparison.of(self.store)

    def _finish(
        self, what: str, executor: Executor, attempts: int, progress: bool, tell: Callable[[str], None]
    ) -> None:
        """Do the runs that the study is about now."""
        if not self.unfinished():
            self.forget()  # which a command that was killed may not have come to
            return
        tell(what)
        self.run_jobs(executor, attempts=attempts, progress=progress)

    def begin(self) -> Ledger | None:
        """Make the store this comparison's, and open the shared ledger."""
        self.refuse(self._other_comparison(self.store.claim(COMPARISON, self._comparison())))
        return super().begin()

    def _select_tuning(self) -> None:
        self.select(self._every, range(self._tune_seeds), more=self._later)

    def _select_methods(self) -> None:
        """Turn to the runs that count: each method as tuning has chosen it, with other seeds than those that chose."""
        points = {name: points[0] for name, points in self._points.items()}
        if self._tune:
            found = Comparison.of(self.store)
            points = {name: best_of(method.tuning, self._metric) for name, method in found.methods.items()}
        chosen = [self.configs[name].changed(point.values) for name, point in points.items()]
        self.select(chosen, self._counted)

    def _comparison(self) -> dict[str, Any]:
        """Return what a store says about the one comparison that it belongs to; seeds may be added to it."""
        return {
            "methods": [[name, json.loads(self.job(made, 0).to_json())] for name, made in self.configs.items()],
            "tune": [[path, list(values)] for path, values in self._tune.items()],
            "tune_seeds": self._tune_seeds,
            "metric": self._metric.value,
        }

    def _other_comparison(self, known: Mapping[str, Any]) -> str:
        """Say what is different about the comparison that the store belongs to."""
        here = json.loads(json.dumps(self._comparison()))
        differing = [name for name in here if known[name] != here[name]]
        return f"holds a comparison with other {' and '.join(differing)}:" if differing else ""


def compare(
    configs: TrainingConfig | Mapping[str, TrainingConfig],
    methods: Sequence[str] | None = None,
    *,
    seeds: int = 1,
    tune: Mapping[str, Sequence[Any]] | None = None,
    tune_seeds: int = 1,
    metric: Metric = Metric.balanced_accuracy,
    store: StoreLike | None = None,
    executor: Executor | None = None,
    attempts: int = 5,
    progress: bool = True,
) -> Comparison:
    """Train several methods on the same data, with the same owners, budgets and seeds, and compare them.

    The same call resumes; with more `seeds`, only those are added.

    **Guarantee.** Each run is charged once, before it begins, and keeps the budgets by itself: all runs together spend
    what `ComparisonStudy.report` says. With a `ledger:` in the configuration all runs together keep those of the
    ledger, and none begins unless it can pay for all when this is called.

    Args:
        configs: The configurations by name, which may differ in all but data, owners, seed, key and ledger; or one,
            whose methods are compared. Their `run` is not used.
        methods: Names of `METHODS` that every configuration is turned into; for a single configuration dp-sgd, idp-sgd
            and ino-sgd if not given.
        seeds: How many runs of each method, with the same seeds for all.
        tune: Values by path of key. Every method is tried with all combinations, and the best one is run: the same
            grid for all, so that none is shown at a value that suits another. Keys of a section that a method does
            without (`tail.fraction` for idp-sgd, `adjustment.after` for ino-sgd) are tried for the others.
        tune_seeds: How many runs of each combination. Their seeds are not among those of the runs that count.
        metric: What the best one is chosen by, on the held-out records.
        store: Where runs are kept: a path, a URI that fsspec knows, or a Store; nowhere if not given. It belongs to one
            comparison.
        executor: Who works: this process if not given, or `ProcessExecutor`, or `ray_jobs.RayExecutor`.
        attempts: How many attempts of a run may fail before it fails permanently.
        progress: Show how many runs are done.

    Returns:
        What the methods came to.

    Raises:
        ValueError: for configurations that cannot be compared or trained, naming the keys; for a store of something
            else.
        BudgetExceeded: if the ledger cannot pay for all runs.
        Interrupted: after Ctrl-C, when all running jobs have written a checkpoint.
    """
    options: dict[str, Any] = {"seeds": seeds, "tune": tune, "tune_seeds": tune_seeds, "metric": metric}
    work: dict[str, Any] = {"attempts": attempts, "progress": progress}
    if store is not None:
        return ComparisonStudy(configs, methods, store=store, **options).run(executor, **work)
    with scratch_directory("compare") as place:
        return ComparisonStudy(configs, methods, store=place, **options).run(executor, **work)


def fitting(config: TrainingConfig) -> tuple[list[str], dict[str, str]]:
    """Return the methods that a configuration has what it takes for, and why others are not among them.

    A method whose guarantee is not that of all others (`Method.warning`) is never among them: it has to be named.

    Raises:
        FileNotFoundError: for data that is not there.
    """
    names, reasons = [], dict[str, str]()
    records = config.model_copy(update={"features": None})  # owners do not depend on them
    chosen = prepared(records, read(records))
    budgets = np.unique(chosen.owners.epsilon).size
    for name, method in METHODS.items():
        try:
            (made,) = methods_of(config, [name]).values()
            if method.warning:
                raise ValueError(f"{method.warning}; it runs only if it is named")
            if method.different_budgets and budgets == 1:
                raise ValueError("all owners grant the same, so nobody is the strictest")
            if method.adjusted:
                class_shares(made, chosen.dataset, chosen.owners.labels)
        except ValueError as error:
            reasons[name] = str(error).removeprefix("configuration: ")
        else:
            names.append(name)
    return names, reasons


def _named(
    configs: TrainingConfig | Mapping[str, TrainingConfig], methods: Sequence[str] | None
) -> dict[str, TrainingConfig]:
    """Return what is compared, by name, without run directories."""
    if isinstance(configs, TrainingConfig):
        named = methods_of(configs, USUAL if methods is None else methods)
    elif methods is None:
        named = dict(configs)
    elif len(configs) == 1:
        named = methods_of(next(iter(configs.values())), methods)
    else:
        made = {name: methods_of(config, methods) for name, config in configs.items()}
        named = {f"{name} {method}": config for name, row in made.items() for method, config in row.items()}
    if len(named) < 2:
        raise ValueError(f"configurations or methods must be two at least, got {len(named)}")
    (first, base), *others = named.items()
    for name, config in others:
        found = differences(base, config, (f"in {first}", f"in {name}"), within=SAME)
        if found:
            raise ValueError(
                f"configurations must agree on data, features, owners, seed and ledger; these differ in {found}"
            )
        if config.key != base.key:
            raise ValueError(f"configurations must agree on key; {first} and {name} do not")
    return {name: config.model_copy(update={"run": None}) for name, config in named.items()}


def _require_tunable(tune: Mapping[str, Any], configs: Mapping[str, TrainingConfig]) -> None:
    """Raise for keys that decide what a run costs, that make a method the method that it is called, or of no method."""
    fixed = {path: name for name in configs if name in METHODS for path in METHODS[name].changes}
    tried = {path for config in configs.values() for point in grid_for(config, tune) for path in point}
    for path in tune:
        if path == "plan" or (path.startswith("plan.") and path != "plan.clip_norm"):
            raise ValueError(
                f"tune: {path} changes what a run costs, which is to be known before the first begins: try its values "
                "with a sweep (`inosgm sweep --grid`), or compare files that differ in it"
            )
        decided = path.removesuffix(".kind")  # the kind of a tail is whether there is one
        if decided in fixed:
            raise ValueError(f"tune: {path} makes {fixed[decided]} what it is: compare files that differ in it instead")
        if path not in tried:
            section = path.partition(".")[0]
            raise ValueError(f"tune: no method that is compared has {section}: name one that does, or leave {path} out")
