"""The epsilon of very many owners whose numbers follow one another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from inosgm.accounting.curves import Curve
from inosgm.accounting.segments import Segment, _unchecked
from inosgm.accounting.unique_rows import distinct

if TYPE_CHECKING:
    from inosgm.accounting.accountants import Accountant

MANY = 64
"""Up to so many kinds of rows are worked out one by one."""
_LIKE = 1e-3
_NODES = 65


def epsilon_of_rows(segments: Sequence[Segment], delta: np.ndarray, accountant: "Accountant") -> np.ndarray:
    """Return the epsilon of every row, from above.

    Up to 64 kinds of rows are worked out one by one. More of them, as in plans for very many budgets, form a
    chain along which all rates rise and all multipliers fall, so that epsilon rises: then it is tabulated as `curves`
    describes (and comes out at most 0.1 % higher), or, by Renyi, confirmed row by row. Rows that form no chain are
    worked out one by one, too.
    """
    if not segments:
        return np.zeros(delta.size)
    first, kinds = distinct([delta, *(column for segment in segments for column in segment.columns())])
    rows, deltas = [segment.rows(first) for segment in segments], delta[first]
    if first.size <= MANY:
        return np.asarray(accountant.epsilon(rows, deltas)[0][kinds])
    _, group_of = distinct([deltas, *(segment.steps for segment in rows)])
    found = np.full(first.size, np.nan)
    order = np.argsort(group_of, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1):
        part = [segment.rows(group) for segment in rows]
        found[group] = _chain(part, deltas[group], accountant)
    left = np.flatnonzero(np.isnan(found))
    if left.size:
        found[left] = accountant.epsilon([segment.rows(left) for segment in rows], deltas[left])[0]
    return np.asarray(found[kinds])


def _smooth(columns: list[np.ndarray]) -> bool:
    """Say whether columns that vary together do so smoothly, so that epsilon can be read between a few of the rows.

    All rows, four times as many as nodes at least, must lie within 5e-5 of the cubic splines through the nodes: a kink
    that is larger would be seen, a smaller one moves epsilon by less than the room that a table leaves.
    """
    rows = columns[0].size
    if rows < 4 * _NODES:
        return False
    from scipy.interpolate import CubicSpline  # slow to import, and few histories get here

    along = np.linspace(0, 1, rows)
    nodes = np.linspace(0, rows - 1, _NODES).round().astype(np.int64)
    return all(np.abs(CubicSpline(along[nodes], column[nodes])(along) - column).max() <= 5e-5 for column in columns)


def _chain(segments: Sequence[Segment], delta: np.ndarray, accountant: "Accountant") -> np.ndarray:
    """Return the epsilon of rows with the same delta and steps, nan if they are few or form no chain."""
    unknown = np.full(delta.size, np.nan)
    if delta.size <= MANY or not all(segment.sample_rate.all() and not segment.is_menu for segment in segments):
        return unknown
    logs = [(np.log(segment.sample_rate), np.log(segment.noise_multiplier)) for segment in segments]
    order = np.argsort(sum(rate - multiplier for rate, multiplier in logs))
    # The least chain that is nowhere cheaper than the rows themselves; no worse, if they are a chain but for rounding.
    chain = [
        (np.maximum.accumulate(rate[order]), np.minimum.accumulate(multiplier[order])) for rate, multiplier in logs
    ]
    for links, rows in zip(chain, logs, strict=True):
        if max(np.abs(link - row[order]).max() for link, row in zip(links, rows, strict=True)) > _LIKE:
            return unknown
    columns = [column[order] for pair in logs for column in pair]
    varying = [column for column in columns if np.ptp(column) > 0]
    if not accountant.confirms and len(varying) > 1 and not _smooth(varying):
        return unknown
    place = np.maximum.accumulate(sum(above - below for above, below in chain))

    def question(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        here = np.zeros(s.size, dtype=np.int64)
        at = [
            _unchecked(
                np.minimum(np.exp(np.interp(s, place, above)), 1.0),
                np.exp(np.interp(s, place, below)),
                segment.steps[here],
            )
            for segment, (above, below) in zip(segments, chain, strict=True)
        ]
        return accountant.epsilon(at, delta[here])

    curve = Curve(question, float(place[0]), float(place[-1]))
    nodes = 4 + int((place[-1] - place[0]) / 0.5)
    curve.add(np.linspace(place[0], place[-1], nodes if len(varying) < 2 else max(nodes, _NODES)))
    found = np.empty(delta.size)
    if accountant.confirms:
        found[order] = place
        return accountant.confirm(segments, delta, curve.hints(found), closely=True)
    found[order] = np.exp(curve.upper(place))
    return found
