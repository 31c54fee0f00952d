"""The lines of `Ledger.report`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from inosgm.accounting.units import ADD_REMOVE, described
from inosgm.ledger.charges import Charge
from inosgm.ledger.filter import TRAINING_STEP, Filter
from inosgm.ledger.journal import Row
from inosgm.owners import Label

if TYPE_CHECKING:
    from inosgm.ledger.accounts import Accounts


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


def adaptive_lines(accounts: "Accounts", filtering: Filter, rows: int) -> list[str]:
    """Return a table of the owners of an adaptive ledger that are nearest to their limit.

    What is left is shown twice: as the epsilon of one more Gaussian question about all records, and as the steps of one
    more training run of a usual kind.
    """
    state, spent = accounts.state(), accounts.spent_now()
    granted, planned = accounts.granted, accounts.planned_now()
    every = np.argsort(-spent / granted, kind="stable")
    shown = every[:rows]
    left = filtering.left(state, shown, accounts.grants)
    questions = filtering.as_question(left, accounts.delta[shown])
    steps = filtering.as_training_steps(left, state, shown, accounts.grants)
    head = f"{'granted':>10} {'spent':>10} {'if planned':>10} {'question':>10} {'steps':>8} {'delta':>10}"
    lines = [f"{'owner':<24} {head}"]
    for i, question, count in zip(shown.tolist(), questions.tolist(), steps.tolist(), strict=True):
        numbers = f"{granted[i]:>10.4g} {spent[i]:>10.4g} {planned[i]:>10.4g} {question:>10.4g} {count:>8}"
        lines.append(f"{accounts.labels[i]!s:<24.24} {numbers} {accounts.delta[i]:>10.2g}")
    lines += [f"... and {len(every) - rows} owners further from their limit"] * (len(every) > rows)
    rate, multiplier = TRAINING_STEP
    return [
        *lines,
        "",
        "adaptive: the bound holds if every charge is chosen by looking at earlier answers",
        "if planned: what the charges would have cost if all had been fixed in advance",
        f"left: the epsilon of one more question, or steps of one more run (rate {rate:g}, multiplier {multiplier:g})",
    ]


def unit_lines(unit: str) -> list[str]:
    """Return a line about the unit, unless it is one record that is added or removed."""
    return [f"unit {unit}: epsilons are {described(unit)}", ""] * (unit != ADD_REMOVE)


def charge_lines(charges: Sequence[Charge], rows: int) -> list[str]:
    """Return a table of the latest charges."""
    adaptive = any(charge.event is not None for charge in charges)
    lines = [f"{'charged':<26} {'steps':>8} {'event ' * adaptive}{'job':<18} note"]
    lines += ["nothing yet"] * (not charges)
    lines += [f"... {len(charges) - rows} earlier charges"] * (len(charges) > rows)
    for charge in charges[-rows:]:
        event = "" if charge.event is None else f"{charge.event:>5} "
        lines.append(
            f"{charge.time:<26} {charge.steps:>8} {event}{charge.job:<18.18} {charge.note}".rstrip()
            + f"  ({charge.by})" * bool(charge.by)
        )
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
