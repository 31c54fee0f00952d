"""A logical batch, measured in physical batches: norms and scores of all of it first, weighted sums after."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inosgm._validate import Array
from inosgm.sgd.gradients.base import Engine, Gradients
from inosgm.sgd.randomness import seeded
from inosgm.sgd.scores import Score, scored


@dataclass(frozen=True)
class Part:
    """One physical batch: how its inputs and targets are fetched, and the seed of what is random in the model."""

    fetch: Callable[[], tuple[Any, Any]]
    seed: int


HEADROOM = 128
"""How many roundings a norm may be off by: norms are taken that much longer before clipping."""


class LogicalBatch:
    """The gradients of a logical batch as `Contributions`, and its scores.

    A batch of one part keeps its book-keeping for the weighted sum. Of several parts only norms and scores are kept,
    and each part is fetched and run a second time for the sum: memory is that of one part, whatever their number.

    **Guarantee.** Norms are never below those of the gradients that are summed, in the arithmetic of the engine: they
    are stretched by 128 roundings of the coarsest parameter's precision (1.5e-5 for float32). A gradient that comes
    out longer when a part is run again (a `Dataset` that augments in its own way, say) is cut to the norm of the first
    time.
    """

    def __init__(self, engine: Engine, parts: Sequence[Part], score: Score | None) -> None:
        self._engine, self._parts, self._score = engine, parts, score
        self._device = engine.parameters[0].device
        self._whole: Gradients | None = None
        # an empty batch has no parts, and no model runs
        none = torch.zeros(0, dtype=torch.float64, device=self._device)
        norms, scores = zip((none, none), *(self._measured(part) for part in parts), strict=True)
        self._sizes = [int(some.shape[0]) for some in norms[1:]]
        self._stretch = 1 + HEADROOM * max(torch.finfo(parameter.dtype).eps for parameter in engine.parameters)
        self._norms = torch.cat(norms) * self._stretch
        self.scores = _plain(torch.cat([some.to(torch.float64) for some in scores]))

    def norms(self) -> Array:
        """Return the norm of each record's gradient."""
        return _plain(self._norms)

    def weighted_sum(self, weights: Array) -> list[Tensor]:
        """Return the weighted sum of the gradients, one tensor per trainable parameter."""
        shares = torch.as_tensor(weights, device=self._device)
        if self._whole is not None:
            return self._whole.weighted_sum(shares)
        total = [torch.zeros_like(parameter) for parameter in self._engine.parameters]
        norms = torch.split(self._norms, self._sizes)
        for part, share, claimed in zip(self._parts, torch.split(shares, self._sizes), norms, strict=True):
            gradients, _ = self._run(part)
            # weights are for gradients of the norms that were claimed: what has become longer since is cut to them
            now = gradients.norms() * self._stretch
            share = torch.where(claimed.isfinite(), share * (claimed / now).clamp(max=1), 0)
            for whole, some in zip(total, gradients.weighted_sum(share.nan_to_num(0.0)), strict=True):
                whole += some
        return total

    def _run(self, part: Part) -> tuple[Gradients, Any]:
        """Return the gradients of one part, with the same random numbers every time, and its targets."""
        with seeded(part.seed, self._device):
            inputs, targets = part.fetch()
            return self._engine.gradients(inputs, targets), targets

    def _measured(self, part: Part) -> tuple[Tensor, Tensor]:
        """Return norms and scores of one part, and keep its book-keeping if it is the only one."""
        gradients, targets = self._run(part)
        if len(self._parts) == 1:
            self._whole = gradients
        return gradients.norms(), scored(self._score, gradients.outputs, targets, gradients.losses)


def _plain(values: Tensor) -> Array:
    """Return what sorts fastest where the values are: numpy on a CPU."""
    return values.numpy() if values.device.type == "cpu" else values


def parts_of(positions: np.ndarray, most: int | None) -> list[np.ndarray]:
    """Cut a batch into stretches of at most so many records, of which an empty batch has none."""
    size = most or max(positions.size, 1)
    return [positions[start : start + size] for start in range(0, positions.size, size)]
