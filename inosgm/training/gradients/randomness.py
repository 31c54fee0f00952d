"""The state of global generators, which shows whether anything was drawn."""

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
    """Return the state of the CPU's generator and of the generator of a CUDA device."""
    state = (torch.get_rng_state(),)
    return (*state, torch.cuda.get_rng_state(device)) if device.type == "cuda" else state


def set_random_state(state: RandomState, device: torch.device) -> None:
    """Put generators back into a state that `random_state` gave."""
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)


def same_state(one: RandomState, other: RandomState) -> bool:
    """Return whether nothing was drawn between two states."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def foreign_state() -> tuple[Any, ...]:
    """Return the state of the global generators of Python and numpy."""
    state: Any = np.random.get_state()  # noqa: NPY002 the generator that models and data sets may use
    return random.getstate(), state[1].tobytes(), *state[2:]


@contextmanager
def keep_foreign_state() -> Iterator[None]:
    """Restore the global generators of Python and numpy at the end."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
