"""The sum of a statistic's next round over the rows of a table, batch by batch."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from inosgm.jobs.task import Stopped
from inosgm.ledger.cost import LedgerHook
from inosgm.mechanism.mechanism import require_sizes
from inosgm.mechanism.streaming import OrderedSum
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.queries import Respond, Stage
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.tables import LABELS, NUMBERS, BadTable, Fragment, Table


def summed(
    statistic: Statistic,
    table: Table,
    owners: Owners,
    fragments: Iterable[Fragment] | None = None,
    *,
    stopping: Callable[[], bool] = lambda: False,
) -> OrderedSum:
    """Return the exact sum of the next round over fragments of a table. NOT PRIVATE.

    Args:
        statistic: What is asked.
        table: The records.
        owners: Whose they are; the plan of the statistic may name them in another order.
        fragments: Which of them; all if not given.
        stopping: Is asked after every batch.

    Raises:
        BadTable: for records that cannot be used.
        Stopped: if it was asked to stop.
    """
    order = places_of(owners, statistic.plan)
    form = LABELS if statistic.of_labels else NUMBERS
    total = statistic.partial()
    for fragment in table.fragments if fragments is None else fragments:
        for values, holders, first_id in table.read(fragment, owners, form):
            _check(statistic, values, fragment, first_id)
            statistic.fill(total, values, order[holders], first_id)
            if stopping():
                raise Stopped
    return total


def places_of(owners: Owners, plan: Plan) -> np.ndarray:
    """Return the position in a plan of each owner.

    Raises:
        ValueError: for owners that the plan does not name, or whose numbers of records are not those of the plan.
    """
    places = {label: place for place, label in enumerate(plan.labels)}
    unknown = [label for label in owners.labels if label not in places]
    if unknown:
        raise ValueError(f"owners must be those of the plan, got {unknown[0]!r}, which it does not name")
    order = np.array([places[label] for label in owners.labels])
    counts = np.zeros(len(places), dtype=np.int64)
    counts[order] = owners.sizes
    require_sizes(plan, counts)
    return order


def responding(table: Table, owners: Owners, *, ledger: LedgerHook | None, keys: Sequence[int | None]) -> Respond:
    """Return what answers stages of a question, with a key for each, in this process, a batch at a time."""
    table.check(owners)

    def respond(number: int, stage: Stage, plan: Plan) -> Estimate:
        statistic = stage.statistic(plan, key=keys[number], ledger=ledger, **stage.parameters)
        for _ in range(plan.steps):
            statistic.observe(statistic.release(summed(statistic, table, owners)).value)
        return statistic.estimate()

    return respond


def _check(statistic: Statistic, values: np.ndarray, fragment: Fragment, first_id: int) -> None:
    """Let a statistic look at a batch before it is summed, so before anything is charged."""
    try:
        statistic.check(values)
    except (TypeError, ValueError) as error:  # whose words show no values
        raise BadTable(f"{error} (positions count from {fragment.at(first_id - fragment.first_id)})") from None
