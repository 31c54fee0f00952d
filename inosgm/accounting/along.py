"""The epsilon of very many owners whose numbers follow one another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from inosgm.accounting.curves import Curve
from inosgm.accounting.rows import distinct
from inosgm.accounting.segments import Segment, _unchecked

if TYPE_CHECKING:
    from inosgm.accounting.accountants import Accountant

_MANY = 64
_LIKE = 1e-3


def epsilon_of_rows(segments: Sequence[Segment], delta: np.ndarray, accountant: "Accountant") -> np.ndarray:
    """Return the epsilon of every row, from above.

    Up to 64 kinds of rows are worked out one by one. More of them, as in a plan for very many budgets, share
    a past, a delta and a chain along which the last rate rises and the last multiplier falls, so that epsilon
    rises: then it is tabulated as `curves` describes (and comes out at most 0.1 % higher), or, by Renyi,
    confirmed row by row.
    """
    if not segments:
        return np.zeros(delta.size)
    first, kinds = distinct([delta, *(column for segment in segments for column in segment._values())])
    rows, deltas = [segment.rows(first) for segment in segments], delta[first]
    if first.size <= _MANY:
        return np.asarray(accountant.epsilon(rows, deltas)[0][kinds])
    last = rows[-1]
    shared = [deltas, last.steps, *(column for segment in rows[:-1] for column in segment._values())]
    _, group_of = distinct(shared)
    found = np.full(first.size, np.nan)
    order = np.argsort(group_of, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1):
        part = [segment.rows(group) for segment in rows]
        found[group] = _chain(part, deltas[group], accountant)
    left = np.flatnonzero(np.isnan(found))
    if left.size:
        found[left] = accountant.epsilon([segment.rows(left) for segment in rows], deltas[left])[0]
    return np.asarray(found[kinds])


def _chain(segments: Sequence[Segment], delta: np.ndarray, accountant: "Accountant") -> np.ndarray:
    """Return the epsilon of rows that differ in the last segment only, nan if they are few or form no
    chain.
    """
    unknown = np.full(delta.size, np.nan)
    last = segments[-1]
    if delta.size <= _MANY or not last.sample_rate.all():
        return unknown
    rate, multiplier = np.log(last.sample_rate), np.log(last.noise_multiplier)
    x = rate - multiplier
    order = np.argsort(x)
    # The least chain that is nowhere cheaper than the rows themselves; no worse, if they are a chain but for
    # rounding.
    above, below = np.maximum.accumulate(rate[order]), np.minimum.accumulate(multiplier[order])
    if max(np.abs(above - rate[order]).max(), np.abs(below - multiplier[order]).max()) > _LIKE:
        return unknown
    place = np.maximum.accumulate(above - below)

    def question(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        here = np.zeros(s.size, dtype=np.int64)
        ahead = _unchecked(
            np.minimum(np.exp(np.interp(s, place, above)), 1.0),
            np.exp(np.interp(s, place, below)),
            last.steps[here],
        )
        return accountant.epsilon([*(segment.rows(here) for segment in segments[:-1]), ahead], delta[here])

    curve = Curve(question, float(place[0]), float(place[-1]))
    curve.add(np.linspace(place[0], place[-1], 4 + int((place[-1] - place[0]) / 0.5)))
    found = np.empty(delta.size)
    if accountant.confirms:
        return accountant.confirm(segments, delta, curve.hints(x), closely=True)
    found[order] = np.exp(curve.upper(place))
    return found
