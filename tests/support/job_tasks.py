"""A small task for tests of jobs. As a script, a driver to be killed: STORE JOBS EXECUTOR ATTEMPTS FIRST DEAF"""

import os
import signal
import sys
import time
from dataclasses import dataclass

import numpy as np
from patience import wait_until

from inosgm.jobs import Interrupted, JobSpec, ProcessExecutor, Result, SerialExecutor, Stopped, Store
from inosgm.ledger.cost import Cost

STEPS = 10
LEASE = 3600.0
"""Seconds: no worker, however slow its machine is, is silent for so long."""


@dataclass(frozen=True)
class Walk:
    """A walk of so many noisy steps, saved after each; `pause` seconds a step."""

    pause: float = 0.0
    labels: tuple[str, ...] = ("a", "b")

    def cost(self, spec):
        rates = [0.1] * len(self.labels)
        multipliers = [2.0] * len(rates)
        return (Cost(labels=self.labels, sample_rates=rates, noise_multipliers=multipliers, steps=STEPS, job=spec.id),)

    def run(self, spec, attempt):
        attempt.ledger.charge(*self.cost(spec))
        self.misbehave(spec, attempt)
        steps = np.random.default_rng([spec.seed, attempt.key]).normal(size=STEPS)
        saved = attempt.latest()
        place = np.frombuffer(saved, dtype=np.float64) if saved else np.zeros(0)
        for step in range(place.size, STEPS):
            place = np.append(place, place[-1:].sum() + steps[step])
            attempt.save(step + 1, place.tobytes())
            self.rest(spec, attempt, step + 1)
            if attempt.stopping() and step + 1 < STEPS:
                raise Stopped
        return Result(values={"end": place[-1], "index": spec.index}, arrays={"place": place, "steps": steps})

    def misbehave(self, spec, attempt):
        how = spec.configuration.get("bad", {}).get(str(spec.index))
        if how == "raise":
            raise ValueError(f"job {spec.index} is poisoned")
        if how == "once" and attempt.number == 1:
            raise ValueError("try again")
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    def rest(self, spec, attempt, step):
        """Do whatever is done between two steps."""
        time.sleep(self.pause)


@dataclass(frozen=True)
class Waiting(Walk):
    """Walks of which those from an index on wait after each step until they are asked to stop, for ever if `deaf`.

    A walk that is deaf creates the file of that name when it is asked.
    """

    first: int = 0
    deaf: str = ""

    def rest(self, spec, attempt, step):
        if spec.index < self.first:
            return
        wait_until(attempt.stopping)
        if self.deaf:
            open(self.deaf, "w").close()
            wait_until(lambda: False)


def specs(count, **configuration):
    return [
        JobSpec(
            kind="walk", configuration={"seed": 5, **configuration}, data_fingerprint="d", code_version="1", index=i
        )
        for i in range(count)
    ]


def added(store, jobs):
    """Add jobs with keys that tests know, so that stores can be compared."""
    for job in jobs:
        store.add(job, key=1000 + job.index)
    return jobs


def outcome_of(store):
    """All that must not depend on who did the jobs, or how often they were disturbed."""
    found = {}
    for job, result in store.results().items():
        arrays = {name: array.tobytes() for name, array in result.arrays.items()}
        found[job] = (dict(result.values), arrays)
    return found


if __name__ == "__main__":
    uri, count, kind, attempts, first, deaf = sys.argv[1:]
    store = Store(uri, lease=LEASE)
    executor = SerialExecutor() if kind == "serial" else ProcessExecutor(2)
    jobs = added(store, specs(int(count)))
    try:
        task = Waiting(first=int(first), deaf=deaf)
        executor.run(task, jobs, store, attempts=int(attempts), progress=False)
    except Interrupted as interrupted:
        print("left", len(interrupted.outcome.left))
        sys.exit(130)
