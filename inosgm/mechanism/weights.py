"""Importance weights: scores, sensitivities, a tail and an order give every record of a batch its rho."""

from typing import Any

import array_api_compat
import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.validate import Array
from inosgm.mechanism.contributions import Contributions, as_contributions
from inosgm.mechanism.orders import Descending, Order
from inosgm.mechanism.tails import Tail, tail_weights


def importance_weights(
    scores: Array,
    sensitivities: Array,
    tail: Tail,
    *,
    order: Order = Descending(),
    ids: Array | None = None,
    owners: Array | None = None,
) -> Array:
    """Weigh the records of a whole batch: rho_k C_k = W(S_k + C_k) - W(S_k), S_k summing the C ranked below k.

    **Guarantee.** For contributions with ||g_k|| <= C_k, adding or removing one record a changes the sum of
    rho_k g_k by at most C_a in norm (Thm 3.4 of the INO-SGD paper). It holds for the whole logical batch: never
    weigh micro-batches one by one, and never let the tail depend on the realised batch.

    Thresholds are accumulated in float64 with their rounding errors carried along. Against exact arithmetic rho is
    within 1e-9 for sensitivities over six orders of magnitude and alpha, beta of a BetaTail from 0.3 to 50; there the
    piecewise cubic behind a BetaTail (the fast path, a valid tail itself) and its closed form agree to 2e-11 in w.

    Args:
        scores: One number per record, numpy or torch, on any device that has float64. NaN ranks last.
        sensitivities: C, one number >= 0 per record, or one for all.
        tail: The part of the order that is down-weighted.
        order: What counts as important.
        ids: One distinct integer per record, to break ties: the smaller id is more important. Without ids the
            position in the batch decides, which is fine as long as batches list records in one fixed order.
        owners: One number per record, smaller for more private owners (its epsilon, say); OwnerFirst needs it.

    Returns:
        rho in [0, 1] in float64, in the order and on the device of the scores.

    Raises:
        ValueError: for wrong shapes and for sensitivities that are negative or not finite.

    >>> from inosgm import LinearTail
    >>> importance_weights([3.0, 1.0, 2.0], 1.0, LinearTail(2.0))
    array([1.  , 0.25, 0.75])
    """
    _validate.instance("tail", tail, Tail, "take one such as LinearTail(2.0), or tabulate a function with TableTail.of")
    _validate.instance("order", order, Order, "take one such as Descending()")
    xp, scores = checked_scores(scores)
    sensitivities = _per_record(xp, "sensitivities", sensitivities, scores)
    if not _valid(sensitivities):
        raise ValueError(f"sensitivities must be 0 or lie in [{_validate.TINY}, {_validate.HUGE}], and be finite")
    ids = None if ids is None else _integers(xp, ids, scores)
    owners = None if owners is None else _per_record(xp, "owners", owners, scores)
    return weigh(xp, scores, sensitivities, tail, order, ids, owners)


def weigh(
    xp: Any, scores: Array, sensitivities: Array, tail: Tail, order: Order, ids: Array | None, owners: Array | None
) -> Array:
    """Return the importance weights of arrays that are known to be sound: float64, and where the scores are."""
    rho = xp.ones_like(scores)
    if not tail.length or not scores.shape[0]:
        return rho
    ranking = order.ranking(scores, ids, owners)
    if xp is np:
        lowest_first, equal = ranking[::-1], sensitivities[0]
        shared = tail.equal_weights(equal) if (sensitivities == equal).all() else None
        if shared is not None:
            rho[lowest_first[: shared.size]] = shared[: scores.size]
            return rho
    else:
        lowest_first = xp.flip(ranking)
    spent = tail_weights(xp, sensitivities[lowest_first], tail)
    rho[lowest_first[: spent.shape[0]]] = spent
    return rho


def ordered_sum(
    contributions: Array | Contributions,
    scores: Array,
    sensitivities: Array,
    tail: Tail,
    *,
    order: Order = Descending(),
    ids: Array | None = None,
    owners: Array | None = None,
) -> Any:
    """Return the exact weighted sum of rho_k g_k. NOT PRIVATE: it carries no noise and spends no budget.

    For tests, audits and data that need no protection; `INOSGM.release` is the private way. Contributions are
    taken as they are: longer ones than their sensitivity are not clipped.

    Args:
        contributions: One row per record (an array), or anything with `norms` and `weighted_sum`.
        scores: As for `importance_weights`, like the remaining arguments.
        sensitivities: C, one per record, or one for all.
        tail: The part of the order that is down-weighted.
        order: What counts as important.
        ids: One distinct integer per record.
        owners: One number per record, smaller for more private owners.

    Returns:
        The sum, of the shape of one contribution.

    >>> import numpy as np
    >>> from inosgm import HardTail
    >>> ordered_sum(np.array([[3.0], [1.0], [2.0]]), [3.0, 1.0, 2.0], 3.0, HardTail(4.5))
    array([4.])
    """
    contributions = as_contributions(contributions)
    weights = importance_weights(scores, sensitivities, tail, order=order, ids=ids, owners=owners)
    return contributions.weighted_sum(weights)


def checked_scores(scores: Any) -> tuple[Any, Array]:
    """Return the namespace of scores and themselves in float64, one per record."""
    xp, scores = _validate.floats("scores", scores)
    if scores.ndim != 1:
        raise ValueError(
            f"scores must be one number per record, got an array of {scores.ndim} axes"
        )  # sizes are private
    return xp, scores


def _per_record(xp: Any, name: str, values: Any, scores: Array) -> Array:
    _, values = _validate.floats(name, values, like=scores)
    if values.ndim == 0:
        return xp.broadcast_to(values, scores.shape)
    if values.shape != scores.shape:
        raise ValueError(
            f"{name} must be one number per record: got {tuple(values.shape)} for {tuple(scores.shape)} scores"
        )
    return values


def _valid(sensitivities: Array) -> bool:
    """Say whether each is 0 or neither too small nor too large, and finite."""
    if not sensitivities.shape[0] or (sensitivities.min() >= _validate.TINY and sensitivities.max() <= _validate.HUGE):
        return True
    within = (sensitivities >= _validate.TINY) & (sensitivities <= _validate.HUGE)
    return bool(((sensitivities == 0) | within).all())


def _integers(xp: Any, ids: Any, scores: Array) -> Array:
    if not (type(ids) is type(scores) is np.ndarray):
        ids = xp.asarray(ids, device=array_api_compat.device(scores))
    if ids.shape != scores.shape or not xp.isdtype(ids.dtype, "integral"):
        raise ValueError(f"ids must be one distinct whole number per record, got {tuple(ids.shape)} of {ids.dtype}")
    return ids
