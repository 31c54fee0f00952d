"""The power of attacks against the number of shadow models that they have."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.pool import Shadows
from inosgm.audit.roc import Success, success
from inosgm.owners import Label

COUNTS = (1, 2, 4, 16, 64, 512)
"""Numbers of shadow models for which power is shown; a larger one than there are others means all others."""


@dataclass(frozen=True, kw_only=True)
class Power:
    """The success of an attack on the records of an owner, given some shadow models. NOT PRIVATE.

    Attributes:
        attack: The name of the attack.
        owner: The label of the owner; None for everyone.
        references: The number of shadow models that each target is attacked with.
        success: The success, over all targets.
    """

    attack: str
    owner: Label | None
    references: int
    success: Success


def power(
    shadows: Shadows,
    attacks: Sequence[str] = tuple(ATTACKS),
    counts: Sequence[int] = COUNTS,
    *,
    targets: int = 64,
    confidence: float = 0.95,
) -> tuple[Power, ...]:
    """Return the success of attacks with few and with many shadow models, on the same targets. NOT PRIVATE.

    Targets are spread evenly over the shadow models. Each is attacked with the models that follow it (after the last
    one comes the first), so that targets with few references have different ones.

    Args:
        shadows: The shadow models, two at least.
        attacks: Names of attacks in `ATTACKS`.
        counts: Numbers of references; each is cut to the number of all other models, and counted once.
        targets: The number of targets; all models if there are fewer.
        confidence: The confidence of each interval.

    Returns:
        Every attack with every count, for each owner with records and for everyone (None).

    Raises:
        ValueError: for unknown attacks, and for numbers out of range.

    >>> generator = np.random.default_rng(0)
    >>> members = generator.random((20, 200)) < 0.5
    >>> scores = (generator.normal(size=(20, 200)) + members).astype(np.float32)
    >>> shadows = Shadows(scores=scores, members=members, owners=np.zeros(200, int), labels=("a",), asked=20)
    >>> [(one.references, round(one.success.auc, 2)) for one in power(shadows, ["rmia"], [1, 512]) if one.owner]
    [(1, 0.69), (19, 0.75)]
    """
    if shadows.count < 2:
        raise ValueError(f"shadows must be two models at least, a target and a reference: got {shadows.count}")
    unknown = [name for name in attacks if name not in ATTACKS]
    if unknown or not attacks:
        raise ValueError(f"attacks must be some of {', '.join(ATTACKS)}, got {', '.join(unknown) or 'none'}")
    sizes = sorted({min(_validate.count("counts", count, least=1), shadows.count - 1) for count in counts})
    every = min(_validate.count("targets", targets, least=1), shadows.count)
    attacked = np.unique(np.linspace(0, shadows.count, every, endpoint=False).astype(np.int64))
    members = shadows.members[attacked]
    rows = []
    for size in sizes:
        found: dict[str, list[np.ndarray]] = {name: [] for name in attacks}
        for target in attacked:
            references = _some(shadows, (target + 1 + np.arange(size)) % shadows.count)
            for name in attacks:
                found[name].append(ATTACKS[name].against(references, shadows.scores[target]))
        for name, statistics in found.items():
            rows += [
                Power(
                    attack=name,
                    owner=label,
                    references=size,
                    success=success(np.array(statistics)[:, own], members[:, own], confidence=confidence),
                )
                for label, own in _owners(shadows)
            ]
    return tuple(rows)


def _some(shadows: Shadows, positions: np.ndarray) -> Shadows:
    """Return some of the shadow models."""
    return Shadows(
        scores=shadows.scores[positions],
        members=shadows.members[positions],
        owners=shadows.owners,
        labels=shadows.labels,
        asked=positions.size,
    )


def _owners(shadows: Shadows) -> list[tuple[Label | None, np.ndarray]]:
    """Return the owners that have records, each with its records, and everyone."""
    own = [(shadows.labels[owner], np.flatnonzero(shadows.owners == owner)) for owner in np.unique(shadows.owners)]
    return [*own, (None, np.arange(shadows.records))]
