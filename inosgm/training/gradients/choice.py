"""The choice of an engine for a model: the fastest one that passes a comparison with one backward pass per record."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, PerRecordLoss
from inosgm.training.gradients.batches import rows, size, synthetic, unambiguous_size
from inosgm.training.gradients.bookkeeping import BookKeeping
from inosgm.training.gradients.chance import IN_PARTS, WHOLE, chance_of
from inosgm.training.gradients.functional import Functional
from inosgm.training.gradients.mixing import mixes_records, refuse_mixing
from inosgm.training.gradients.one_by_one import OneByOne
from inosgm.training.gradients.record_order import moves_records
from inosgm.training.gradients.sandbox import in_double, perturbed, sandbox, varied_batches, without_randomness
from inosgm.training.gradients.writing import refuse_writing


def engine_for(
    model: nn.Module,
    loss: PerRecordLoss,
    inputs: Any,
    targets: Any,
    *,
    autocast: torch.dtype | None = None,
    in_parts: bool = False,
) -> Engine:
    """Return the fastest engine that gives the gradients of one backward pass per record, tried on synthetic records.

    Only the form of inputs and targets is used, so that the choice does not depend on the data. The model is
    tested in both modes, and restored afterwards.

    Args:
        model: Any module that processes each record independently.
        loss: Takes outputs and targets, gives one loss per record, as `per_record` makes it.
        inputs: A batch, or all inputs: a tensor, or a tuple, list or dict of the model's arguments.
        targets: What the loss compares with.
        autocast: The precision of the forward pass.
        in_parts: Whether a batch is run in parts. Then an engine must draw the random numbers of the model for every
            record, or all of them once per forward pass; otherwise some may be of the first kind and others of the
            second: see `chance`.

    Returns:
        A BookKeeping, Functional or OneByOne engine.

    Raises:
        ValueError: for a model or a loss that mixes records, or writes to its state in either mode. Exceptions of
            model and loss on synthetic records are passed on.
    """
    return chosen_engine(model, loss, inputs, targets, autocast=autocast, in_parts=in_parts)[0]


def chosen_engine(
    model: nn.Module,
    loss: PerRecordLoss,
    inputs: Any,
    targets: Any,
    *,
    autocast: torch.dtype | None = None,
    in_parts: bool = False,
) -> tuple[Engine, dict[str, str]]:
    """Return the engine of `engine_for`, and why each faster one was not chosen, by its name."""
    refuse_mixing(model)
    try:
        how = mixes_records(model, loss, inputs, targets)
        if how is not None:
            raise ValueError(f"model and loss must process each record independently, but {how}")
        refuse_writing(OneByOne, model, loss, inputs, targets, autocast=autocast)
        kind, refused = _fastest(model, loss, (inputs, targets), autocast, in_parts)
    except Exception as error:  # whatever model and loss raise
        error.add_note(
            "(tried on synthetic records of the form of the data: floats uniform in (0, 1), whole numbers 0 or 1; a "
            "model that cannot take them needs an engine of your choice, and your word that it processes "
            "each record independently)"
        )
        raise
    return kind(model, loss, autocast=autocast), refused


def _fastest(
    model: nn.Module, loss: PerRecordLoss, like: Any, autocast: torch.dtype | None, in_parts: bool
) -> tuple[type[Engine], dict[str, str]]:
    """Return the kind of engine, and why faster ones do not serve.

    The choice must be the same whenever a run resumes, so nothing is timed.
    """
    kinds: list[type[Engine]] = [BookKeeping, Functional]
    refused: dict[str, str] = {}
    while True:
        kind = _first_correct(kinds, model, loss, like, autocast, refused)
        why = _unfit(kind, model, loss, like, autocast, in_parts)
        if why is None:
            return kind, refused
        refused[kind.__name__] = why
        kinds = kinds[kinds.index(kind) + 1 :]  # those before were refused


def _first_correct(
    kinds: Sequence[type[Engine]],
    model: nn.Module,
    loss: PerRecordLoss,
    like: Any,
    autocast: torch.dtype | None,
    refused: dict[str, str],
) -> type[Engine]:
    """Return the first kind of engine whose gradients are correct; OneByOne is correct by definition."""
    plain = OneByOne(model, loss)
    with sandbox(model, loss=loss):
        batch = synthetic(like, unambiguous_size(like, model.parameters()), torch.Generator().manual_seed(0))
        moving = BookKeeping in kinds and moves_records(plain, *like)
        with without_randomness(model, lambda: plain.run(*batch)) as quiet:
            with perturbed(model):
                more = varied_batches(model, plain.run, like, 3, 1)  # one record of each kind
            cases = [_Case(model, loss, batch, nullcontext)]
            cases += [_Case(model, loss, batch, partial(perturbed, model)) for batch in more]
            for kind in kinds:
                why = None
                if moving and kind is BookKeeping:
                    why = "it may order records by their values"
                elif not quiet and kind is not Functional:  # which is correct by construction
                    why = "its random numbers cannot be switched off to compare gradients"
                elif quiet:
                    why = next(filter(None, (case.differs_for(kind) for case in cases)), None)
                why = why or _fails(kind(model, loss, autocast=autocast), batch)
                if why is None:
                    return kind
                refused[kind.__name__] = why
            plain.gradients(*batch)  # raises if no engine can run the model
    return OneByOne


def _unfit(
    kind: type[Engine], model: nn.Module, loss: PerRecordLoss, like: Any, autocast: torch.dtype | None, in_parts: bool
) -> str | None:
    """Return why an engine must not be used although its gradients are correct, or None.

    The random numbers of a record must not depend on the other records of the batch.
    """
    if kind is OneByOne:
        return None
    try:
        chance = chance_of(kind, model, loss, *like, autocast=autocast)
    except Exception:  # whose text may show a record; a mask in place under torch.func, say
        return "its random numbers cannot be drawn by this engine"
    return None if chance in (IN_PARTS if in_parts else WHOLE) else f"it draws {chance.value}"


def _fails(engine: Engine, batch: Any) -> str | None:
    """Return why an engine cannot run a batch, or should not: torch.func may run layers in a loop over the records."""
    try:
        engine.gradients(*batch).norms()
    except Exception as error:  # the next engine may be able to; the batch is synthetic
        return _first_line(error)
    looped = isinstance(engine, Functional) and engine.looped
    return (
        "torch.func runs one of its functions in a loop, which takes longer than one pass per record"
        if looped
        else None
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


@dataclass(frozen=True, eq=False)
class _Case:
    """A batch and parameters with which engines are compared.

    In float64, unless model, loss or engine cannot do that: in float32 another order of a sum is enough to switch a
    ReLU on or off, and then gradients differ visibly.
    """

    model: nn.Module
    loss: PerRecordLoss
    batch: Any
    parameters: Callable[[], AbstractContextManager[None]]
    _expected: dict[bool, "_Expected"] = field(default_factory=dict)

    def differs_for(self, kind: type[Engine]) -> str | None:
        """Return why an engine does not give the results of one backward pass per record, or None."""
        why = "it cannot run"
        for precise in (True, False):
            try:
                with self.parameters(), in_double(self.model) if precise else nullcontext():
                    if precise not in self._expected:
                        batch = tree_map(_wide, self.batch) if precise else self.batch
                        self._expected[precise] = _Expected.of(OneByOne(self.model, self.loss), batch, precise=precise)
                    if self._expected[precise].matched_by(kind(self.model, self.loss)):
                        return None
                    return "its gradients differ from those of one backward pass per record"
            except Exception as error:  # a constant in float32 somewhere; some layers have fast gradients in float32
                why = _first_line(error)
        return why


@dataclass(frozen=True, kw_only=True, eq=False)
class _Expected:
    """The results of one backward pass per record for a batch."""

    batch: Any
    precise: bool
    losses: Tensor
    norms: Tensor
    weights: Tensor
    total: list[Tensor]

    @classmethod
    def of(cls, engine: Engine, batch: Any, *, precise: bool) -> "_Expected":
        """Run the records one by one, so that only one gradient is held at a time."""
        records = size(batch)
        weights = torch.linspace(0, 1, records, dtype=torch.float64, device=engine.device)
        total = [torch.zeros_like(parameter) for parameter in engine.parameters]
        losses, norms = [], []
        for record in range(records):
            alone = slice(record, record + 1)
            gradients = engine.gradients(*rows(batch, alone))
            losses.append(gradients.losses)
            norms.append(gradients.norms())
            if not norms[-1].isfinite():
                weights[alone] = 0
            for whole, part in zip(total, gradients.weighted_sum(weights[alone]), strict=True):
                whole += part
        return cls(
            batch=batch,
            precise=precise,
            losses=torch.cat(losses),
            norms=torch.cat(norms),
            weights=weights,
            total=total,
        )

    def matched_by(self, engine: Engine) -> bool:
        """Return whether an engine gives the same losses, norms and sums."""
        inputs, targets = self.batch
        gradients = engine.gradients(inputs, targets)
        sums = gradients.weighted_sum(self.weights)
        typical = max(map(_largest, self.total))
        return (
            bool(self.norms.isfinite().any())
            and self._alike(gradients.losses, self.losses)
            and self._alike(gradients.norms(), self.norms)
            and all(self._close(a, b, typical) for a, b in zip(sums, self.total, strict=True))
        )

    def _alike(self, actual: Tensor, expected: Tensor) -> bool:
        """Compare one number per record, where it is finite, which it must be in the same places."""
        finite = expected.isfinite()
        return torch.equal(finite, actual.isfinite()) and self._close(actual[finite], expected[finite])

    def _close(self, actual: Tensor, expected: Tensor, typical: float = 0.0) -> bool:
        """Compare numbers, relative to the largest of them and to the typical size of the gradients."""
        # 1e-6 is far above the rounding of float64; in float32, rounding may switch a ReLU on or off
        tolerance = (1e-6 if self.precise else 1e-2) * max(_largest(expected), 0.01 * typical)
        return _largest(actual.to(expected.dtype) - expected) <= tolerance


def _largest(numbers: Tensor) -> float:
    return float(torch.linalg.vector_norm(numbers, torch.inf)) if numbers.numel() else 0.0


def _wide(column: Tensor) -> Tensor:
    return column.double() if column.is_floating_point() else column
