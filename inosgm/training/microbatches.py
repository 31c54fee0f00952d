"""A logical batch, measured in physical batches: norms and scores of all of it first, weighted sums after."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inosgm._internal.validate import Array
from inosgm.training.gradients.base import Engine, Gradients
from inosgm.training.gradients.groups import Groups
from inosgm.training.gradients.precision import product_unit
from inosgm.training.gradients.randomness import random_state, same_state, set_random_state
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.gradients.tally import Tally
from inosgm.training.scores import Score, scored


@dataclass(frozen=True)
class Microbatch:
    """One physical batch.

    Attributes:
        fetch: Returns its inputs and targets.
        seed: The seed of random numbers of its own: those of the data set, and of the model.
        shared: If given, the seed of the model, which all parts of a logical batch have in common. The data set keeps
            the seed of the part: with one seed, the first records of all parts would share an augmentation.
        groups: The units of the part, if gradients are those of units.
    """

    fetch: Callable[[], tuple[Any, Any]]
    seed: int
    shared: int | None = None
    groups: Groups | None = None


HEADROOM = 128
"""The error of a norm in roundings, at most: norms are lengthened by it before clipping."""


def stretch(parameter: Tensor) -> float:
    """Return the factor by which norms are lengthened before clipping, for gradients of a parameter's type.

    Where torch may round factors of products to a coarser type, each of the two factors in the weighted sum of a
    record is longer by one such rounding at most: four of them also cover what `HEADROOM` is for.
    """
    return 1 + max(HEADROOM * torch.finfo(parameter.dtype).eps, 4 * product_unit(parameter))


class LogicalBatch:
    """The gradients of a logical batch of records or units as `Contributions`, and the scores of its records.

    A batch of one part keeps its book-keeping for the weighted sum. Of several parts only norms and scores are kept,
    and each part is fetched and run a second time for the sum: memory is that of one part, whatever their number.
    With `silent`, for a model that was seen to draw nothing, `drew` says whether it has drawn from torch's generators;
    with a `tally`, whether it has drawn another amount in the first part than when it was tried.

    **Guarantee.** Norms are never below those of the gradients that are summed, in the arithmetic of the engine: they
    are stretched by 128 roundings of the coarsest parameter's precision (1.5e-5 for float32), or by 4 of the type that
    torch was told to round products to (2e-3 for TF32, 1.6e-2 for bfloat16). A gradient that comes out longer when a
    part is run again (a `Dataset` that augments in its own way, say) is cut to the norm of the first time.

    A model, loss or score that changes what it holds meanwhile raises ValueError, and is put back as it was. Writes
    that torch counts are seen after every part, others after all of them.

    Args:
        engine: Gives the gradients.
        parts: The physical batches.
        score: What the order goes by.
        snapshot: Of model, loss and score.
        silent: Whether the model was seen to draw nothing.
        tally: Counts what the first part draws.
    """

    def __init__(
        self,
        engine: Engine,
        parts: Sequence[Microbatch],
        score: Score | None,
        snapshot: Snapshot,
        *,
        silent: bool = False,
        tally: Tally | None = None,
    ) -> None:
        self._engine, self._parts, self._score, self._silent, self._tally = engine, parts, score, silent, tally
        self._snapshot = snapshot
        self._device = engine.parameters[0].device
        self._whole: Gradients | None = None
        self.drew = False
        with snapshot:
            measured = [self._measure(part) for part in parts]
        self._sizes = [int(some.shape[0]) for some, _ in measured]
        if not measured:  # an empty batch has no parts, and no model runs
            measured = [(torch.zeros(0, dtype=torch.float64, device=self._device),) * 2]
        norms, scores = measured[0] if len(measured) == 1 else map(torch.cat, zip(*measured, strict=True))
        self._stretch = max(map(stretch, engine.kinds))
        # a weight that is no normal number is rounded to a multiple of the least one there is: it may be twice as large
        self._least = max(torch.finfo(kind.dtype).tiny for kind in engine.kinds)
        self._norms = norms * self._stretch
        self.scores = _plain(scores)

    def norms(self) -> Array:
        """Return the norm of each record's, or unit's, gradient."""
        return _plain(self._norms)

    def weighted_sum(self, weights: Array) -> list[Tensor]:
        """Return the weighted sum of the gradients, one tensor per trainable parameter."""
        shares = torch.threshold(torch.as_tensor(weights, device=self._device), self._least, 0.0)
        if self._whole is not None and not self._whole.reruns:
            return self._whole.weighted_sum(shares)
        with ExitStack() as stack:
            if not self._snapshot.unwritten():  # somebody has trained the model since
                self._snapshot.take()
            stack.push(self._snapshot)
            return self._sum_of_parts(shares) if self._whole is None else self._whole.weighted_sum(shares)

    def rows(self) -> Iterator[Tensor]:
        """Yield the gradients of all records in their order, some at a time, as rows over all parameters in float64."""
        with self._snapshot:
            for part in self._parts:
                gradients = self._run(part, self._engine.gradients)[0] if self._whole is None else self._whole
                yield from gradients.rows()
                self._snapshot.require_unwritten()

    @property
    def parameters(self) -> Sequence[Tensor]:
        """The trainable parameters, of whose shapes sums are made."""
        return self._engine.parameters

    def _sum_of_parts(self, shares: Tensor) -> list[Tensor]:
        """Return the weighted sum from a second pass."""
        total = [torch.zeros_like(parameter) for parameter in self._engine.parameters]
        norms = torch.split(self._norms, self._sizes)
        for part, share, claimed in zip(self._parts, torch.split(shares, self._sizes), norms, strict=True):
            gradients, _ = self._run(part, self._plain)
            # weights are for gradients of the norms that were claimed: what has become longer since is cut to them
            now = gradients.norms() * self._stretch
            share = torch.where(claimed.isfinite(), share * (claimed / now).clamp(max=1), 0)
            share = torch.threshold(share.nan_to_num(0.0), self._least, 0.0)
            for whole, some in zip(total, gradients.weighted_sum(share), strict=True):
                whole += some
            self._snapshot.require_unwritten()
        return total

    def _run(self, part: Microbatch, gradients: Callable[..., Gradients]) -> tuple[Gradients, Any]:
        """Return the gradients of one part, with the same random numbers every time, and its targets."""
        units = {} if part.groups is None else {"groups": part.groups}
        with seeded(part.seed, self._device):
            inputs, targets = part.fetch()
            if part.shared is None:
                return gradients(inputs, targets, **units), targets
        with seeded(part.shared, self._device):
            return gradients(inputs, targets, **units), targets

    def _measure(self, part: Microbatch) -> tuple[Tensor, Tensor]:
        """Return norms and scores of one part, and keep its book-keeping if it is the only one."""
        counted = self._tally is not None and part is self._parts[0]
        gradients, targets = self._run(
            part, self._counted if counted else self._watched if self._silent else self._plain
        )
        if len(self._parts) == 1:
            self._whole = gradients
        scores = gradients.losses
        if self._score is not None:
            scores = scored(self._score, gradients.outputs, targets, gradients.losses)
        measured = gradients.norms(), scores.to(torch.float64)
        self._snapshot.require_unwritten()
        return measured

    def _plain(self, inputs: Any, targets: Any, **units: Any) -> Gradients:
        """Return the gradients of some records or units."""
        return self._engine.gradients(inputs, targets, **units)

    def _watched(self, inputs: Any, targets: Any, **units: Any) -> Gradients:
        """Return the gradients of some records or units, and note whether the model has drawn."""
        before = random_state(self._device)
        gradients = self._engine.gradients(inputs, targets, **units)
        self.drew |= not same_state(before, random_state(self._device))
        return gradients

    def _counted(self, inputs: Any, targets: Any, **units: Any) -> Gradients:
        """Return the gradients of some records or units, and note whether the model has drawn as it was seen to."""
        assert self._tally is not None
        gradients, self.drew = self._tally.gradients(inputs, targets, **units)
        return gradients


def _plain(values: Tensor) -> Array:
    """Return what sorts fastest where the values are: numpy on a CPU."""
    return values.numpy() if values.device.type == "cpu" else values


def parts_of(positions: np.ndarray, most: int | None) -> list[np.ndarray]:
    """Cut a batch into stretches of at most so many records, of which an empty batch has none."""
    size = most or max(positions.size, 1)
    return [positions[start : start + size] for start in range(0, positions.size, size)]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let torch's global generators start from a seed, and put them back as they were: they are the user's own."""
    before = random_state(device)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        set_random_state(before, device)
