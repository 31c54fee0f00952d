"""The state of global generators, by which one can tell whether anything was drawn."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

RandomState = tuple[Tensor, ...]
"""The state of the generators that a model on one device may draw from."""


def random_state(device: torch.device) -> RandomState:
    """Return the state of the CPU's generator and of the device's own."""
    state = (torch.get_rng_state(),)
    return (*state, torch.cuda.get_rng_state(device)) if device.type == "cuda" else state


def same_state(one: RandomState, other: RandomState) -> bool:
    """Say whether nothing was drawn between two states."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def foreign_state() -> tuple[Any, ...]:
    """Return the state of the global generators of Python and numpy."""
    state: Any = np.random.get_state()  # noqa: NPY002 what others draw from
    return random.getstate(), state[1].tobytes(), *state[2:]


@contextmanager
def keep_foreign_state() -> Iterator[None]:
    """Give the global generators of Python and numpy back as they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
