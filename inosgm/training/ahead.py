"""Micro-batches that are loaded ahead by worker processes, with the bits that loading one after another gives."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import is_
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from inosgm._internal import validate as _validate
from inosgm.training.batches import PickedApart, is_in_columns, loaded
from inosgm.training.collating import CollatedRecords

Part = tuple[int, np.ndarray]
"""The seed of a micro-batch, and the positions of its records."""


class AheadLoader:
    """Loads the micro-batches of a logical batch in worker processes, while the model runs on earlier ones.

    **Guarantee.** A micro-batch is loaded whole by one process, which starts torch's generator from the micro-batch's
    own seed. The generator then goes on in this process where loading has left it. Records, and the random numbers of
    a model after them, are therefore the same whatever the number of workers.

    Workers are started with the first batch of a data set, and stay until `close`.

    Args:
        num_workers: How many processes; 0 loads in this one.
    """

    def __init__(self, num_workers: int) -> None:
        self._workers = _validate.count("num_workers", num_workers)
        self._source: tuple[Any, Any] = (None, None)
        self._queue: list[Part] = []
        self._loader: DataLoader[Any] | None = None
        self._iterator: Iterator[Any] | None = None
        self._next = 0

    def fetches(self, data: Any, parts: Sequence[Part], pick: PickedApart) -> list[Callable[[], Any]]:
        """Return a function for each micro-batch that gives its records, to be called in order, any number of times."""
        if not self._workers or len(parts) < 2 or is_in_columns(data):
            return [partial(loaded, data, positions, pick) for _, positions in parts]
        self._next = -1  # the next batch begins a pass of its own
        return [partial(self._fetch, data, parts, number) for number in range(len(parts))]

    def close(self) -> None:
        """End the workers; the next batch starts others."""
        end = getattr(self._iterator, "_shutdown_workers", None)  # torch's only way, but for the garbage collector
        if end is not None:
            end()
        self._iterator = self._loader = None

    def _fetch(self, data: Any, parts: Sequence[Part], number: int) -> Any:
        if self._iterator is None or number != self._next:
            self._queue[:] = parts[number:]
            self._iterator = iter(self._loader_of(data))
        try:
            batch, state = next(self._iterator)
        except BaseException:
            self.close()
            raise
        self._next = number + 1
        torch.set_rng_state(state)
        return batch

    def _loader_of(self, data: Any) -> "DataLoader[Any]":
        source = (data.records, data.collate) if isinstance(data, CollatedRecords) else (data, None)
        if self._loader is None or not all(map(is_, source, self._source)):
            self.close()
            self._source = source
            self._loader = DataLoader(
                _Parts(data),
                batch_size=None,
                sampler=_Queue(self._queue),
                num_workers=self._workers,
                collate_fn=_as_it_is,
                persistent_workers=True,
                generator=_unpredictable(),
            )
        return self._loader


class _Parts(Dataset[Any]):
    """The micro-batches of a data set, by seed and positions; what a worker runs."""

    def __init__(self, data: Any) -> None:
        self._data, self._pick = data, PickedApart()

    def __getitem__(self, part: Part) -> tuple[Any, torch.Tensor]:
        seed, positions = part
        torch.default_generator.manual_seed(seed)
        return loaded(self._data, positions, self._pick), torch.get_rng_state()


class _Queue(Sampler[Part]):
    """The micro-batches to be loaded, as they are when a pass over them begins."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Part]:
        return iter(list(self._parts))


def _as_it_is(batch: Any) -> Any:
    return batch


def _unpredictable() -> torch.Generator:
    """Return a generator for what workers draw besides torch: the user's own generator is left alone."""
    generator = torch.Generator()
    generator.seed()
    return generator
