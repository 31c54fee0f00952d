"""What Tune tries next: jobs that are given, or points that a searcher chooses. Both are charged before Tune knows."""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from ray import tune
from ray.tune.search import SEARCH_ALG_IMPORT, Searcher, create_searcher

from inosgm._internal.imports import imported
from inosgm.experiments.domains import Choice, Domain, Integers, LogUniform, Uniform, rounded
from inosgm.experiments.sweep_results import Metric
from inosgm.experiments.sweeps import CHOSEN, SweepStudy, chosen
from inosgm.jobs import JobSpec, interrupts
from inosgm.ledger.ledger import Ledger
from ray_jobs.trials import Told


class NotKept:
    """Something that Tune neither copies nor writes to a file: it may hold data."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return object, ()


class Given(NotKept, Searcher):
    """Gives Tune the jobs of a study, one after the other, each of which is charged before Tune knows of it.

    Args:
        study: Whose jobs they are.
        ledger: A ledger that is charged too.
    """

    def __init__(self, study: SweepStudy, ledger: Ledger | None) -> None:
        super().__init__(metric=study.metric.value, mode="max")
        self.jobs: list[str] = []
        self._study, self._ledger = study, ledger

    @property
    def number(self) -> int:
        """How many jobs there will be."""
        return len(self._study.specs)

    def to_come(self) -> list[str]:
        """Return the ids of jobs that Tune does not know of yet."""
        return [spec.id for spec in self._study.specs[len(self.jobs) :]]

    def suggest(self, trial_id: str) -> Any:
        """Return the next job."""
        if interrupts.asked() or len(self.jobs) == self.number:
            return Searcher.FINISHED
        spec = self._next(trial_id)
        if spec is None:
            return None
        self.jobs.append(self._charged(spec))
        return {"job": self.jobs[-1]}

    def on_trial_complete(self, trial_id: str, result: Told | None = None, error: bool = False) -> None:
        """Hear what came of a job, which changes nothing."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the store knows all."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""

    def _next(self, trial_id: str) -> JobSpec | None:
        """Return the next job, None if it is not known yet."""
        return self._study.specs[len(self.jobs)]

    def _charged(self, spec: JobSpec) -> str:
        """Put a job into the store, charge it unless that has been done, and return its id."""
        store, job = self._study.store, self._study.add(spec)
        if not store.state(job).charged:
            store.charge(job, self._study.task.cost(spec), self._ledger)
        return job


class Searched(Given):
    """Lets a searcher choose points, and writes them down: a resumed sweep uses the points it has.

    Args:
        study: Whose points they are.
        ledger: A ledger that is charged too.
        searcher: Chooses the points.
    """

    def __init__(self, study: SweepStudy, ledger: Ledger | None, searcher: Searcher) -> None:
        super().__init__(study, ledger)
        space = {path: _of_tune(domain) for path, domain in study.search.items()}
        searcher.set_search_properties(study.metric.value, "max", space)
        self._searcher, self._samples = searcher, study.samples
        self._recalled: dict[str, Mapping[str, Any]] = {}

    @property
    def number(self) -> int:
        """How many jobs there will be."""
        return self._samples

    def to_come(self) -> list[str]:
        """Return names for jobs of points that are not chosen yet."""
        return [f"to come: {place}" for place in range(len(self.jobs), self.number)]

    def on_trial_complete(self, trial_id: str, result: Told | None = None, error: bool = False) -> None:
        """Tell the searcher what came of a point."""
        value = math.nan if result is None else result.get(self.metric, math.nan)
        failed = error or math.isnan(value)
        values = self._recalled.get(trial_id)
        if values is None:
            self._searcher.on_trial_complete(trial_id, None if failed else result, error=failed)
        elif not failed:
            with suppress(NotImplementedError):  # a searcher that cannot learn from points that are not its own
                self._searcher.add_evaluated_point(dict(values), value)

    def _next(self, trial_id: str) -> JobSpec | None:
        place, store = len(self.jobs), self._study.store
        values = chosen(store, place)
        if values is not None:
            self._recalled[trial_id] = values
        else:
            suggested: Any = self._searcher.suggest(trial_id)
            if suggested is None or suggested == Searcher.FINISHED:
                self._samples = place if suggested else self._samples
                return None
            drawn = {path: _plain(suggested[path], domain) for path, domain in self._study.search.items()}
            values = store.claim(CHOSEN.format(place), {"values": drawn})["values"]
        return self._study.job(self._study.config.changed(values), 0)


def searcher_called(name: str, metric: Metric, seed: int) -> Searcher:
    """Make a searcher of Ray Tune by its name, or one of your own by its import path.

    Args:
        name: optuna, hyperopt, ... with the package of that name installed, or "package.module:Class", which is given
            `metric`, `mode` and `seed`.
        metric: The metric to maximize.
        seed: What it draws is a function of it, where it allows that.

    Raises:
        ValueError: for a name that is not known, or a package that is not installed.
    """
    known = [one for one in SEARCH_ALG_IMPORT if one not in ("variant_generator", "random")]
    options = {"metric": metric.value, "mode": "max", "seed": seed}
    if ":" not in name and name not in known:
        raise ValueError(f"searcher must be one of {', '.join(known)}, or package.module:Class, got {name!r}")
    try:
        made: Any = (
            imported(name)(**options) if ":" in name else create_searcher(name, **options, random_state_seed=seed)
        )
    except (AssertionError, ImportError, TypeError) as error:
        raise ValueError(f"searcher: {name} cannot be had here: {' '.join(str(error).split())}") from None
    if not isinstance(made, Searcher):
        raise ValueError(f"searcher: {name} must make a ray.tune.search.Searcher, got {type(made).__name__}")
    return made


def _of_tune(domain: Domain) -> Any:
    """Return a domain as Tune has it."""
    if isinstance(domain, Uniform):
        return tune.uniform(domain.low, domain.high)
    if isinstance(domain, LogUniform):
        return tune.loguniform(domain.low, domain.high)
    if isinstance(domain, Integers):
        return tune.randint(domain.low, domain.high + 1)
    if isinstance(domain, Choice):
        return tune.choice(list(domain.values))
    raise TypeError(f"search must hold domains of inosgm.experiments.domains, got {domain!r}")


def _plain(value: Any, domain: Domain) -> Any:
    """Return a value as YAML has it, a number with few digits."""
    if isinstance(domain, Uniform | LogUniform):
        return rounded(float(value), domain.low, domain.high)
    return int(value) if isinstance(domain, Integers) else value
