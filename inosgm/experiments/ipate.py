"""IPATE as jobs: teachers that learn without noise, and the student that builds on their noisy votes."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inosgm.datasets.settings import Prepared
from inosgm.experiments import components
from inosgm.experiments.attempts import PAUSE, threads
from inosgm.experiments.building import PRECISIONS, TRIED_RECORDS
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.config.problems import about
from inosgm.experiments.input_files import Source
from inosgm.experiments.training import Evaluated
from inosgm.jobs import Attempt, JobSpec, Result
from inosgm.methods.ipate import NoisyVotes, Teachers, ids_of, partition_records
from inosgm.methods.ipate.learning import Learning, learn
from inosgm.methods.ipate.teachers import teachers_of
from inosgm.owners import Owners
from inosgm.training.curve import LearningCurve
from inosgm.training.gradients import fix_in_place
from inosgm.training.losses import per_record
from inosgm.training.metrics import Evaluation
from inosgm.training.predictions import as_numpy

TEACHER = "teacher"
"""The kind of the jobs that a student builds on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherInputs:
    """Inputs that the teachers of one student share: the data, the records of each, and the number of queries."""

    config: TrainingConfig
    chosen: Prepared
    queries: int
    records: list[np.ndarray]


class IpateTask:
    """Runs the jobs of IPATE. The result of a teacher is its votes, which are secret and never released; its model is
    not kept. The result of a student is that of every training run.

    **Guarantee.** That of `NoisyVotes`, for all that a student's job comes to: it learns from public inputs and
    released labels, and whatever is computed from these costs nothing more. A job that is repeated adds the same noise
    to the same votes. Teachers that are done stay done.

    Args:
        source: What the configurations of the jobs read from files.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[Any, Teachers] = {}
        self._latest: tuple[str, TeacherInputs] | None = None

    def teachers(self, student: JobSpec) -> tuple[JobSpec, ...]:
        """Return the jobs of a student's teachers, whose seeds are children of the student's own."""
        count = TrainingConfig.from_dict(student.configuration).plan.teachers
        assert count is not None  # which the configuration has seen to
        seeded = {**student.configuration, "seed": student.seed}
        first = replace(student, kind=TEACHER, configuration=seeded, index=0)
        return tuple(replace(first, index=number) for number in range(count.count))

    def teach(self, spec: JobSpec, attempt: Attempt) -> Result:
        """Let a teacher learn from its records, and vote on the queries.

        Raises:
            Stopped: if it was asked to, with a checkpoint to resume from.
        """
        inputs = self._inputs(spec)
        config, dataset, mine = inputs.config, inputs.chosen.dataset, inputs.records[spec.index]
        own = config.model_copy(update={"seed": spec.seed})
        with threads():
            teacher = _learning(own, inputs.chosen, (dataset.x[mine], dataset.y[mine]))
            learn(teacher, config.plan.steps, attempt, pause=_pause(config))
            votes = teacher.predict(_queries(inputs.chosen, inputs.queries))
        return Result(arrays={"votes": votes}, secret=True)

    def study(
        self,
        spec: JobSpec,
        config: TrainingConfig,
        attempt: Attempt,
        watch: Callable[[LearningCurve], None] | None = None,
    ) -> Result:
        """Release the votes of the teachers, and let the student learn from the labels.

        Args:
            spec: The job.
            config: Its configuration, with its seed.
            attempt: Where it is saved, what teachers came to, and who says when to stop.
            watch: Is given the learning curve after every evaluation.

        Raises:
            Stopped: if it was asked to, with a checkpoint to resume from.
        """
        chosen = components.prepared(config, self._source)
        teachers = self._of(config, chosen.owners)
        votes = np.stack([attempt.result(one.id).arrays["votes"] for one in self.teachers(spec)])
        mechanism = NoisyVotes(teachers, len(chosen.dataset.classes), key=attempt.key, ledger=attempt.ledger)
        steps = config.plan.steps
        often = config.training.evaluate_every or -(-steps // 10)
        held_out = (chosen.dataset.x_test, chosen.dataset.y_test, chosen.groups)
        with threads():
            queries = _queries(chosen, teachers.queries)
            student = _learning(config, chosen, (queries, mechanism.labels(votes)))

            def evaluate(step: int) -> bool:
                if step % often and step != steps:
                    return False
                student.record_evaluation(step, held_out)
                return True

            seen = None if watch is None else lambda: watch(_curve(student))
            learn(student, steps, attempt, pause=_pause(config), evaluate=evaluate, watch=seen)
            evaluation = student.evaluate(*held_out)
        found = Evaluated(plan=teachers.plan, step=1, steps_done=steps, evaluation=evaluation)
        spent = teachers.plan.spent()
        epsilon = {"least": float(spent.min()), "most": float(spent.max())}
        rows = [{**row, "epsilon": epsilon} for row in student.rows]
        return Result(
            values={**found.to_dict(), "curve": json.loads(_curve(student).to_json()), "log": rows},
            arrays={name: as_numpy(value) for name, value in student.model.state_dict().items()},
        )

    def check(self, config: TrainingConfig) -> None:
        """Raise for a model, a loss or held-out records that cannot be worked with; only public inputs are tried.

        Raises:
            ValueError: for records of the data set; what model and loss raise is left as it is.
        """
        chosen = components.prepared(config, self._source)
        if not len(chosen.dataset.y_test):
            raise ValueError(f"data: {config.data.name} has no held-out records")
        few, last = _queries(chosen, TRIED_RECORDS), len(chosen.dataset.classes) - 1
        trial = _learning(config, chosen, (few, np.full(len(few), last)))
        try:
            trial.step(1)
        except Exception as error:  # whatever model and loss raise
            error.add_note(f"(tried on public inputs with class {last}, the last that records of teachers may have)")
            raise
        trial.predict(few)
        held_out = (chosen.dataset.x_test, chosen.dataset.y_test, chosen.groups)
        trial.evaluate(*(column[:TRIED_RECORDS] for column in held_out))

    def _inputs(self, teacher: JobSpec) -> TeacherInputs:
        """Return what the teachers of one student share; that of the latest is kept, as they come one after another."""
        name = replace(teacher, index=0).id
        if self._latest is None or self._latest[0] != name:
            config = TrainingConfig.from_dict(teacher.configuration)
            chosen = components.prepared(config, self._source)
            teachers, dataset = self._of(config, chosen.owners), chosen.dataset
            ids = ids_of(dataset.x, dataset.y)
            records = partition_records(teachers, chosen.owners.of_record, ids, seed=config.seed)
            self._latest = name, TeacherInputs(config=config, chosen=chosen, queries=teachers.queries, records=records)
        return self._latest[1]

    def _of(self, config: TrainingConfig, owners: Owners) -> Teachers:
        """Say who the teachers are; owners and wishes that are the same get those that were found for them."""
        numbers = (owners.sizes.tobytes(), owners.epsilon.tobytes(), owners.delta.tobytes())
        wish = (owners.labels, numbers, config.plan)
        if wish not in self._known:
            with about("plan"):
                self._known[wish] = teachers_of(config.plan, owners)
        return self._known[wish]


def _learning(config: TrainingConfig, chosen: Prepared, data: tuple[np.ndarray, np.ndarray]) -> Learning:
    """Make what learns from some records as a configuration says."""
    learner, fit = components.learner_of(config, chosen.dataset), config.training
    if fit.fix:
        fix_in_place(learner.model, learner.optimizer)
    return Learning(
        model=learner.model,
        loss=per_record(learner.loss),
        optimizer=learner.optimizer,
        schedule=learner.schedule,
        data=data,
        batch=max(1, round(config.plan.expected_batch)),
        seed=config.seed,
        max_physical_batch=fit.max_physical_batch,
        autocast=None if fit.autocast is None else PRECISIONS[fit.autocast],
    )


def _queries(chosen: Prepared, count: int) -> np.ndarray:
    """Return the inputs that are labelled, the first of the public ones."""
    assert chosen.public is not None  # which the configuration has seen to
    return np.asarray(chosen.public[:count])


def _pause(config: TrainingConfig) -> float:
    """Return how many seconds lie between checkpoints, at least."""
    return PAUSE if config.training.checkpoint_every is None else 0.0


def _curve(student: Learning) -> LearningCurve:
    curve = LearningCurve()
    for row in student.rows:
        curve.append(row["step"], Evaluation.from_dict(row["evaluation"]))
    return curve
