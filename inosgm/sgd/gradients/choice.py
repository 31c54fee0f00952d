"""Which engine for which model: the fastest one that is seen to be right."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from inosgm._tree import tree_map
from inosgm.sgd.gradients.base import Engine, PerRecordLoss
from inosgm.sgd.gradients.batches import made_up, rows, size, telling_size
from inosgm.sgd.gradients.bookkeeping import BookKeeping
from inosgm.sgd.gradients.functional import Functional
from inosgm.sgd.gradients.mixing import mixes_records, refuse_mixing
from inosgm.sgd.gradients.one_by_one import OneByOne
from inosgm.sgd.gradients.trial import in_double, quieted, trial


def engine_for(
    model: nn.Module, loss: PerRecordLoss, inputs: Any, targets: Any, *, autocast: torch.dtype | None = None
) -> Engine:
    """Return the fastest engine that gives the gradients of one backward pass per record, tried on made-up records.

    Of inputs and targets only the form is looked at, so that the choice says nothing about the data. The model is
    tried in training mode, and left as it was.

    Args:
        model: Any module that treats records apart.
        loss: Takes outputs and targets, gives one loss per record, as `per_record` makes it.
        inputs: A batch, or all inputs: a tensor, or a tuple, list or dict of the model's arguments.
        targets: What the loss compares with.
        autocast: The precision of the forward pass.

    Returns:
        A BookKeeping, Functional or OneByOne engine.

    Raises:
        ValueError: for a model or a loss that mixes records. What they raise on made-up records is passed on.
    """
    refuse_mixing(model)
    try:
        how = mixes_records(model, loss, inputs, targets)
        if how is not None:
            raise ValueError(f"model and loss must treat records apart, but {how}")
        kind = _fastest(model, loss, (inputs, targets), autocast)
    except Exception as error:  # whatever model and loss raise
        error.add_note(
            "(tried on made-up records of the form of the data: floats uniform in (0, 1), whole numbers 0 or 1; a "
            "model that cannot take them needs an engine of your choice, and your word that it treats records apart)"
        )
        raise
    return kind(model, loss, autocast=autocast)


def _fastest(model: nn.Module, loss: PerRecordLoss, like: Any, autocast: torch.dtype | None) -> type[Engine]:
    with trial(model):
        batch = made_up(like, telling_size(like, model.parameters()), torch.Generator().manual_seed(0))
        with quieted(model, lambda: OneByOne(model, loss).run(*batch)) as quiet:
            expectations = _expectations(model, loss, batch)
            kinds: tuple[type[Engine], ...] = (BookKeeping, Functional)
            for kind in kinds:
                # other random numbers cannot be compared; a function mapped over records is right by construction
                right = _meets(expectations, kind, model, loss) if quiet else kind is Functional
                if right and _runs(kind(model, loss, autocast=autocast), batch):
                    return kind
    return OneByOne


def _runs(engine: Engine, batch: Any) -> bool:
    try:
        engine.gradients(*batch).norms()
    except Exception:  # what an engine cannot do, the next one may
        return False
    return True


def _expectations(model: nn.Module, loss: PerRecordLoss, batch: Any) -> list["_Expected"]:
    """Return what to expect of an engine: in float64, unless model or loss cannot do that, and in their own precision.

    In float32 another order of a sum is enough to switch a ReLU on or off, and then gradients differ visibly.
    """
    plain = _Expected.of(OneByOne(model, loss), batch, precise=False)
    try:
        with in_double(model):
            return [_Expected.of(OneByOne(model, loss), tree_map(_wide, batch), precise=True), plain]
    except Exception:  # a constant in float32 somewhere
        return [plain]


def _meets(expectations: list["_Expected"], kind: type[Engine], model: nn.Module, loss: PerRecordLoss) -> bool:
    """Say whether an engine meets the first expectation that it can be measured by."""
    for expected in expectations:
        try:
            return expected.found_by(kind, model, loss)
        except Exception:  # some layers have fast gradients in float32 only
            continue
    return False


@dataclass(frozen=True, kw_only=True, eq=False)
class _Expected:
    """What one backward pass per record says about a batch."""

    batch: Any
    precise: bool
    losses: Tensor
    norms: Tensor
    weights: Tensor
    total: list[Tensor]

    @classmethod
    def of(cls, engine: Engine, batch: Any, *, precise: bool) -> "_Expected":
        """Go through the records, holding one gradient at a time."""
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
            total = list(map(torch.add, total, gradients.weighted_sum(weights[alone])))
        return cls(
            batch=batch,
            precise=precise,
            losses=torch.cat(losses),
            norms=torch.cat(norms),
            weights=weights,
            total=total,
        )

    def found_by(self, kind: type[Engine], model: nn.Module, loss: PerRecordLoss) -> bool:
        """Say whether an engine finds the same losses, norms and sums, the latter also without asking for norms."""
        with in_double(model) if self.precise else nullcontext():
            engine = kind(model, loss)
            inputs, targets = self.batch
            gradients = engine.gradients(inputs, targets)
            sums = zip(
                gradients.weighted_sum(self.weights), engine.weighted_sum(inputs, targets, self.weights), strict=True
            )
            typical = max(float(part.abs().max()) for part in self.total if part.numel())
            return (
                bool(self.weights.any())
                and self._close(gradients.losses, self.losses)
                and self._close(gradients.norms(), self.norms)
                and all(self._close(part, b, typical) for a, b in zip(sums, self.total, strict=True) for part in a)
            )

    def _close(self, found: Tensor, expected: Tensor, typical: float = 0.0) -> bool:
        """Compare numbers with the largest of them, and with those of a sum whose parts are typically so large."""
        largest = float(expected.abs().nan_to_num(0, 0).max()) if expected.numel() else 0.0
        tolerance = (1e-6 if self.precise else 1e-2) * max(largest, 0.01 * typical)
        return torch.allclose(found.to(expected.dtype), expected, rtol=0, atol=tolerance, equal_nan=True)


def _wide(column: Tensor) -> Tensor:
    return column.double() if column.is_floating_point() else column
