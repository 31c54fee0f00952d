"""The sum of a statistic's next round over the rows of a table, in batches."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from inosgm.jobs.task import Stopped
from inosgm.ledger.cost import LedgerHook
from inosgm.mechanism.mechanism import require_sizes
from inosgm.mechanism.rank_window import PassTask, RankCounts
from inosgm.mechanism.streaming import CountingPass, OrderedSum
from inosgm.mechanism.thresholding import ThresholdedSums
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.files.columns import Form
from inosgm.statistics.queries import Responder, Stage
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.tables import LABELS, NUMBERS, BadTable, Fragment, Table
from inosgm.statistics.views import AS_READ, View


def sum_table(statistic: Statistic, table: Table, owners: Owners, *, view: View | None = None) -> OrderedSum:
    """Return the exact sum of the next round over a table, in as many passes as its tail needs. NOT PRIVATE.

    Args:
        statistic: The statistic.
        table: The records.
        owners: Their owners; the plan of the statistic may name them in another order.
        view: What the statistic sees of the records; the values of those that take part if not given.

    Raises:
        BadTable: for invalid records.
    """
    return statistic.sum_in_passes(lambda task: read_table(statistic, table, owners, view=view, task=task))


def read_table(
    statistic: Statistic,
    table: Table,
    owners: Owners,
    fragments: Iterable[Fragment] | None = None,
    *,
    view: View | None = None,
    task: PassTask | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> OrderedSum | RankCounts:
    """Return the sum or the counts of one pass over fragments of a table. NOT PRIVATE.

    Args:
        statistic: As for `sum_table`, like table, owners and view.
        table: The records.
        owners: Their owners.
        fragments: The fragments to read; all if not given.
        view: What the statistic sees.
        task: What the pass does; None for a sum in one pass.
        stopping: Returns whether to stop; called after every batch.

    Raises:
        BadTable: for invalid records.
        Stopped: if `stopping` returned true.
    """
    order = plan_positions(owners, statistic.plan)
    view = AS_READ if view is None else view
    form = view.form or (LABELS if statistic.of_labels else NUMBERS)
    if isinstance(statistic, ThresholdedSums):
        statistic.name_cells(_names_in(table, owners, form, view))
    part = statistic.start(task)
    if statistic.blind:
        statistic.fill(part, np.empty(0), np.empty(0, dtype=np.int64), 0)
        part.skip(statistic.plan.sizes)
        return _filled(part)
    for fragment in table.fragments if fragments is None else fragments:
        for batch in table.read(fragment, owners, form):
            values, kept = view.records(batch)
            _check(statistic, values, fragment, batch.first_id, "" if kept is None else " records that take part,")
            holders = order[batch.owners]
            if kept is None:
                statistic.fill(part, values, holders, batch.first_id)
            else:
                statistic.fill(part, values, holders[kept], batch.first_id + kept)
                part.skip(np.bincount(np.delete(holders, kept), minlength=statistic.plan.sizes.size))
            if stopping():
                raise Stopped
    return _filled(part)


def _filled(part: OrderedSum | CountingPass) -> OrderedSum | RankCounts:
    return part.counts if isinstance(part, CountingPass) else part


def _names_in(table: Table, owners: Owners, form: Form, view: View) -> list[str]:
    """Return all names that the records of a table have. NOT PRIVATE."""
    names: set[str] = set()
    for batch in table.batches(owners, form):
        names.update(map(str, np.asarray(view.records(batch)[0]).tolist()))
    return sorted(names)


def plan_positions(owners: Owners, plan: Plan) -> np.ndarray:
    """Return the position in a plan of each owner.

    Raises:
        ValueError: for owners that the plan does not name, or whose numbers of records are not those of the plan.
    """
    positions = {label: position for position, label in enumerate(plan.labels)}
    unknown = [label for label in owners.labels if label not in positions]
    if unknown:
        raise ValueError(f"owners must be those of the plan, got {unknown[0]!r}, which it does not name")
    order = np.array([positions[label] for label in owners.labels])
    counts = np.zeros(len(positions), dtype=np.int64)
    counts[order] = owners.sizes
    require_sizes(plan, counts)
    return order


def table_responder(
    table: Table, owners: Owners, *, ledger: LedgerHook | None, keys: Sequence[int | None]
) -> Responder:
    """Return a responder that answers stages from a table in this process, one batch at a time."""
    table.check(owners)

    def respond(number: int, stage: Stage, plan: Plan) -> Estimate:
        statistic = stage.statistic(plan, key=keys[number], ledger=ledger, **stage.parameters)
        for _ in range(plan.steps):
            statistic.observe(statistic.release(sum_table(statistic, table, owners, view=stage.view)).value)
        return statistic.answer()

    return respond


def _check(statistic: Statistic, values: np.ndarray, fragment: Fragment, first_id: int, what: str) -> None:
    """Check a batch before it is summed, so before anything is charged."""
    try:
        statistic.check(values)
    except (TypeError, ValueError) as error:  # the checks of statistics show no values
        raise BadTable(f"{error} (positions count{what} from {fragment.at(first_id - fragment.first_id)})") from None
