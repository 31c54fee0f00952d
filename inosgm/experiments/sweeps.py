"""Sweeps: a grid or a search over keys of a configuration, with any executor."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from inosgm._internal import validate as _validate
from inosgm.experiments.comparison_results import holds_comparison
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.domains import Domain, samples_of
from inosgm.experiments.grid import Point, grid_of, points_of
from inosgm.experiments.sweep_results import TABLE, Metric, Sweep, standings, stopped_early
from inosgm.experiments.training_study import TrainingStudy
from inosgm.jobs import Executor, Interrupted, Store
from inosgm.jobs.stored_study import StoreLike, open_store

CHOSEN = "point-{}.json"
"""The document in the store that holds the values of the n-th point that a tuner has chosen."""


class Tuner(Protocol):
    """Decides while a sweep runs: stops runs early, or chooses points by the results of others (`ray_jobs.tuning`)."""

    @property
    def chooses(self) -> bool:
        """Whether it chooses the points; otherwise they are given."""

    def check(self, metric: Metric, seed: int) -> None:
        """Raise ValueError for what it needs and does not have."""

    def run(self, study: "SweepStudy", executor: Executor, *, attempts: int, progress: bool) -> object:
        """Do the runs of a sweep that are not done."""


class SweepStudy(TrainingStudy):
    """A sweep before its first run begins: all its points are checked, and nothing is charged yet.

    Arguments are those of `sweep`.

    Raises:
        ValueError: listing all that is wrong with any point; for a sweep that cannot be; for a store of something else.

    Attributes:
        points: The points that are known by now.
        search: What each key may be.
        samples: How many times values are drawn.
        metric: What the tuner makes large.
    """

    def __init__(
        self,
        config: TrainingConfig,
        grid: Mapping[str, Sequence[Any]] | None = None,
        *,
        search: Mapping[str, Domain] | None = None,
        samples: int | None = None,
        seeds: int = 1,
        store: StoreLike,
        tuner: Tuner | None = None,
        metric: Metric = Metric.balanced_accuracy,
    ) -> None:
        grid, self.search, self.metric, self._tuner = dict(grid or {}), dict(search or {}), metric, tuner
        self.samples = 0 if samples is None else _validate.count("samples", samples, least=1)
        _require_keys(grid, self.search, self.samples)
        if tuner is not None and seeds != 1:
            raise ValueError(
                f"seeds must be 1 where a scheduler or a searcher decides, got {seeds}: look again at what it has "
                "found, with a grid and more seeds, in the same store"
            )
        store = open_store(store)
        if holds_comparison(store):
            raise ValueError(f"store: {store.uri} holds a comparison: take another store (--store)")
        if tuner is not None and tuner.chooses:
            self._require_searchable(config, grid)
            tuner.check(metric, config.seed)
            choices = [values for i in range(self.samples) if (values := chosen(store, i)) is not None]
            self._unknown = self.samples - len(choices)
        else:
            drawn = samples_of(self.search, self.samples, config.seed) if self.search else [{}]
            choices = [{**values, **more} for more in drawn for values in grid_of(grid)]
            self._unknown = 0
        self.points: list[Point] = points_of(config, choices)
        super().__init__(
            config,
            [point.config for point in self.points],
            range(_validate.count("seeds", seeds, least=1)),
            store=store,
            sweeps=True,
            more=[(config, 0)] * self._unknown,
        )

    def left(self) -> int:
        """Return how many runs are neither done nor, if there is a tuner, stopped early."""
        open_runs = self.unfinished()
        if self._tuner is not None:
            open_runs = [spec for spec in open_runs if stopped_early(self.store, spec.id) is None]
        return len(open_runs) + self._unknown

    def report(self) -> str:
        """Say what the sweep costs every owner, for people."""
        return (
            f"{super().report()}\n{len(self.points) + self._unknown} points: the best is chosen by results, so every "
            "run is part of what that choice costs, one that is stopped early like any other"
        )

    def run(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Sweep:
        """Do the runs that are not done; see `sweep`."""
        try:
            if self.left() and self._tuner is None:
                self.run_jobs(executor, attempts=attempts, progress=progress)
            elif self.left() and self._tuner is not None:
                if executor is None:
                    raise TypeError("executor must be given where a scheduler or a searcher decides: RayExecutor()")
                self._tuner.run(self, executor, attempts=attempts, progress=progress)
        except Interrupted:
            self.forget()
            self._write()
            raise
        self.forget()
        self.store.compact()
        return self._write()

    def _write(self) -> Sweep:
        """Write what the points came to into the store, and return it."""
        found = standings(self.store)
        self.store.put(TABLE, found.to_parquet())
        return found

    def _require_searchable(self, config: TrainingConfig, grid: Mapping[str, Any]) -> None:
        """Raise for keys that a tuner cannot choose as it goes, and for ends of domains that cannot be trained."""
        if grid or not self.search:
            raise ValueError(
                "a searcher chooses all values: give it keys to search (--search), and no grid; a key with a "
                "few values is a choice"
            )
        costly = [path for path in self.search if path.split(".")[0] == "plan"]
        if costly:
            raise ValueError(
                f"search: {costly[0]} changes what a run costs, which must be known for all before the first begins: "
                "leave it to a grid, or draw points at random (without a searcher)"
            )
        first = {path: domain.ends()[0] for path, domain in self.search.items()}
        points_of(config, [{**first, path: end} for path, domain in self.search.items() for end in domain.ends()])


def _require_keys(grid: Mapping[str, Any], search: Mapping[str, Any], samples: int) -> None:
    """Raise for a sweep of nothing, and for keys that are there twice."""
    if not grid and not search:
        raise ValueError("there must be keys to sweep: a grid (--grid optimizer.lr=0.1,0.5) or a search (--search)")
    if bool(search) != bool(samples):
        raise ValueError("samples and search go together: --search optimizer.lr=log:0.01..10 --samples 20")
    both = [path for path in grid if path in search]
    if both:
        raise ValueError(f"{both[0]} must be in the grid or in the search, and is in both")


def chosen(store: Store, place: int) -> dict[str, Any] | None:
    """Return the values of the n-th point that a tuner has chosen; None if it has not."""
    try:
        values: dict[str, Any] = store.claimed(CHOSEN.format(place))["values"]
    except FileNotFoundError:
        return None
    return values


def sweep(
    config: TrainingConfig,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    search: Mapping[str, Domain] | None = None,
    samples: int | None = None,
    seeds: int = 1,
    store: StoreLike,
    executor: Executor | None = None,
    tuner: Tuner | None = None,
    metric: Metric = Metric.balanced_accuracy,
    attempts: int = 5,
    progress: bool = True,
) -> Sweep:
    """Train configurations that differ from one in a few keys, with the same seeds, and compare them.

    The same call resumes. Another grid adds points to the store; finished runs are reused.

    **Guarantee.** Each run is charged once, before it begins, and keeps the budgets by itself; with a `ledger:` in the
    configuration all runs together keep those of the ledger, and none begins unless it can pay for all when this is
    called; what others charge to it meanwhile may leave too little for the last ones, which then fail. The best point
    is chosen by results: whoever publishes it has published something about all runs. A run that is stopped early stays
    charged in full.

    Args:
        config: What points differ from. Its `seed` is the root of all seeds; its `run` is not used.
        grid: Values by path of key; all combinations are tried.
        search: What a key may be, by path; combinations of such values are drawn, each for every point of the grid.
        samples: How many times to draw.
        seeds: How many runs of each point, with the same seeds for all. First seeds come before second ones.
        store: Where they are kept: a path, a URI that fsspec knows, or a Store. It belongs to
            sweeps of one configuration.
        executor: Who works: this process if not given, or `ProcessExecutor`, or `ray_jobs.RayExecutor`.
        tuner: Who stops runs early, or chooses points by the results of others: `ray_jobs.tuning.RayTuner`, which needs
            a `RayExecutor`. Without one all runs are finished, and points are drawn at random, a function of the seed.
        metric: What a tuner goes by, on the held-out records.
        attempts: How many attempts of a run may fail before it fails permanently.
        progress: Print first what the sweep costs, and show how many runs are done.

    Returns:
        What the points in the store came to.

    Raises:
        ValueError: listing all that is wrong with any point; for a sweep that cannot be; for a store of something else.
        BudgetExceeded: if the ledger cannot pay for all runs.
        Interrupted: after Ctrl-C, when all running jobs have written a checkpoint.
    """
    study = SweepStudy(
        config, grid, search=search, samples=samples, seeds=seeds, store=store, tuner=tuner, metric=metric
    )
    if progress:
        print(study.announcement(), file=sys.stderr)
    return study.run(executor, attempts=attempts, progress=progress)
