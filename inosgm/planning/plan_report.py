"""A plan as a table for people."""

from typing import TYPE_CHECKING

import numpy as np

from inosgm._internal import text
from inosgm.accounting.unique_rows import unique_rows

if TYPE_CHECKING:
    from inosgm.planning.plan import Plan


def plan_report(plan: "Plan", most: int = 40) -> str:
    """Return the table of Plan.report with at most so many lines of owners."""
    owners, records = plan.sizes.size, int(plan.sizes.sum())
    title = (
        f"{plan.steps} steps, expected batch {plan.expected_batch:g}, noise scale {plan.noise_scale:.4g}, "
        f"{owners} owner{'s' * (owners != 1)} with {records} records"
    )
    columns = [plan.sample_rates, plan.sensitivities, plan.noise_multipliers]
    names = ["sample rate", "sensitivity", "multiplier"]
    if plan.squared_norm_budget is not None:
        title += ", each of which pays for itself"
        columns.append(plan.squared_norm_budget)
        names.append("squared norm budget")
    forms = [".4g"] * len(columns)
    if plan.epsilon is not None and plan.delta is not None:
        title += f", accounted by {plan.accountant}"
        columns += [plan.epsilon, plan.spent(), plan.delta]
        names += ["epsilon granted", "used", "delta"]
        forms += [".4g", ".4g", ".3g"]
    first, kinds = unique_rows(columns)
    if owners <= most:
        first, kinds = np.arange(owners), np.arange(owners)
    else:
        first = first[np.lexsort([columns[i][first] for i in (0, 3 if len(columns) > 3 else 1)])]
    count = np.bincount(kinds)
    shown = first if first.size <= most else first[np.linspace(0, first.size - 1, most).round().astype(np.int64)]
    lines = [["owner", "records", *names]]
    for row in shown:
        alike = int(count[kinds[row]])
        who = str(plan.labels[row]) + (f" and {alike - 1} more" if alike > 1 else "")
        size = int(plan.sizes[kinds == kinds[row]].sum()) if alike > 1 else int(plan.sizes[row])
        lines.append(
            [
                who,
                str(size),
                *(format(column[row], form) for column, form in zip(columns, forms, strict=True)),
            ]
        )
    table = text.columns(lines[0], lines[1:])
    if first.size > shown.size:
        table.append(f"({shown.size} of {first.size} kinds of owners are shown)")
    return "\n".join([title, *table])
