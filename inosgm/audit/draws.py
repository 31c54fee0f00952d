"""What is random in an audit: functions of its seed and the number of a shadow model, never of who computes them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from inosgm._internal.keys import Draw, Purpose, seed_of
from inosgm.experiments.config import TrainingConfig


def members(seed: int, shadow: int, records: int) -> np.ndarray:
    """Draw who a shadow model is trained on: every record of the pool tosses a fair coin of its own.

    Coins and not exact halves: with a fixed number of members, a record that is out has another in its place, and
    what an attack then shows about it is no lower bound on the epsilon of adding or removing a record.

    >>> members(0, shadow=3, records=8)
    array([False,  True, False, False, False, False,  True,  True])
    """
    return Draw.MEMBERS.generator(seed, shadow).integers(0, 2, records, dtype=np.bool_)


def canaries(seed: int, owners: np.ndarray, count: int) -> np.ndarray:
    """Draw the records that are made to stand out: so many of every owner, or all where it has fewer.

    Args:
        seed: The seed of the audit.
        owners: The owner of each record, a whole number.
        count: How many of each.

    Returns:
        Their positions, ascending.
    """
    drawn = Draw.CANARIES.generator(seed).permutation(owners.size)
    place = np.argsort(owners[drawn], kind="stable")  # owner by owner, each in the order that was drawn
    sizes = np.unique(owners, return_counts=True)[1]
    rank = np.arange(owners.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(drawn[place[rank < count]])


def mislabelled(seed: int, classes: np.ndarray, number: int, positions: np.ndarray) -> np.ndarray:
    """Return the classes of records with those at some positions replaced, each by another one of so many."""
    shift = Draw.MISLABELLED.generator(seed).integers(1, number, positions.size)
    changed = classes.copy()
    changed[positions] = (changed[positions] + shift) % number
    return changed


def model_seed(seed: int, shadow: int) -> int:
    """Return the seed of the first parameters of a shadow model, and of a random order."""
    return seed_of(Draw.SHADOW_MODEL.sequence(seed, shadow))


def noise_key(config: TrainingConfig, audit: Mapping[str, Any], shadow: int) -> int:
    """Return the key of a shadow model's coins and noise. No secret: whoever audits knows the records anyway.

    Args:
        config: The method under audit.
        audit: What else makes the audit the audit that it is; other audits have other noise.
        shadow: The number of the shadow model.
    """
    return Purpose.SHADOW_KEY.key(repr((sorted(audit.items()), shadow, sorted(config.identity().items()))))
