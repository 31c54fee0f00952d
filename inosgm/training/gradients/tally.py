"""Counting the random numbers that a model draws, to notice a model that begins to draw other numbers in training.

The probability of stochastic depth, for example, may be 0 when the model is tested and grow with the steps.
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

MARK_WORDS = 4
"""Number of words, of 31 bits each, that identify a position in a stream of random words: 124 bits do not repeat."""

LONGEST_STREAM = 2**28
"""Longest stream that is searched for a position, in words (1 GiB): a pass that draws more is not counted."""

UNTIL_ACCEPTED = {
    torch.ops.aten.poisson,
    torch.ops.aten.binomial,
    torch.ops.aten._standard_gamma,
    torch.ops.aten._sample_dirichlet,
}
"""Operations with rejection sampling, which draw another amount every time."""

Amount = tuple[int, list[int]]
"""The number of words drawn from the CPU's generator, and how far the generator of another device has advanced."""


class Tally:
    """Counts the numbers that an engine draws for a batch, and compares with synthetic records of the same form.

    Args:
        model: The model, in the state in which its random numbers were classified.
        engine: The engine that runs it.
        inputs: Records with the form of batches.
        targets: What the loss compares with.
        records: The number of records in a batch.
    """

    def __init__(self, model: nn.Module, engine: Engine, inputs: Any, targets: Any, records: int) -> None:
        self._model, self._engine, self._generator = model, engine, torch.Generator()
        self._known: dict[tuple[torch.Size, ...], Amount | None] = {}
        self._expected(rows((inputs, targets), [0] * records))

    def gradients(self, inputs: Any, targets: Any, **groups: Any) -> tuple[Gradients, bool]:
        """Return the gradients of a batch, or its units, and whether more or less was drawn than for synthetic records.

        A model that draws another amount at every pass is not compared.
        """
        expected = self._expected((inputs, targets))
        before = random_state(self._engine.device)
        gradients = self._engine.gradients(inputs, targets, **groups)
        mark, moved = self._drawn_since(before)
        if expected is None:
            return gradients, False
        words, others = expected
        return gradients, moved != others or not torch.equal(self._words(before, words, MARK_WORDS), mark)

    def _expected(self, batch: Any) -> Amount | None:
        form = tuple(leaf.shape for leaf in tree_leaves(batch))
        if form not in self._known:
            try:
                self._known[form] = self._constant_amount(
                    synthetic(batch, size(batch), torch.Generator().manual_seed(0))
                )
            except Exception:  # a model that rejects synthetic records
                self._known[form] = self._constant_amount(rows(batch, [0] * size(batch)))
        return self._known[form]

    def _constant_amount(self, batch: Any) -> Amount | None:
        """Return the amount that a pass draws, or None if it varies from pass to pass."""
        amounts, watch = [], _VaryingDrawWatch()
        with sandbox(self._model), watch:
            for seed in range(2):
                torch.manual_seed(seed)
                before = random_state(self._engine.device)
                self._engine.gradients(*batch)
                mark, moved = self._drawn_since(before)
                amounts.append((self._words_until(before, mark), moved))
        (words, moved), other = amounts
        return None if watch.varies or words is None or other != (words, moved) else (words, moved)

    def _drawn_since(self, before: RandomState) -> tuple[Tensor, list[int]]:
        """Return the next words of the CPU's generator, and how far the generators of other devices have advanced."""
        mark = torch.empty(MARK_WORDS, dtype=torch.int32).random_()
        after = random_state(self._engine.device)
        numbers = (new.view(torch.int64) - old.view(torch.int64) for old, new in zip(before, after, strict=True))
        return mark, [moved for change in list(numbers)[1:] for moved in change.tolist()]

    def _words_until(self, before: RandomState, mark: Tensor) -> int | None:
        """Return the number of words between a state and a mark."""
        length = 2**12
        while length <= LONGEST_STREAM:
            matches = (self._words(before, 0, length).unfold(0, MARK_WORDS, 1) == mark).all(1).nonzero()
            if matches.numel():
                return int(matches[0, 0])
            length *= 4
        return None

    def _words(self, state: RandomState, skip: int, words: int) -> Tensor:
        """Return words of the CPU's stream from a state on, after skipping some."""
        self._generator.set_state(state[0])
        return torch.empty(skip + words, dtype=torch.int32).random_(generator=self._generator)[skip:]


class _VaryingDrawWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Detects operations that draw another amount every time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.varies = False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.varies |= op.overloadpacket in UNTIL_ACCEPTED
        return op(*args, **(kwargs or {}))
