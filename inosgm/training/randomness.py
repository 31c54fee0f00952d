"""Random numbers of models, such as those of dropout: a function of a seed, and never the user's own stream."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from inosgm._internal import keys


def seed_of_part(key: int, step: int, part: int) -> int:
    """Return the seed of one physical batch; coins and noise of the step have seeds of their own."""
    return keys.seed_of(keys.step_sequence(key, step, keys.microbatch(part)))


def seed_of_batch(key: int, step: int) -> int:
    """Return the seed of random numbers that all records of a logical batch share, whatever parts it is run in."""
    return keys.seed_of(keys.step_sequence(key, step, keys.SHARED_BY_BATCH))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let torch's global generators start from a seed, and give them back as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield
