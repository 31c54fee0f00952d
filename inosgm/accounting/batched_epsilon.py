"""The epsilon of very many owners, tabulated where their rates and multipliers vary together."""

from collections.abc import Sequence

import numpy as np

from inosgm.accounting.curves import Curve
from inosgm.accounting.interface import Accountant
from inosgm.accounting.segments import Segment, Spent, unchecked_segment
from inosgm.accounting.unique_rows import unique_rows

MAX_SINGLE_ROWS = 64
"""Largest number of distinct rows that are computed one by one; a table of a curve needs a few dozen evaluations."""

_CHAIN_TOLERANCE = 1e-3
"""Largest distance, on the log scale, between a row and the monotone chain that bounds it from above."""

_SPLINE_NODES = 65
"""Nodes of the splines that test whether several columns vary smoothly, and least number of nodes of their table."""


def epsilon_of_rows(segments: Sequence[Segment], delta: np.ndarray, accountant: Accountant) -> np.ndarray:
    """Return an upper bound on the epsilon of every row.

    Up to 64 distinct rows are computed one by one. Plans for very many budgets have more of them, which form a chain:
    all rates rise and all multipliers fall along it, so epsilon rises. PLD then tabulates epsilon as `curves` describes
    (at most 0.1 % higher), and RDP confirms every row. Rows that form no chain are computed one by one.
    """
    if not segments:
        return np.zeros(delta.size)
    first, kinds = unique_rows([delta, *(column for segment in segments for column in segment.columns())])
    rows, deltas = [segment.rows(first) for segment in segments], delta[first]
    if first.size <= MAX_SINGLE_ROWS:
        return np.asarray(accountant.epsilon(rows, deltas)[0][kinds])
    _, group_of = unique_rows([deltas, *(segment.steps for segment in rows)])
    epsilons = np.full(first.size, np.nan)
    order = np.argsort(group_of, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1):
        epsilons[group] = _chain([segment.rows(group) for segment in rows], deltas[group], accountant)
    left = np.flatnonzero(np.isnan(epsilons))
    if left.size:
        epsilons[left] = accountant.epsilon([segment.rows(left) for segment in rows], deltas[left])[0]
    return np.asarray(epsilons[kinds])


def _smooth(columns: list[np.ndarray]) -> bool:
    """Return whether columns vary so smoothly together that epsilon can be interpolated between a few of the rows.

    All rows, at least four times as many as nodes, must lie within 5e-5 of the cubic splines through the nodes. A
    larger kink is detected; a smaller one moves epsilon by less than the safety margin of a table (`curves`).
    """
    rows = columns[0].size
    if rows < 4 * _SPLINE_NODES:
        return False
    from scipy.interpolate import CubicSpline  # slow to import, and rarely needed

    along = np.linspace(0, 1, rows)
    nodes = np.linspace(0, rows - 1, _SPLINE_NODES).round().astype(np.int64)
    return all(np.abs(CubicSpline(along[nodes], column[nodes])(along) - column).max() <= 5e-5 for column in columns)


def _chain(segments: Sequence[Segment], delta: np.ndarray, accountant: Accountant) -> np.ndarray:
    """Return the epsilon of rows with the same delta and steps; NaN if they are few or form no chain."""
    unknown = np.full(delta.size, np.nan)
    if delta.size <= MAX_SINGLE_ROWS or not all(s.sample_rate.all() and not s.is_menu for s in segments):
        return unknown
    if any(isinstance(segment, Spent) for segment in segments):  # the slacks of rows may differ
        return unknown
    logs = [(np.log(segment.sample_rate), np.log(segment.noise_multiplier)) for segment in segments]
    order = np.argsort(sum(rate - multiplier for rate, multiplier in logs))
    # The least monotone chain that costs at least as much as each row: rows that are a chain up to rounding stay put.
    chain = [
        (np.maximum.accumulate(rate[order]), np.minimum.accumulate(multiplier[order])) for rate, multiplier in logs
    ]
    for links, rows in zip(chain, logs, strict=True):
        if max(np.abs(link - row[order]).max() for link, row in zip(links, rows, strict=True)) > _CHAIN_TOLERANCE:
            return unknown
    columns = [column[order] for pair in logs for column in pair]
    varying = [column for column in columns if np.ptp(column) > 0]
    if not accountant.confirms and len(varying) > 1 and not _smooth(varying):
        return unknown
    coordinate = np.maximum.accumulate(sum(rate - multiplier for rate, multiplier in chain))

    def question(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row = np.zeros(s.size, dtype=np.int64)  # all rows have the same delta and steps
        points = [
            unchecked_segment(
                np.minimum(np.exp(np.interp(s, coordinate, rate)), 1.0),
                np.exp(np.interp(s, coordinate, multiplier)),
                segment.steps[row],
            )
            for segment, (rate, multiplier) in zip(segments, chain, strict=True)
        ]
        return accountant.epsilon(points, delta[row])

    curve = Curve(question, float(coordinate[0]), float(coordinate[-1]))
    nodes = 4 + int((coordinate[-1] - coordinate[0]) / 0.5)
    curve.add(np.linspace(coordinate[0], coordinate[-1], nodes if len(varying) < 2 else max(nodes, _SPLINE_NODES)))
    if accountant.confirms:
        coordinate_of_row = np.empty(delta.size)
        coordinate_of_row[order] = coordinate
        return accountant.confirm(segments, delta, curve.hints(coordinate_of_row), closely=True)
    epsilons = np.empty(delta.size)
    epsilons[order] = np.exp(curve.upper(coordinate))
    return epsilons
