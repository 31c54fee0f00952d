"""The lines of `Ledger.report`."""

from collections.abc import Sequence

import numpy as np

from inosgm.accounting.units import ADD_REMOVE, described
from inosgm.ledger.charges import Charge
from inosgm.ledger.journal import Row
from inosgm.owners import Label


def owner_lines(
    labels: Sequence[Label], granted: np.ndarray, spent: np.ndarray, delta: np.ndarray, rows: int
) -> list[str]:
    """Return a table of the owners that are nearest to their limit."""
    lines = [f"{'owner':<24} {'granted':>10} {'spent':>10} {'left':>10} {'delta':>10}"]
    for i in np.argsort(-spent / granted, kind="stable")[:rows].tolist():
        left = max(granted[i] - spent[i], 0.0)
        numbers = f"{granted[i]:>10.4g} {spent[i]:>10.4g} {left:>10.4g} {delta[i]:>10.2g}"
        lines.append(f"{labels[i]!s:<24.24} {numbers}")
    further = len(labels) - rows
    return lines + [f"... and {further} owners further from their limit"] * (further > 0)


def unit_lines(unit: str) -> list[str]:
    """Return a line about the unit, unless it is one record that is added or removed."""
    return [f"unit {unit}: epsilons are {described(unit)}", ""] * (unit != ADD_REMOVE)


def charge_lines(charges: Sequence[Charge], rows: int) -> list[str]:
    """Return a table of the latest charges."""
    lines = [f"{'charged':<26} {'steps':>8} {'job':<18} note"]
    lines += ["nothing yet"] * (not charges)
    lines += [f"... {len(charges) - rows} earlier charges"] * (len(charges) > rows)
    for charge in charges[-rows:]:
        lines.append(f"{charge.time:<26} {charge.steps:>8} {charge.job:<18.18} {charge.note}".rstrip())
    return lines


def undone_lines(undone: Sequence[Row], rows: int) -> list[str]:
    """Return a line for each of the latest undone steps."""
    return [f"{row['time']:<26} {-row['steps']:>8} {row['job']:<18.18} undone" for row in undone[-rows:]]


def torn_lines(set_aside: Sequence[Row], pending: int) -> list[str]:
    """Return a line for each incomplete row that a killed writer left."""
    lines = [
        f"row {row['row']}: a torn row of {row['bytes']} bytes was set aside in {row['kept']}" for row in set_aside
    ]
    if pending:
        lines.append(
            f"the last {pending} bytes are no whole row and count for nothing: a writer was killed, or the file was "
            "cut; compare the head with one that was noted"
        )
    return lines
