"""The state of torch's generators, by which one can tell whether anything was drawn."""

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
