"""What an answer would cost whom, and how exact it would be, without looking at values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inosgm.statistics.answering import run_stages
from inosgm.statistics.estimate import Estimate, cost_of, shown_error
from inosgm.statistics.groups import GroupMoments
from inosgm.statistics.queries import Query, Stage

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger
    from inosgm.planning.plan import Plan


def rehearsed(query: Query, parameters: Mapping[str, Any], plans: Sequence["Plan"], columns: int) -> Estimate | None:
    """Return the answer as it would be if every released sum were 0; None if its error depends on the data altogether.

    A sum is 0 if values lie in the middle of their bounds, half of the records satisfy a condition, and so on: the
    error of an answer that does not depend on the data is that of every answer, and of another one a typical error.
    """

    def respond(number: int, stage: Stage, plan: "Plan") -> Estimate:
        statistic = stage.statistic(plan, **stage.parameters)
        total = statistic.partial()
        if statistic.of_labels and stage.view is None:
            empty: np.ndarray = np.empty(0, dtype=object)
        else:
            empty = np.empty(0 if columns == 1 else (0, columns))
        statistic.fill(total, empty, np.empty(0, dtype=np.int64), 0)
        zeros = np.zeros_like(total.exact())
        if isinstance(statistic, GroupMoments):  # groups of one size
            zeros[:, 1] = statistic.total / np.sqrt(2) / len(statistic.keys)
        return statistic.after([zeros]).answer()

    if max(plan.steps for plan in plans) > 1:  # where later rounds look depends on the data
        return None

    try:
        with np.errstate(all="ignore"):
            answer = run_stages(query, parameters, plans, respond)
    except (ArithmeticError, ValueError, TypeError, AttributeError, np.linalg.LinAlgError):
        return None
    return answer if np.isfinite(answer.standard_error).all() else None


def error_of(query: Query, parameters: Mapping[str, Any], plans: Sequence["Plan"], columns: int) -> dict[str, Any]:
    """Return the error of an answer; if that is not known before, None and what it depends on."""
    answer = None if query.risk is not None else rehearsed(query, parameters, plans, columns)
    if answer is not None:
        return {
            "standard_error": np.asarray(answer.standard_error).tolist(),
            "bias_bound": np.asarray(answer.bias_bound).tolist(),
        }
    if query.risk is not None:
        why = "which names of groups are released"
    elif max(plan.steps for plan in plans) > 1:
        why = "what its earlier rounds release"
    else:
        why = "the data"
    return {"standard_error": None, "bias_bound": None, "error_depends_on": why}


def costs(plans: Sequence["Plan"], ledger: "Ledger | None") -> list[dict[str, Any]]:
    """Return the cost of plans to each owner, and what is left afterwards at least."""
    left = None if ledger is None else ledger.remaining()
    return [
        {"owner": owner, "epsilon": epsilon, **({} if left is None else {"left": max(left[owner] - epsilon, 0.0)})}
        for owner, epsilon in (cost_of(plans) or {}).items()
    ]


def text_of_costs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the costs of a dry run for people."""
    from inosgm._internal.text import MAX_ROWS, columns

    some, has_left = rows[:MAX_ROWS], bool(rows) and "left" in rows[0]
    more = len(rows) - len(some)
    return [
        "dry run: no value was read, nothing was released and nothing was charged",
        "it would cost at most",
        *columns(
            ["owner", "epsilon", *(["left at least"] if has_left else [])],
            [
                [str(row["owner"]), f"{row['epsilon']:.4g}", *([f"{row['left']:.4g}"] if has_left else [])]
                for row in some
            ],
        ),
        *([f"({more} more owners)"] if more else []),
    ]


def exactness(error: Mapping[str, Any]) -> str:
    """Return the error of an answer for people."""
    if error["standard_error"] is None:
        return f"the standard error depends on {error['error_depends_on']}; the answer will say it"
    largest, most = float(np.max(error["standard_error"])), float(np.max(error["bias_bound"]))
    return f"standard error about {shown_error(largest)}" + (f", bias at most {shown_error(most)}" if most else "")
