"""How many random numbers a model draws: this tells a model that begins to draw others than those it was tried with.

A probability of stochastic depth, for example, may grow with the steps of training and be 0 when the model is tried.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from inosgm._internal.trees import tree_leaves
from inosgm.training.gradients.base import Engine, Gradients
from inosgm.training.gradients.batches import rows, size, synthetic
from inosgm.training.gradients.randomness import RandomState, random_state
from inosgm.training.gradients.sandbox import sandbox

MARK = 4
"""How many words, of 31 bits each, tell one place of a stream of random words from all others."""

MOST = 2**28
"""The longest stream that is searched for a place, in words: a pass that draws more is not counted."""

UNTIL_ACCEPTED = {
    torch.ops.aten.poisson,
    torch.ops.aten.binomial,
    torch.ops.aten._standard_gamma,
    torch.ops.aten._sample_dirichlet,
}
"""Operations that draw until a number is accepted, another amount every time."""

Amount = tuple[int, list[int]]
"""How many words were taken from the CPU's generator, and how far the generator of another device has moved."""


class Tally:
    """Counts what an engine draws for a batch, and compares it with a batch of synthetic records of the same form.

    Args:
        model: The model, in the state in which its random numbers were classified.
        engine: The engine that runs it.
        inputs: Records of the form that batches have.
        targets: What the loss compares with.
        records: How many records there are in a batch.
    """

    def __init__(self, model: nn.Module, engine: Engine, inputs: Any, targets: Any, records: int) -> None:
        self._model, self._engine, self._generator = model, engine, torch.Generator()
        self._known: dict[tuple[torch.Size, ...], Amount | None] = {}
        self._expected(rows((inputs, targets), [0] * records))

    def gradients(self, inputs: Any, targets: Any) -> tuple[Gradients, bool]:
        """Return the gradients of a batch, and whether another amount was drawn than for synthetic records.

        A model that draws another amount at every pass is not compared.
        """
        expected = self._expected((inputs, targets))
        before = random_state(self._engine.device)
        gradients = self._engine.gradients(inputs, targets)
        mark, moved = self._left(before)
        if expected is None:
            return gradients, False
        words, others = expected
        return gradients, moved != others or not torch.equal(self._words(before, words, MARK), mark)

    def _expected(self, batch: Any) -> Amount | None:
        form = tuple(leaf.shape for leaf in tree_leaves(batch))
        if form not in self._known:
            try:
                self._known[form] = self._tried(synthetic(batch, size(batch), torch.Generator().manual_seed(0)))
            except Exception:  # a model that does not take synthetic records
                self._known[form] = self._tried(rows(batch, [0] * size(batch)))
        return self._known[form]

    def _tried(self, batch: Any) -> Amount | None:
        """Return what a pass draws, if it is the same at every pass."""
        found, watch = [], _VaryingDrawWatch()
        with sandbox(self._model), watch:
            for seed in range(2):
                torch.manual_seed(seed)
                before = random_state(self._engine.device)
                self._engine.gradients(*batch)
                mark, moved = self._left(before)
                found.append((self._place(before, mark), moved))
        (words, moved), other = found
        return None if watch.varies or words is None or other != (words, moved) else (words, moved)

    def _left(self, before: RandomState) -> tuple[Tensor, list[int]]:
        """Return the next words of the CPU's generator, and how far those of other devices have moved."""
        mark = torch.empty(MARK, dtype=torch.int32).random_()
        after = random_state(self._engine.device)
        numbers = (new.view(torch.int64) - old.view(torch.int64) for old, new in zip(before, after, strict=True))
        return mark, [moved for change in list(numbers)[1:] for moved in change.tolist()]

    def _place(self, before: RandomState, mark: Tensor) -> int | None:
        """Return after how many words from a state on a mark follows."""
        length = 2**12
        while length <= MOST:
            found = (self._words(before, 0, length).unfold(0, MARK, 1) == mark).all(1).nonzero()
            if found.numel():
                return int(found[0, 0])
            length *= 4
        return None

    def _words(self, state: RandomState, skip: int, words: int) -> Tensor:
        """Return words of the CPU's stream that begins with a state."""
        self._generator.set_state(state[0])
        return torch.empty(skip + words, dtype=torch.int32).random_(generator=self._generator)[skip:]


class _VaryingDrawWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices operations that draw another amount every time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.varies = False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.varies |= op.overloadpacket in UNTIL_ACCEPTED
        return op(*args, **(kwargs or {}))
