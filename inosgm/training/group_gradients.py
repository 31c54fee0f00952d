"""Per-record gradients of a batch whose shards several ranks compute, and the ranks that follow the one that leads."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm._internal.keys import Purpose
from inosgm._internal.records import records_in
from inosgm._internal.validate import Array
from inosgm.mechanism.units import RecordsOfUnits
from inosgm.planning.plan import Plan
from inosgm.training.gradients import Engine
from inosgm.training.microbatches import LogicalBatch, parts_of
from inosgm.training.model_gradients import ModelGradients
from inosgm.training.same_records import digest_of_records, fresh_salt, repeatable_digest
from inosgm.training.workers import Workers, cut, fresh_key

WHOLE_BITS = 61
"""The largest sum that a plan allows is below two to this many units: one bit is left, and the sign."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A shard of a batch: the positions of its records, or its units, and the number of its first micro-batch."""

    positions: np.ndarray | RecordsOfUnits
    first: int

    @property
    def size(self) -> int:
        """The number of its records, or of its units."""
        return self.positions.size if isinstance(self.positions, np.ndarray) else self.positions.counts.size


class GroupGradients(ModelGradients):
    """Runs a model on records, those of a batch in shards on all ranks of a group; the leader's side.

    With one shard it computes as `ModelGradients` does.

    Args:
        model: The model.
        loss: As for `ModelGradients`, like the options.
        workers: The group.

    Attributes:
        shards: Into how many shards a batch is cut: a fact of the run, not of the group that computes it.
    """

    def __init__(self, model: nn.Module, loss: Any, *, workers: Workers, **options: Any) -> None:
        self.workers, self.shards = workers, workers.shards
        self.exponent = 0
        super().__init__(model, loss, **options)

    @property
    def in_parts(self) -> bool:
        """Whether a batch is run in parts, of which shards are some."""
        return super().in_parts or self.shards > 1

    def cut_into(self, shards: int) -> None:
        """Cut batches into so many shards from now on."""
        if shards != self.shards:
            self.shards, self._engine = shards, None  # the engine must fit to batches in parts

    def follow_plan(self, plan: Plan) -> None:
        """Choose the unit of whole numbers by the largest sum that a plan allows: its records and sensitivities."""
        bounds = plan.sensitivities if plan.choices is None else plan.choices.sensitivities
        self.exponent = WHOLE_BITS - math.frexp((int(plan.sizes.sum()) + 1) * float(bounds.max()))[1]

    def require_listening(self) -> None:
        """Raise unless a step can be made: the other ranks wait for what this one tells them."""
        self.workers.require_listening()

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Compare sums in this process, which must be alone: other ranks would not know that dropout is left out."""
        self.workers.require_alone("certify and audit")
        with super().comparing():
            yield

    def begin(self, data: Any, stage: int) -> None:
        """Give every rank the model as it is here, and have it checked there with the data of that rank."""
        workers = self.workers
        if workers.size == 1:
            return
        salt = fresh_salt()
        about = {"records": records_in(data), "tensors": described(self.model), "shards": self.shards, "stage": stage}
        about |= {"salt": salt, "digest": repeatable_digest(data, self.like(), salt)}
        with workers.answering():
            workers.tell("begin", lambda rank: about)
            workers.collect(None)
        workers.tell("state")
        workers.broadcast(tensors_of(self.model))
        name = type(self.ready(data)).__name__
        with workers.answering():
            workers.tell("check", lambda rank: name)
            workers.collect(None)

    def share_parameters(self) -> None:
        """Give every rank the parameters that the optimizer has changed."""
        if self.workers.size > 1 and self._engine is not None:
            self.workers.tell("parameters")
            self.workers.broadcast(self._engine.parameters)

    def measure(  # type: ignore[override]
        self, data: Any, positions: np.ndarray | RecordsOfUnits, step: int, key: int | None, *, first: int = 0
    ) -> "LogicalBatch | GroupBatch":
        """Return the gradients and scores of a batch, whose shards are computed by all ranks."""
        if self.shards == 1:
            return super().measure(data, positions, step, key, first=first)
        if key is None:
            key = 0 if self._comparing is not None else fresh_key()
        secret = Purpose.WORKERS_KEY.key(f"{key} {step}")  # coins and noise do not follow from it
        shards, begin = list[Shard](), 0
        for some in _shards(positions, self.shards):
            shards.append(Shard(positions=some, first=begin))
            most = self.max_physical_batch
            begin += len(some.parts(most) if isinstance(some, RecordsOfUnits) else parts_of(some, most))
        workers = self.workers
        assigned = [[shards[i] for i in workers.shards_of(rank, self.shards)] for rank in range(workers.size)]
        with workers.answering():
            workers.tell("measure", lambda rank: (secret, assigned[rank]))
            mine, answer = _attempt(lambda: RankBatch(self, data, secret, assigned[0]))
            answers = workers.collect(answer if mine is None else mine.measured())
        assert mine is not None
        return GroupBatch(self, mine, answers)

    def of_shard(self, data: Any, shard: Shard, secret: int) -> LogicalBatch:
        """Return the gradients and scores of one shard."""
        return super().measure(data, shard.positions, 0, secret, first=shard.first)


class RankBatch:
    """The shards of a batch that one rank computes.

    Args:
        gradients: Runs the model.
        data: All records, or at least those of the shards.
        secret: What random numbers of the model are derived from, for this step.
        shards: The shards.
    """

    def __init__(self, gradients: GroupGradients, data: Any, secret: int, shards: Sequence[Shard]) -> None:
        self._gradients, self._engine = gradients, gradients.ready(data)
        self._batches = [gradients.of_shard(data, shard, secret) for shard in shards]
        self._sizes = [shard.size for shard in shards]

    def measured(self) -> tuple[np.ndarray, np.ndarray]:
        """Return norms and scores of its records, in the order of the batch."""
        norms = [np.zeros(0), *(_on_cpu(batch.norms()) for batch in self._batches)]
        scores = [np.zeros(0), *(_on_cpu(batch.scores) for batch in self._batches)]
        return np.concatenate(norms), np.concatenate(scores)

    def wholes(self, weights: np.ndarray, exponent: int) -> list[Tensor]:
        """Return the weighted sum of its records as whole numbers of 2^-exponent, one tensor per parameter."""
        total = nothing(self._engine)
        limit = 2.0**WHOLE_BITS / self._gradients.shards
        begin = 0
        for batch, size in zip(self._batches, self._sizes, strict=True):
            sums = batch.weighted_sum(weights[begin : begin + size])
            begin += size
            for whole, some in zip(total, sums, strict=True):
                units = some.detach().double().mul_(2.0**exponent).round_()
                if not _within(units, limit):
                    units = units.nan_to_num_(0.0, limit, -limit).clamp_(-limit, limit)
                whole += units.to(torch.int64)
        return total


class GroupBatch:
    """The gradients of a batch as `Contributions`, and its scores: the leader's view of what all ranks compute.

    Args:
        gradients: Runs the model.
        mine: The shards of this rank.
        answers: Norms and scores of the shards of every rank.
    """

    def __init__(self, gradients: GroupGradients, mine: RankBatch, answers: Sequence[tuple[np.ndarray, np.ndarray]]):
        self._gradients, self._mine = gradients, mine
        self._norms = np.concatenate([norms for norms, _ in answers])
        self.scores = np.concatenate([scores for _, scores in answers])
        self._ends = np.cumsum([0, *(norms.size for norms, _ in answers)]).tolist()

    def norms(self) -> Array:
        """Return the norm of each record's gradient."""
        return self._norms

    def weighted_sum(self, weights: Array) -> list[Tensor]:
        """Return the weighted sum of the gradients, one tensor per trainable parameter, on the leader alone."""
        weights, ends, exponent = np.asarray(weights, dtype=np.float64), self._ends, self._gradients.exponent
        workers, engine = self._gradients.workers, self._gradients.engine
        assert engine is not None
        with workers.answering():
            workers.tell("sum", lambda rank: (weights[ends[rank] : ends[rank + 1]], exponent))
            found, error = _attempt(lambda: self._mine.wholes(weights[: ends[1]], exponent))
            total = reduced(workers, engine, found)
        if error is not None:
            raise error
        if int(total.pop()):
            raise RuntimeError("workers failed while they summed gradients, and their own errors say why")
        return [
            whole.double().mul_(2.0**-exponent).to(parameter.dtype)
            for whole, parameter in zip(total, engine.parameters, strict=True)
        ]


