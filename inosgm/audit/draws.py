"""The random choices of an audit: functions of its seed and the number of a shadow model, the same on every worker."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from inosgm._internal.keys import Draw, Purpose, seed_of
from inosgm.experiments.config import TrainingConfig


def members(seed: int, shadow: int, records: int) -> np.ndarray:
    """Draw the members of a shadow model: every record of the pool is one with probability 1/2, independently.

    Exact halves would not do: with a fixed number of members, a record that is out is replaced by another, and an
    attack then gives no lower bound on the epsilon of adding or removing a record.

    >>> members(0, shadow=3, records=8)
    array([False,  True, False, False, False, False,  True,  True])
    """
    return Draw.MEMBERS.generator(seed, shadow).integers(0, 2, records, dtype=np.bool_)


def canaries(seed: int, owners: np.ndarray, count: int) -> np.ndarray:
    """Draw the canaries: `count` records of every owner, or all if it has fewer.

    Args:
        seed: The seed of the audit.
        owners: The owner of each record, an integer.
        count: The number of records of each owner.

    Returns:
        Their positions, ascending.
    """
    drawn = Draw.CANARIES.generator(seed).permutation(owners.size)
    place = np.argsort(owners[drawn], kind="stable")  # owner by owner, each in the order that was drawn
    sizes = np.unique(owners, return_counts=True)[1]
    rank = np.arange(owners.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(drawn[place[rank < count]])


def mislabelled(seed: int, classes: np.ndarray, number: int, positions: np.ndarray) -> np.ndarray:
    """Return the classes of records with those at some positions replaced by another of `number` classes."""
    shift = Draw.MISLABELLED.generator(seed).integers(1, number, positions.size)
    changed = classes.copy()
    changed[positions] = (changed[positions] + shift) % number
    return changed


def model_seed(seed: int, shadow: int) -> int:
    """Return the seed of the initial parameters of a shadow model, and of a random order."""
    return seed_of(Draw.SHADOW_MODEL.sequence(seed, shadow))


def noise_key(config: TrainingConfig, audit: Mapping[str, Any], shadow: int) -> int:
    """Return the key of a shadow model's coins and noise. It is no secret: an auditor knows the records anyway.

    Args:
        config: The method under audit.
        audit: The other settings of the audit; other audits have other noise.
        shadow: The number of the shadow model.
    """
    return Purpose.SHADOW_KEY.key(repr((sorted(audit.items()), shadow, sorted(config.identity().items()))))
