"""Jobs that train shadow models: a block of them at a time if they can be stacked, otherwise one by one."""

import io
from time import monotonic

import numpy as np
import torch

from inosgm.audit.design import Design
from inosgm.experiments.attempts import PAUSE, AttemptRun, threads
from inosgm.experiments.code_version import code_version
from inosgm.jobs import Attempt, JobSpec, Result, Stopped
from inosgm.ledger.cost import Cost

KIND = "shadows"


class ShadowTask:
    """Trains shadow models and scores the pool with each: the result of a job is one array, `scores`, a row per model.

    A job is charged to nobody, since nothing of an audit is released. NOT PRIVATE: scores are as secret as records.

    Args:
        design: The common design of the shadow models.
        block: The number of models that a job trains.
    """

    def __init__(self, design: Design, block: int) -> None:
        self.design, self.block = design, block

    def spec(self, index: int, *, data_fingerprint: str) -> JobSpec:
        """Return the job that trains a block of shadow models."""
        return JobSpec(
            kind=KIND,
            configuration={**self.design.description, "block": self.block},
            data_fingerprint=data_fingerprint,
            code_version=code_version(self.design.config),
            index=index,
        )

    def cost(self, spec: JobSpec) -> tuple[Cost, ...] | None:
        """Return nothing: an audit is not released."""
        return None

    def run(self, spec: JobSpec, attempt: Attempt) -> Result:
        """Train the shadow models of a block, or resume, and score the pool with each.

        Raises:
            Stopped: on request, after writing a checkpoint.
            RuntimeError: where code or design are not those of the spec.
        """
        spec.require_code(code_version(self.design.config))
        if self.spec(spec.index, data_fingerprint=spec.data_fingerprint).id != spec.id:
            raise RuntimeError("this job belongs to another audit than the worker was given")
        with threads():
            train = self._together if self.block > 1 else self._alone
            return Result(arrays={"scores": train(spec.index, attempt)})

    def _together(self, index: int, attempt: Attempt) -> np.ndarray:
        """Train a block of shadow models as one."""
        ensemble = self.design.ensemble(range(index * self.block, (index + 1) * self.block))
        content = attempt.latest()
        if content is not None:
            ensemble.load_state_dict(torch.load(io.BytesIO(content), weights_only=True))
        steps, saved, stopping = self.design.plan.steps, monotonic(), False
        while ensemble.steps_done < steps:
            if stopping:
                raise Stopped
            ensemble.step()
            stopping = attempt.stopping()
            if stopping or monotonic() - saved > PAUSE:
                stream = io.BytesIO()
                torch.save(ensemble.state_dict(), stream)
                attempt.save(ensemble.steps_done, stream.getvalue())
                saved = monotonic()
        return ensemble.scores()

    def _alone(self, shadow: int, attempt: Attempt) -> np.ndarray:
        """Train one shadow model."""
        design = self.design
        learner = design.learner(shadow)
        trainer = design.trainer(shadow, learner)
        every = design.config.training.checkpoint_every
        with AttemptRun.of(attempt, PAUSE if every is None else 0.0) as run:
            trainer.fit(*design.records(shadow), run=run, checkpoint_every=every, stop=attempt.stopping, progress=False)
        if trainer.released < design.plan.steps:
            raise Stopped
        return design.scores(learner)[None]