class LeaderFailed(RuntimeError):
    """The end of a rank that follows and has done nothing wrong: the error is that of another rank."""


class Follower:
    """A rank that does what the leader tells it: it holds no key, no ledger and no optimizer state that matters.

    Args:
        gradients: Runs the model of this rank.
        data: The records, as this rank has or loads them.
        turn_model: Tells the model which stage begins.
    """

    def __init__(self, gradients: GroupGradients, data: Any, turn_model: Callable[[int], None]) -> None:
        self._gradients, self._workers, self._data, self._turn = gradients, gradients.workers, data, turn_model
        self._batch: RankBatch | None = None
        self._error: BaseException | None = None

    def run(self) -> Any:
        """Follow until the leader ends; return what it said last.

        Raises:
            LeaderFailed: if the leader failed; what this rank raised before if that was why.
        """
        with closing(self._gradients.ahead):
            while True:
                name, content = self._workers.hear()
                if name == "failed":
                    raise self._error or LeaderFailed("rank 0, or a rank that it heard of, failed: see its error")
                if name == "end":
                    return content
                getattr(self, f"_{name}")(content)

    def _answer(self, work: Callable[[], Any]) -> None:
        """Collect what some work returns, or that it failed."""
        answer, self._error = _attempt(work)
        self._workers.collect(answer if self._error is None else self._error)

    def _begin(self, about: dict[str, Any]) -> None:
        def compare() -> None:
            self._gradients.cut_into(about["shards"])
            self._turn(about["stage"])
            if records_in(self._data) != about["records"]:
                raise ValueError(
                    f"data must hold the same {about['records']} records on every rank, and holds "
                    f"{records_in(self._data)} on rank {self._workers.rank}: ranks are told positions of records"
                )
            self._require_same_records(about["salt"], about["digest"])
            if described(self._gradients.model) != about["tensors"]:
                raise ValueError(f"model must be the same on every rank, and rank {self._workers.rank} has another one")

        self._answer(compare)

    def _require_same_records(self, salt: bytes, expected: str | None) -> None:
        """Raise if some of the records of this rank are not those of rank 0."""
        if expected is not None and digest_of_records(self._data, self._gradients.like(), salt) != expected:
            raise ValueError(
                f"data must hold the same records in the same order on every rank, and rank {self._workers.rank} holds "
                "others than rank 0: give every rank all of the data, not a part of it, and shuffle it on none"
            )

    def _state(self, _: None) -> None:
        self._workers.broadcast(tensors_of(self._gradients.model))

    def _check(self, engine: str) -> None:
        def check() -> None:
            self._gradients.model.train()
            ModelGradients.check(self._gradients, self._data)
            own = type(self._gradients.ready(self._data)).__name__
            if own != engine:
                raise ValueError(
                    f"ranks must have one engine, and this one has {own}: give engine={engine} on all of them"
                )

        self._answer(check)

    def _measure(self, work: tuple[int, list[Shard]]) -> None:
        secret, shards = work

        def measure() -> tuple[np.ndarray, np.ndarray]:
            self._batch = RankBatch(self._gradients, self._data, secret, shards)
            return self._batch.measured()

        self._answer(measure)

    def _sum(self, work: tuple[np.ndarray, int]) -> None:
        engine = self._gradients.engine
        assert engine is not None
        batch, self._batch = self._batch, None
        found, self._error = _attempt(lambda: None if batch is None else batch.wholes(*work))
        reduced(self._workers, engine, found)

    def _parameters(self, _: None) -> None:
        engine = self._gradients.engine
        assert engine is not None
        self._workers.broadcast(engine.parameters)


