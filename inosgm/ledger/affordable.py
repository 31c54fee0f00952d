"""The check that a ledger can pay for jobs before the first of them starts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from inosgm.ledger.cost import Cost, LedgerHook
from inosgm.ledger.ledger import Ledger
from inosgm.ledger.refusals import BudgetExceeded

Costs = tuple[Cost, ...]
"""The costs of one job: one for every stage, and one for each side release."""


def require_affordable(ledger: LedgerHook | None, jobs: Sequence[Costs]) -> None:
    """Raise unless a ledger can pay for all jobs; nothing is charged.

    Steps that were charged before are not counted again. They are recognised by the name of the cost's job, or, if a
    store has charged them, by their order under the name of the job as fingerprint.

    Args:
        ledger: The ledger that will be charged. A hook that is no `Ledger` cannot be rehearsed, and refuses later.
        jobs: The costs of each job.

    Raises:
        BudgetExceeded: if an owner cannot pay; for several jobs, a note says how many of them the ledger can pay for.
        ValueError: if costs are in another unit than the ledger.
    """
    if not isinstance(ledger, Ledger):
        return
    unpaid = _unpaid(ledger, jobs)

    def refusal(count: int) -> BudgetExceeded | None:
        trial = ledger.rehearsal()
        try:
            trial.charge(*_added(unpaid[:count]))  # at once: what is fixed in advance together is one event
        except BudgetExceeded as error:
            return error
        return None

    error = refusal(len(unpaid))
    if error is None:
        return
    if len(jobs) > 1:
        fits, too_many = 0, len(unpaid)
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            fits, too_many = (middle, too_many) if refusal(middle) is None else (fits, middle)
        error.add_note(
            f"the ledger can pay for {fits} of the {len(unpaid)} runs that it was not charged for yet: ask for fewer "
            "runs, let each ask for less (a smaller epsilon in the configuration), or grant more in the ledger"
        )
    raise error


def _unpaid(ledger: Ledger, jobs: Sequence[Costs]) -> list[Costs]:
    """Return the costs of jobs that a ledger was not charged for."""
    history = ledger.history()
    stages = Counter(fingerprint for fingerprint, _ in {(charge.fingerprint, charge.job) for charge in history})
    steps = Counter[str]()
    for charge in history:
        steps[charge.job] += charge.steps
    rest = [
        tuple(cost.at(0, left) for cost in costs[stages[costs[0].job] :] if (left := cost.steps - steps[cost.job]) > 0)
        for costs in jobs
    ]
    return [costs for costs in rest if costs]


def _added(jobs: Iterable[Costs]) -> list[Cost]:
    """Return the costs of all jobs; those of equal jobs are added up."""
    return [
        replace(cost.at(0, cost.steps * many), job=f"{kind}/{stage}")
        for kind, (costs, many) in enumerate(count_equal(jobs).items())
        for stage, cost in enumerate(costs)
    ]


@contextmanager
def fixed_together(ledger: LedgerHook | None, jobs: Sequence[Costs]) -> Iterator[None]:
    """Raise unless a ledger can pay for all jobs; within this block, an adaptive ledger composes them as one event.

    Nothing is charged before the first of them is.
    """
    require_affordable(ledger, jobs)
    with ledger.together(*_added(_unpaid(ledger, jobs))) if isinstance(ledger, Ledger) else nullcontext():
        yield


def count_equal(jobs: Iterable[Costs]) -> dict[Costs, int]:
    """Return the number of jobs by their costs; the names of jobs do not matter."""
    first: dict[object, Costs] = {}
    counts: dict[Costs, int] = {}
    for costs in jobs:
        same = first.setdefault(tuple(map(_content, costs)), costs)
        counts[same] = counts.get(same, 0) + 1
    return counts


def _content(cost: Cost) -> object:
    arrays = (cost.sample_rates, cost.noise_multipliers)
    return cost.labels, cost.unit, cost.steps, *((array.shape, array.tobytes()) for array in arrays)
