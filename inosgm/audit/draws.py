"""What is random in an audit: functions of its seed and the number of a shadow model, never of who computes them."""

from hashlib import blake2b

import numpy as np

from inosgm.config import TrainingConfig


def members(seed: int, shadow: int, records: int) -> np.ndarray:
    """Draw who a shadow model is trained on: every record of the pool tosses a fair coin of its own.

    Coins and not exact halves: with a fixed number of members, a record that is out has another in its place, and
    what an attack then shows about it is no lower bound on the epsilon of adding or removing a record.

    >>> members(0, shadow=3, records=8)
    array([ True, False, False, False, False,  True, False,  True])
    """
    return np.random.default_rng([seed, shadow, *b"members"]).integers(0, 2, records, dtype=np.bool_)


def model_seed(seed: int, shadow: int) -> int:
    """Return the seed of the first parameters of a shadow model, and of a random order."""
    state = np.random.SeedSequence([seed, shadow, *b"model"]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def noise_key(config: TrainingConfig, seed: int, shadow: int) -> int:
    """Return the key of a shadow model's coins and noise. No secret: whoever audits knows the records anyway."""
    text = repr((seed, shadow, sorted(config.identity().items())))
    return int.from_bytes(blake2b(text.encode(), digest_size=16, person=b"inosgm shadow").digest())