def _shards(positions: np.ndarray | RecordsOfUnits, shards: int) -> Sequence[np.ndarray | RecordsOfUnits]:
    """Cut a batch into shards of neighbouring records, or of whole units; ranks are not told how units are scored."""
    if isinstance(positions, np.ndarray):
        return cut(positions, shards)
    told = positions.unscored()
    ends = [0, *np.cumsum([some.size for some in cut(np.arange(told.counts.size), shards)]).tolist()]
    return [told.of_units(*ends_of) for ends_of in pairwise(ends)]


def reduced(workers: Workers, engine: Engine, wholes: list[Tensor] | None) -> list[Tensor]:
    """Add the whole numbers of all ranks, and last the number of ranks that have none because they failed."""
    failed = torch.tensor([wholes is None], dtype=torch.int64, device=engine.device)
    return workers.reduce([*(nothing(engine) if wholes is None else wholes), failed])


def nothing(engine: Engine) -> list[Tensor]:
    """Return the whole numbers of no records."""
    return [torch.zeros_like(parameter, dtype=torch.int64) for parameter in engine.parameters]


def tensors_of(model: nn.Module) -> list[Tensor]:
    """Return everything that ranks must have in common: parameters, frozen ones included, and buffers."""
    return [*model.parameters(), *model.buffers()]


def described(model: nn.Module) -> list[tuple[Any, ...]]:
    """Return names, shapes and types of what ranks must have in common, and what is trained."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return [(name, tuple(tensor.shape), str(tensor.dtype), tensor.requires_grad) for name, tensor in named]


def _attempt(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return what some work returns, or the error that it raised: other ranks wait for an answer in any case."""
    try:
        return work(), None
    except Exception as error:
        return None, error


def _within(values: Tensor, limit: float) -> bool:
    """Say whether all values are numbers of at most this size: in one pass, where replacing others takes two."""
    if not values.numel():
        return True
    least, largest = values.aminmax()
    return bool(-limit <= least) and bool(largest <= limit)


def _on_cpu(values: Any) -> np.ndarray:
    return np.asarray(values.cpu() if isinstance(values, Tensor) else values)
