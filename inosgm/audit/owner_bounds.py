"""Lower bounds on the epsilon of every owner from shadow models, beside what is claimed."""

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

FEWEST_CALIBRATED = 8
"""Smallest number of shadow models of which half calibrate the scores of a record; fewer are used as they are."""

PAYABLE = 0.2
"""Largest product of delta and the number of guesses in all attacked runs: each guess costs delta, and more guesses
cost more than they add."""


@dataclass(frozen=True, kw_only=True)
class OwnerBounds:
    """The claim about an owner's records, and bounds from shadow models. NOT PRIVATE.

    Attributes:
        claim: The claim.
        records: The number of records of the owner in the pool.
        one_run: The bound by guesses about many records at once.
        many_runs: The bound by one record in many runs.
    """

    claim: Claim
    records: int
    one_run: Bound
    many_runs: Bound

    @property
    def owner(self) -> Label:
        """The label of the owner."""
        return self.claim.owner

    @property
    def contradicts(self) -> bool:
        """Whether one of the bounds refutes the claim."""
        return self.one_run.contradicts or self.many_runs.contradicts


def bounds_of(shadows: Shadows, claims: Sequence[Claim], confidence: float = 0.95) -> tuple[OwnerBounds, ...]:
    """Return lower bounds on the epsilon of every owner that has records in the pool. NOT PRIVATE.

    The models with even numbers calibrate: they give the distribution of a record's scores with and without it, and the
    record that is identified best. The models with odd numbers are attacked: all of them for one record; for guesses
    about all records, as many as `PAYABLE` allows, which count as one run.

    **Guarantee.** With the stated confidence no true claim is contradicted, all bounds of all owners together: the
    error is divided by their number. It holds because every record is in every shadow model with probability 1/2.

    Args:
        shadows: The scores of all records of the pool.
        claims: The claims of the plan of the shadow models, from `claims_of`.
        confidence: The joint confidence of all bounds.

    Raises:
        ValueError: for an owner without a claim.
    """
    error = 1 - _validate.number("confidence", confidence, above=0, most=1)
    about = {claim.owner: claim for claim in claims}
    sizes = np.bincount(shadows.owners, minlength=len(shadows.labels))
    present = [(index, label) for index, label in enumerate(shadows.labels) if sizes[index]]
    missing = [label for _, label in present if label not in about]
    if missing:
        raise ValueError(f"claims must be about every owner of the pool, there is none about {missing[0]!r}")
    each = 1 - error / max(2 * len(present), 1)
    rows = []
    for index, label in present:
        columns = np.flatnonzero(shadows.owners == index)
        scores, members = shadows.scores[:, columns], shadows.members[:, columns]
        statistics, inside = _statistics(scores, members)
        targets = max(1, int(PAYABLE / about[label].delta / columns.size))
        rows.append(
            OwnerBounds(
                claim=about[label],
                records=columns.size,
                one_run=one_run_bound(statistics[:targets], inside[:targets], about[label], each),
                many_runs=many_run_bound(scores, members, about[label], each),
            )
        )
    return tuple(rows)


def _statistics(scores: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return statistics of the attacked runs, and their members.

    The statistics are log-likelihood ratios of Gaussians. Their means are those of a record in the other runs, with and
    without it; their variance is pooled within records. A record that was in, or out, in fewer than 2 runs gets none.
    """
    if len(scores) < FEWEST_CALIBRATED:
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
