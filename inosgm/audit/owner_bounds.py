"""What shadow models say about every owner's promise: claimed, spent, and bounds from below."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.audit.bounds import Bound
from inosgm.audit.claims import Claim
from inosgm.audit.many_runs import many_run_bound
from inosgm.audit.one_run import one_run_bound
from inosgm.audit.pool import Shadows
from inosgm.owners import Label

ENOUGH = 8
"""With so many shadow models, half of them say what is usual for a record; with fewer, scores are taken as they are."""

PAYABLE = 0.2
"""So many records are guessed about in all attacked runs, times delta: each costs a chance of delta, and with more
records that costs more than they tell."""


@dataclass(frozen=True, kw_only=True)
class OwnerBounds:
    """What is claimed about an owner's records, and what shadow models refute of it. NOT PRIVATE.

    Attributes:
        claim: What is claimed.
        records: How many records of the owner are in the pool.
        one_run: By guesses about many records at once.
        many_runs: By one record in many runs.
    """

    claim: Claim
    records: int
    one_run: Bound
    many_runs: Bound

    @property
    def owner(self) -> Label:
        """Whose promise it is about."""
        return self.claim.owner

    @property
    def contradicts(self) -> bool:
        """Whether one of the bounds refutes the claim."""
        return self.one_run.contradicts or self.many_runs.contradicts


def bounds_of(shadows: Shadows, claims: Sequence[Claim], confidence: float = 0.95) -> tuple[OwnerBounds, ...]:
    """Bound the epsilon of every owner that has records in the pool from below. NOT PRIVATE.

    The models with even numbers are looked at first: they say how the scores of a record are with and without it, and
    which record is best told apart. Those with odd numbers are attacked with that, as many as there are for one record;
    guesses about all records go to as many models as their delta pays for, which makes them one run of all of them.

    **Guarantee.** With the stated confidence no true claim is contradicted, all bounds of all owners together: the
    error is divided by their number. It rests on the fair coin that every record tosses in every shadow model.

    Args:
        shadows: What models say about all records of the pool.
        claims: What is claimed, as `claims_of` the plan of the shadow models says.
        confidence: Of everything at once.

    Raises:
        ValueError: for an owner without a claim.
    """
    error = 1 - _validate.number("confidence", confidence, above=0, most=1)
    about = {claim.owner: claim for claim in claims}
    sizes = np.bincount(shadows.owners, minlength=len(shadows.labels))
    present = [(place, label) for place, label in enumerate(shadows.labels) if sizes[place]]
    missing = [label for _, label in present if label not in about]
    if missing:
        raise ValueError(f"claims must be about every owner of the pool, there is none about {missing[0]!r}")
    each = 1 - error / max(2 * len(present), 1)
    found = []
    for place, label in present:
        columns = np.flatnonzero(shadows.owners == place)
        scores, members = shadows.scores[:, columns], shadows.members[:, columns]
        statistics, inside = _statistics(scores, members)
        targets = max(1, int(PAYABLE / about[label].delta / columns.size))
        found.append(
            OwnerBounds(
                claim=about[label],
                records=columns.size,
                one_run=one_run_bound(statistics[:targets], inside[:targets], about[label], each),
                many_runs=many_run_bound(scores, members, about[label], each),
            )
        )
    return tuple(found)


def _statistics(scores: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return statistics of the runs that are attacked, and who was in them.

    Log-likelihood ratios of Gaussians: their means are those of a record in the other runs, with and without it, their
    variance is that within records, of all of them. A record that was in, or out, in fewer than 2 of them gets none.
    """
    if len(scores) < ENOUGH:
        return np.where(np.isfinite(scores), scores, np.nan), members
    usual, inside = scores[::2].astype(np.float64), members[::2]
    finite = np.isfinite(usual)
    usual = np.where(finite, usual, 0.0)
    means, squares, degrees = [], 0.0, 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        for side in (inside & finite, ~inside & finite):
            count = side.sum(axis=0)
            mean = np.where(count > 1, (usual * side).sum(axis=0) / count, np.nan)
            means.append(mean)
            squares += float(np.nansum(((usual - mean) ** 2 * side)[:, count > 1]))
            degrees += float((count[count > 1] - 1).sum())
        attacked = scores[1::2].astype(np.float64)
        attacked[~np.isfinite(attacked)] = np.nan
        variance = squares / degrees if squares else 1.0
        ratio = ((attacked - means[1]) ** 2 - (attacked - means[0]) ** 2) / (2 * variance)
    return ratio, members[1::2]
