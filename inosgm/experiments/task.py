"""Training as a job: a function of a configuration, an index, and what was read from files."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from inosgm.experiments import components, plans
from inosgm.experiments.attempts import PAUSE, AttemptRun, threads
from inosgm.experiments.building import Training, assemble, require_diagnosable
from inosgm.experiments.code_version import code_version
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.directory import with_absolute_paths
from inosgm.experiments.input_files import Source
from inosgm.experiments.ipate import TEACHER, IpateTask
from inosgm.experiments.small_shares import small_shares_warning
from inosgm.experiments.training import fit
from inosgm.jobs import Attempt, JobSpec, Result, Stopped
from inosgm.ledger.cost import Cost, LedgerHook
from inosgm.owners import Owners
from inosgm.planning.sequence import PlanSequence
from inosgm.training.curve import LearningCurve
from inosgm.training.predictions import as_numpy

KIND = "train"


def spec_of(config: TrainingConfig, index: int, *, data_fingerprint: str) -> JobSpec:
    """Return the job of training a configuration with the seed that belongs to an index.

    It holds no key, no run, no ledger, and no data directory: the fingerprint stands for the data.
    """
    return JobSpec(
        kind=KIND,
        configuration=described(config),
        data_fingerprint=data_fingerprint,
        code_version=code_version(config),
        index=index,
    )


def described(config: TrainingConfig) -> dict[str, Any]:
    """Return what a job says about its configuration."""
    whole = with_absolute_paths(config)
    whole = whole.model_copy(update={"data": whole.data.model_copy(update={"root": None})})
    return whole.model_dump(exclude={"key", "run", "ledger"})


def config_of(spec: JobSpec) -> TrainingConfig:
    """Return the configuration of a job, with the seed of its own."""
    return TrainingConfig.from_dict({**spec.configuration, "seed": spec.seed}, source=f"job {spec.id}")


class TrainingTask:
    """Trains models: each a function of its spec and its key, bit for bit, however often it was stopped.

    The result of a job has the values `curve` (as `LearningCurve.to_json`), `evaluation`, `steps`, `accountant`,
    `owners` (what each granted and has spent) and `log` (the public rows of the log), and the parameters of the model
    as arrays. Private rows of the log are not kept.

    Args:
        source: What the configurations of the jobs read from files.
    """

    def __init__(self, source: Source) -> None:
        self._source, self._outline = source, source.outline()
        self._courses: dict[Any, PlanSequence] = {}
        self._ipate = IpateTask(source)

    def owners(self, spec: JobSpec) -> Owners:
        """Return the owners of the records that a job trains on."""
        return components.prepared(config_of(spec), self._outline).owners

    def cost(self, spec: JobSpec) -> tuple[Cost, ...]:
        """Return what a job asks of the owners: all steps of its plan; nothing for a teacher, who releases nothing.

        Raises:
            ValueError: for a job that cannot be trained with the records that its seed chooses.
        """
        if spec.kind == TEACHER:
            return ()
        config = config_of(spec)
        chosen = components.prepared(config, self._outline)
        course = self._course(config, chosen.owners)
        require_diagnosable(config, course.first, chosen.groups)
        return course.costs(job=spec.id, note=f"{spec.kind}, index {spec.index}")

    def warning(self, spec: JobSpec) -> str:
        """Return a warning about owners that the plan of a job gives little of every batch, or nothing."""
        config = config_of(spec)
        chosen = components.prepared(config, self._outline)
        return small_shares_warning(config, chosen.dataset, self._course(config, chosen.owners))

    def before(self, spec: JobSpec) -> Sequence[JobSpec]:
        """Return the jobs that a training run builds on: the teachers of a student of IPATE, if it is one."""
        return self._ipate.teachers(spec) if config_of(spec).plan.by_votes else ()

    def check(self, spec: JobSpec, *, on_cpu: bool = False) -> None:
        """Raise for a job that cannot be trained, as far as can be said before anything is charged.

        Args:
            spec: The job.
            on_cpu: Try it on the CPU: what trains may have another device than what asks.

        Raises:
            ValueError: for what is wrong with it; what the model and the loss raise is left as it is.
        """
        config = _tried(config_of(spec), on_cpu=on_cpu)
        if config.plan.by_votes:
            self._ipate.check(config)
        else:
            self._training(config).check()

    def run(self, spec: JobSpec, attempt: Attempt, *, watch: Callable[[LearningCurve], None] | None = None) -> Result:
        """Train, or resume training, and return the result.

        Args:
            spec: What to train.
            attempt: Where it is saved, and who says when to stop.
            watch: Is given the learning curve after every evaluation, when what came to it is in the store: no other
                attempt computes what was seen again.

        Raises:
            Stopped: if it was asked to, with a checkpoint to resume from.
            RuntimeError: where the code is not that of the spec.
        """
        config = config_of(spec)
        spec.require_code(code_version(config))
        if spec.kind == TEACHER:
            return self._ipate.teach(spec, attempt)
        if config.plan.by_votes:
            return self._ipate.study(spec, config, attempt, watch)
        training = self._training(config, attempt.key, attempt.ledger)
        pause = PAUSE if training.config.training.checkpoint_every is None else 0.0
        with threads(), AttemptRun.of(attempt, pause) as run:
            found = fit(training, run=run, watch=watch, stop=attempt.stopping)
            if found.steps_done < self._course(config, training.owners).steps:  # of all stages
                raise Stopped
            rows = [json.loads(line) for line in (run.path / "log.jsonl").read_bytes().splitlines()]
        return Result(
            values={**found.to_dict(), "curve": json.loads(found.curve.to_json()), "log": rows},
            arrays={name: as_numpy(value) for name, value in training.trainer.model.state_dict().items()},
        )

    def _training(self, config: TrainingConfig, key: int | None = None, ledger: LedgerHook | None = None) -> Training:
        """Make all that is trained."""
        chosen = components.prepared(config, self._source)
        return assemble(config, chosen, self._course(config, chosen.owners), key=key, ledger=ledger)

    def _course(self, config: TrainingConfig, owners: Owners) -> PlanSequence:
        """Plan; owners and wishes that are the same get the plans that were made for them."""
        numbers = (owners.sizes.tobytes(), owners.epsilon.tobytes(), owners.delta.tobytes())
        wish = (owners.labels, numbers, config.plan)
        if wish not in self._courses:
            self._courses[wish] = plans.planned(config, owners, None)
        return self._courses[wish]


def _tried(config: TrainingConfig, *, on_cpu: bool) -> TrainingConfig:
    """Return a configuration as it is tried before anything is charged."""
    if not on_cpu:
        return config
    components.device_of(config)  # must be a device, whether or not there is one here
    return config.changed({"training.device": "cpu"})
