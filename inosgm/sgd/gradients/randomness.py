"""The state of torch's generators, by which a pass over a batch can be repeated, dropout masks and all."""

import torch
from torch import Tensor

RandomState = tuple[Tensor, ...]
"""The state of the generators that a model on one device may draw from."""


def random_state(device: torch.device) -> RandomState:
    """Return the state of the CPU's generator and of the device's own."""
    state = (torch.get_rng_state(),)
    return (*state, torch.cuda.get_rng_state(device)) if device.type == "cuda" else state


def set_random_state(device: torch.device, state: RandomState) -> None:
    """Return to a state: what is drawn next is what was drawn after it."""
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)


def same_state(one: RandomState, other: RandomState) -> bool:
    """Say whether nothing was drawn between two states."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
