"""Where coins and Gaussian noise come from: the operating system, or a key."""

from typing import Any

import array_api_compat
import numpy as np

from inosgm._internal import keys
from inosgm._internal.trees import tree_map
from inosgm._internal.validate import Array


def streams(key: int | None, step: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return one generator for the coins and one for the noise of a step.

    Without a key both are seeded anew by the operating system at every call, so that no copy of a mechanism ever
    repeats noise. With a key they are a function of (key, step): a retried step repeats itself. A keyed run is
    reproducible, and not private against whoever knows the key.

    >>> streams(7, step=3)[1].normal() == streams(7, step=3)[1].normal()
    True
    """
    return _generator(key, step, keys.COINS), _generator(key, step, keys.NOISE)


def choices(key: int | None, step: int) -> np.random.Generator:
    """Return the generator of what is chosen at random between steps, such as a group; it knows no data."""
    return _generator(key, step, keys.CHOICES)


def _generator(key: int | None, step: int, child: tuple[int, ...]) -> np.random.Generator:
    # numpy takes any ISeedSequence; its type hints name SeedSequence only.
    return np.random.Generator(np.random.PCG64DXSM(keys.step_sequence(key, step, child)))  # type: ignore[arg-type]


def key_beside(key: int) -> int:
    """Return the key of what is released beside the steps of a key: its noise is its own."""
    return keys.Purpose.SIDE_KEY.key(str(key))


def name_of_noise(key: int) -> str:
    """Return a job id that stands for the noise of a key: two jobs with the same noise are the same job."""
    return "key-" + keys.Purpose.NOISE_NAME.hex(str(key))


def add_gaussian(total: Any, scale: float, generator: np.random.Generator) -> Any:
    """Add independent N(0, scale^2) to every coordinate, on the device where it is, in float32 or better."""
    return tree_map(lambda array: _noisy(array, scale, generator), total)


def _noisy(array: Array, scale: float, generator: np.random.Generator) -> Array:
    if not array_api_compat.is_torch_array(array):
        return array + scale * generator.standard_normal(array.shape)
    import torch

    array = array.detach().to(torch.promote_types(array.dtype, torch.float32))
    if array.device.type == "cpu":  # torch's own generator on the CPU knows only 2^32 seeds
        precision = np.float64 if array.dtype == torch.float64 else np.float32
        noise = torch.from_numpy(generator.standard_normal(tuple(array.shape), dtype=precision))
    else:
        source = torch.Generator(array.device).manual_seed(int(generator.integers(2**63)))
        noise = torch.randn(array.shape, generator=source, dtype=array.dtype, device=array.device)
    return array.add(noise, alpha=scale)
