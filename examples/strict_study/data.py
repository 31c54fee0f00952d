"""The records of a task, as the model sees them: computed once and kept."""

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from examples.strict_study.tasks import Task
from inosgm.datasets import load
from inosgm.training import features


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """Training records and held-out ones.

    Attributes:
        x: The inputs of the training records, one row each.
        y: Their classes.
        x_test: The inputs of the held-out records.
        y_test: Their classes.
        choosing: Which held-out records choose; the others are reported. Halves of every class.
    """

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    choosing: np.ndarray

    @cached_property
    def squares(self) -> Tensor:
        """The squared length of each training record."""
        return torch.stack([row.double().square().sum() for row in self.x])

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.y.max()) + 1

    def counts(self, right: np.ndarray) -> list[list[int]]:
        """Return how many held-out records of each class are marked, in the half that chooses and in the other."""
        return [
            np.bincount(self.y_test.numpy()[right & half], minlength=self.classes).tolist()
            for half in (self.choosing, ~self.choosing)
        ]


def read(task: Task, root: str | None, kept: Path) -> Records:
    """Read the records of a task, or compute features and keep them.

    Args:
        task: The task.
        root: The data directory.
        kept: A directory for features, which are as private as the records: for public data only.
    """
    return _read(task.source, task.dataset, task.features, task.records, root, kept)


@cache
def _read(source: str, dataset: str, scattered: bool, count: int | None, root: str | None, kept: Path) -> Records:
    path = kept / f"{source}.npz"
    if not path.exists():
        data = load(dataset, root)
        some = np.arange(len(data.y))
        if count is not None and count < some.size:
            some = np.sort(np.random.default_rng(0).permutation(some.size)[:count])
        x, x_test = data.x[some], data.x_test
        if scattered:
            module = features.make("scattering", input_shape=data.input_shape)
            x, x_test = features.transform(module, x), features.transform(module, x_test)
        kept.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez(part, x=x, y=data.y[some], x_test=x_test, y_test=data.y_test)
        part.replace(path)
    with np.load(path, allow_pickle=False) as found:
        x, x_test = (torch.from_numpy(found[name]).flatten(1).float() for name in ("x", "x_test"))
        y, y_test = (torch.from_numpy(found[name].astype(np.int64)) for name in ("y", "y_test"))
    return Records(x=x, y=y, x_test=x_test, y_test=y_test, choosing=halves(y_test.numpy()))


def halves(classes: np.ndarray) -> np.ndarray:
    """Return a mask of half of the records of every class: the first, third, ... of each.

    >>> halves(np.array([0, 0, 1, 0, 1])).tolist()
    [True, False, True, True, False]
    """
    mask = np.zeros(len(classes), dtype=bool)
    for label in np.unique(classes):
        mask[np.flatnonzero(classes == label)[::2]] = True
    return mask
