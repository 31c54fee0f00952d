"""A sweep before its first run begins, and how its runs are made; Ray is imported only where it works or decides."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inosgm._internal import validate as _validate
from inosgm.experiments.comparison import holds_comparison
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.grid import Point, grid_of, points_of
from inosgm.experiments.seeds import Study
from inosgm.experiments.standings import TABLE, Metric, Sweep, standings, stopped_early
from inosgm.jobs import Executor, Interrupted, Outcome, Store
from ray_jobs.domains import Domain, samples_of

if TYPE_CHECKING:
    from ray_jobs.tuning import Asha


class SweepStudy:
    """A sweep before its first run begins: all its points are checked, and nothing is charged yet.

    Arguments are those of `sweep`.

    Raises:
        ValueError: listing all that is wrong with any point; for a sweep that cannot be; for a store of something else.

    Attributes:
        points: The points that are known by now.
        study: Their runs.
    """

    def __init__(
        self,
        config: TrainingConfig,
        grid: Mapping[str, Sequence[Any]] | None = None,
        *,
        search: Mapping[str, Domain] | None = None,
        samples: int | None = None,
        seeds: int = 1,
        store: Store | str | os.PathLike[str],
        scheduler: "Asha | None" = None,
        searcher: str | None = None,
        metric: Metric = Metric.balanced_accuracy,
    ) -> None:
        self._config, self._search, self._scheduler, self._metric = config, dict(search or {}), scheduler, metric
        self._samples = 0 if samples is None else _validate.count("samples", samples, least=1)
        self._searcher = searcher
        _require_whole(dict(grid or {}), self._search, self._samples)
        if (scheduler is not None or searcher is not None) and seeds != 1:
            raise ValueError(
                f"seeds must be 1 where a scheduler or a searcher decides, got {seeds}: look again at what it has "
                "found, with a grid and more seeds, in the same store"
            )
        place = store if isinstance(store, Store) else Store(store)
        if holds_comparison(place):
            raise ValueError(f"store: {place.uri} holds a comparison: take another store (--store)")
        if searcher is None:
            drawn = samples_of(self._search, self._samples, config.seed) if self._search else [{}]
            choices = [{**values, **more} for more in drawn for values in grid_of(dict(grid or {}))]
        else:
            from ray_jobs.searchers import chosen

            self._require_searchable(grid)
            choices = [values for i in range(self._samples) if (values := chosen(place, i)) is not None]
        self.points: list[Point] = points_of(config, choices)
        self._more = 0 if searcher is None else self._samples - len(choices)
        configs = [point.config for point in self.points]
        self.study = Study(config, seeds, store=place, points=configs, more=[(config, 0)] * self._more)

    @property
    def runs(self) -> int:
        """How many runs there will be."""
        return len(self.study.specs) + self._more

    def report(self) -> str:
        """Say what the sweep costs every owner, for people."""
        return (
            f"{self.study.report()}\n{len(self.points) + self._more} points: the best is chosen by results, so every "
            "run is part of what that choice costs, one that is stopped early like any other"
        )

    def run(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Sweep:
        """Do the runs that are not done; see `sweep`."""
        if executor is None:
            from ray_jobs.executor import RayExecutor

            executor = RayExecutor()
        try:
            if self._settled():
                pass
            elif self._scheduler is None and self._searcher is None:
                self.study.run(executor, attempts=attempts, progress=progress)
            else:
                self._tuned(executor, attempts, progress)
        except Interrupted:
            self.study.forget()
            self._write()
            raise
        self.study.forget()
        self.study.store.compact()
        return self._write()

    def _write(self) -> Sweep:
        """Write what the points came to into the store, and return it."""
        found = standings(self.study.store)
        self.study.store.put(TABLE, found.to_parquet())
        return found

    def _settled(self) -> bool:
        """Say whether nothing is left to do: all points are known, and their runs are done, or were stopped early."""
        store, states = self.study.store, self.study.store.states()
        tunes = self._scheduler is not None or self._searcher is not None
        return self._more == 0 and all(
            spec.id in states and (states[spec.id].done or (tunes and stopped_early(store, spec.id) is not None))
            for spec in self.study.specs
        )

    def _tuned(self, executor: Executor, attempts: int, progress: bool) -> Outcome:
        from ray_jobs.executor import RayExecutor
        from ray_jobs.searchers import Given, Searched, searcher_called
        from ray_jobs.tuning import tuned

        if not isinstance(executor, RayExecutor):
            raise TypeError(f"executor must be a RayExecutor where a scheduler or a searcher decides, got {executor!r}")
        ledger = self.study.begin()
        if self._searcher is None:
            given = Given(self.study, ledger, self._metric)
        else:
            given = Searched(
                self.study,
                ledger,
                self._metric,
                config=self._config,
                searcher=searcher_called(self._searcher, self._metric, self._config.seed),
                search=self._search,
                samples=self._samples,
            )
        return tuned(
            self.study.store,
            self.study.task,
            given,
            scheduler=self._scheduler,
            metric=self._metric,
            steps=max(point.config.plan.steps for point in (*self.points, Point(values={}, config=self._config))),
            executor=executor,
            attempts=attempts,
            progress=progress,
        )

    def _require_searchable(self, grid: Mapping[str, Sequence[Any]] | None) -> None:
        """Raise for what a searcher that chooses as it goes cannot choose."""
        from ray_jobs.searchers import searcher_called

        if grid or not self._search:
            raise ValueError(
                "a searcher chooses all values: give it keys to search (--search), and no grid; a key with a "
                "few values is a choice"
            )
        costly = [path for path in self._search if path.split(".")[0] == "plan"]
        if costly:
            raise ValueError(
                f"search: {costly[0]} changes what a run costs, which must be known for all before the first begins: "
                "leave it to a grid, or draw points at random (without a searcher)"
            )
        first = {path: domain.ends()[0] for path, domain in self._search.items()}
        points_of(
            self._config, [{**first, path: end} for path, domain in self._search.items() for end in domain.ends()]
        )
        searcher_called(str(self._searcher), self._metric, self._config.seed)


def _require_whole(grid: Mapping[str, Any], search: Mapping[str, Any], samples: int) -> None:
    """Raise for a sweep of nothing, and for keys that are there twice."""
    if not grid and not search:
        raise ValueError("there must be keys to sweep: a grid (--grid optimizer.lr=0.1,0.5) or a search (--search)")
    if bool(search) != bool(samples):
        raise ValueError("samples and search go together: --search optimizer.lr=log:0.01..10 --samples 20")
    both = [path for path in grid if path in search]
    if both:
        raise ValueError(f"{both[0]} must be in the grid or in the search, and is in both")
