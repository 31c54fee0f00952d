"""An audit as durable jobs: shadow models are trained once, and their scores can be read any number of times."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.audit import draws
from inosgm.audit.design import Design
from inosgm.audit.ensemble import unstackable
from inosgm.audit.pool import Shadows
from inosgm.audit.shadows import ShadowTask
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.directory import with_absolute_paths
from inosgm.experiments.features import Keeper
from inosgm.experiments.input_files import read
from inosgm.experiments.training_study import changes, written
from inosgm.jobs import Executor, JobSpec, Outcome, Store
from inosgm.jobs.purpose import AUDIT
from inosgm.jobs.stored_study import StoredStudy, StoreLike
from inosgm.planning.plan import Plan

BLOCK = 32
"""Number of shadow models that are trained as one stack: enough to spread the overhead of Python over them."""

OWNERS = "owners.npy"
"""The document of a store with the owner of each record."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stored:
    """The part of an audit that is in a store. NOT PRIVATE.

    Attributes:
        config: The method under audit.
        seed: The seed of the audit.
        private: Whether shadow models were trained with privacy.
        canaries: The number of canaries of every owner; if not 0, only they are in `shadows`.
        plan: The plan that each follows.
        code_version: The version of the code that trained them.
        shadows: The scores of those models that are done.
    """

    config: TrainingConfig
    seed: int
    private: bool
    canaries: int
    plan: Plan
    code_version: str
    shadows: Shadows


class ShadowStudy(StoredStudy):
    """Shadow models of one method before the first is trained.

    Args:
        config: The method under audit. Its seed decides records and owners; its `run`, `key` and `ledger` are not used.
        shadows: Their number, including stored ones. If models can be stacked, whole blocks are trained.
        store: Keeps them: a path, a URI that fsspec knows, or a Store.
        seed: Decides the members of each shadow model, and everything else that is random.
        private: False for shadow models without clipping and noise, for comparison.
        canaries: The number of records of every owner that get a wrong class; only these are attacked.

    Raises:
        ValueError: for a configuration that cannot be trained, and for a store of something else.

    Attributes:
        design: Their common design.
    """

    purpose = AUDIT
    task: ShadowTask

    def __init__(
        self,
        config: TrainingConfig,
        shadows: int = 512,
        *,
        store: StoreLike,
        seed: int = 0,
        private: bool = True,
        canaries: int = 0,
    ) -> None:
        self.asked = _validate.count("shadows", shadows, least=1)
        config = with_absolute_paths(config).model_copy(update={"ledger": None})
        super().__init__(store)
        source = self._source = read(config, keeper=Keeper(self.store))
        wish = {"seed": _validate.count("seed", seed), "canaries": _validate.count("canaries", canaries)}
        self.design = Design.of(config, source, private=private, **wish)
        self.design.check()
        stacked = unstackable(self.design.config, self.design.pool.dataset) is None
        self.task = ShadowTask(self.design, BLOCK if stacked else 1)
        fingerprint = self.store.fingerprint(source.parts(config))
        blocks = -(-self.asked // self.task.block)
        self.specs = [self.task.spec(index, data_fingerprint=fingerprint) for index in range(blocks)]
        self.require_same()

    def left(self) -> int:
        """Return the number of requested shadow models that are not trained yet."""
        block = self.task.block
        return sum(min(block, self.asked - spec.index * block) for spec in self.unfinished())

    def run(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Outcome:
        """Train the shadow models that are not there yet; see `StoredStudy.run_jobs`."""
        if not self.left():
            return Outcome(done=tuple(spec.id for spec in self.specs), failed={}, left=())
        return self.run_jobs(executor, attempts=attempts, progress=progress)

    def begin(self) -> None:
        """Claim the store for this audit, and write the owner of each record."""
        super().begin()
        self._source.keep_features()
        stream = io.BytesIO()
        np.save(stream, self.design.owners)
        self.store.put(OWNERS, stream.getvalue())

    def identity(self) -> dict[str, Any]:
        """Return the identity of the audit, as the store holds it."""
        return {"spec": json.loads(self.specs[0].to_json()), "plan": json.loads(self.design.plan.to_json())}

    def difference(self, known: Mapping[str, Any]) -> str:
        """Return how the audit of the store differs from this one."""
        if known == self.identity():
            return ""
        here, there = self.specs[0], JobSpec.from_json(json.dumps(known["spec"]))
        one, other = (spec.configuration["audit"] for spec in (there, here))
        differing = [
            f"{name} ({one.get(name)} there, {other[name]} here)" for name in other if one.get(name) != other[name]
        ]
        return changes(there, here) or f"holds another audit, which differs in {', '.join(differing) or 'its plan'}:"


def stored(store: Store, asked: int | None = None) -> Stored:
    """Read an audit from a store; neither the data nor the code that trained it is needed.

    Args:
        store: The store.
        asked: The largest number of shadow models to read; all that were ever requested if not given.

    Raises:
        FileNotFoundError: for a store of something else.
        StoreDamaged: for a result that was changed after it was written.
    """
    known = store.claimed(AUDIT)
    first = JobSpec.from_json(json.dumps(known["spec"]))
    audit, block = first.configuration["audit"], first.configuration["block"]
    owners = np.load(io.BytesIO(store.get(OWNERS)), allow_pickle=False)
    count = audit.get("canaries", 0)
    looked_at = draws.canaries(audit["seed"], owners, count) if count else np.arange(owners.size)
    specs, states = store.specs(), store.states()
    wanted = len(specs) * block if asked is None else asked
    numbers: list[int] = []
    scores = [np.empty((0, looked_at.size), dtype=np.float32)]
    for job, spec in specs.items():
        rows = range(spec.index * block, min((spec.index + 1) * block, wanted))
        if states[job].done and rows:
            numbers += rows
            scores.append(store.result(job).arrays["scores"][: len(rows), looked_at])
    plan = Plan.from_json(json.dumps(known["plan"]))
    members = [draws.members(audit["seed"], number, owners.size)[looked_at] for number in numbers]
    return Stored(
        config=written(first),
        seed=audit["seed"],
        private=audit["private"],
        canaries=count,
        plan=plan,
        code_version=first.code_version,
        shadows=Shadows(
            scores=np.concatenate(scores),
            members=np.array(members, dtype=np.bool_).reshape(len(numbers), looked_at.size),
            owners=owners[looked_at],
            labels=plan.labels,
            asked=wanted,
            numbers=tuple(numbers),
        ),
    )
