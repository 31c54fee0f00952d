"""One configuration with many seeds: runs as durable jobs, and their summary."""

import io
from dataclasses import dataclass

from inosgm._internal import validate as _validate
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.summary import Summary
from inosgm.experiments.training_study import TrainingStudy
from inosgm.jobs import Executor, Outcome, Store
from inosgm.jobs.stored_study import StoreLike


@dataclass(frozen=True, kw_only=True, eq=False)
class Seeds:
    """Runs of one configuration with many seeds.

    Attributes:
        store: Where they are.
        outcome: Which runs are done, failed or left.
    """

    store: Store
    outcome: Outcome

    def summary(self) -> Summary:
        """Return a summary of the runs that are done."""
        return Summary.of(self.store)

    def write(self) -> Summary:
        """Write results.parquet (all results), summary.parquet and summary.svg into the store; return the summary."""
        summary = self.summary()
        self.store.compact()
        for name, write in (("summary.parquet", summary.to_parquet), ("summary.svg", summary.figure)):
            stream = io.BytesIO()
            write(stream)
            self.store.put(name, stream.getvalue())
        return summary


class SeedStudy(TrainingStudy):
    """Runs of one configuration with many seeds, before the first begins: nothing is charged yet.

    Args:
        config: What to train. Its `seed` is the root of all seeds, its `run` is not used.
        seeds: How many runs; those that are there already count.
        store: Where they are kept: a path, a URI that fsspec knows, or a Store.

    Raises:
        ValueError: for a configuration that cannot be trained, and for a store of another configuration, data or code.
    """

    def __init__(self, config: TrainingConfig, seeds: int, *, store: StoreLike) -> None:
        indices = range(_validate.count("seeds", seeds, least=1))
        super().__init__(config, [config], indices, store=store, sweeps=False)

    def announcement(self) -> str:
        """Say what the runs cost every owner and whom the plan gives little, or that all are done."""
        warning = self.task.warning(self.specs[0]) if self.left() else ""
        return "\n".join(filter(None, [super().announcement(), warning]))

    def run(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Seeds:
        """Do the runs that are not done; see `train_seeds`."""
        return Seeds(store=self.store, outcome=self.run_jobs(executor, attempts=attempts, progress=progress))


def train_seeds(
    config: TrainingConfig,
    seeds: int,
    *,
    store: StoreLike,
    executor: Executor | None = None,
    attempts: int = 5,
    progress: bool = True,
) -> Seeds:
    """Train a configuration with many seeds, as durable jobs; the same call resumes.

    **Guarantee.** Each run is charged once, before it begins, and keeps the budgets by itself; with a `ledger:` in the
    configuration all runs together keep those of the ledger, and none begins unless it can pay for all when this is
    called; what others charge to it meanwhile may leave too little for the last ones, which then fail. Runs with a
    `key:` equal, bit for bit, those of `train` with the seed of the job and as many threads.

    Args:
        config: What to train. Its `seed` is the root of all seeds; its `run` is not used.
        seeds: How many runs; ask for more later, and only those are made.
        store: Where they are kept: a path, a URI that fsspec knows, or a Store. It belongs to one configuration.
        executor: Who works: this process if not given, or `ProcessExecutor`, or `ray_jobs.RayExecutor`.
        attempts: How many attempts of a run may fail before it fails permanently.
        progress: Show how many runs are done.

    Returns:
        The runs, and which of them are done, failed or left.

    Raises:
        ValueError: for a configuration that cannot be trained, and for a store of another configuration, data or code.
        BudgetExceeded: if the ledger cannot pay for all runs.
        Interrupted: after Ctrl-C, when all running jobs have written a checkpoint.
    """
    return SeedStudy(config, seeds, store=store).run(executor, attempts=attempts, progress=progress)
