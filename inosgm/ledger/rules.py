"""The rules that a charge must satisfy: its unit, its job's earlier charges, and coins that are used once."""

from collections.abc import Sequence

from inosgm.accounting.units import other_unit
from inosgm.ledger.accounts import Accounts
from inosgm.ledger.charges import merged, uncovered
from inosgm.ledger.cost import Cost
from inosgm.ledger.journal import Row
from inosgm.ledger.refusals import JobMismatch


def require_cost(cost: Cost, unit: str) -> None:
    """Raise unless this is a `Cost` in the unit of the ledger."""
    if not isinstance(cost, Cost):
        raise TypeError(
            f"a ledger is charged with Cost, got {type(cost).__name__}: plan.cost() and course.costs() say what "
            "plans cost. The results of inosgm.methods.pdp_published are not costs and are never accepted: "
            "published PDP-SGD charges a round only to the records that it has sampled, and counts the "
            "amplification by that same sampling as well, which promises more than holds from the second round on"
        )
    if cost.unit != unit:
        raise ValueError(
            f"costs must be in the unit of the ledger: {other_unit(cost.unit, unit)}; charge it to a ledger "
            "of its own unit: Ledger(path, owners=..., accountant=...) with owners and an accountant of that unit"
        )


def uncharged_steps(accounts: Accounts, cost: Cost, digest: str, before: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the steps of a cost that neither the ledger nor the rows `before`, of the same charge, pay for.

    Raises:
        JobMismatch: if the job has another cost or fingerprint, or is not repeatable and has a step charged before.
    """
    job = accounts.jobs.get(cost.job)
    known = [(job.cost, job.fingerprint)] if job is not None else []
    for other, fingerprint in [*known, *((row["cost"], row["fingerprint"]) for row in before)]:
        if (other, fingerprint) != (digest, cost.fingerprint):
            what = "another cost" if other != digest else "other data or another configuration"
            raise JobMismatch(
                f"job {cost.job!r} was charged before with {what}: its noise must not be used twice; a "
                "retry repeats the job exactly, anything else needs a job (or a key) of its own"
            )
    asked, added = (cost.step, cost.step + cost.steps), [span for row in before for span in row["spans"]]
    if not cost.repeatable:
        # `charged` includes steps that were undone: their values may exist, and a second one would have new noise.
        fresh = uncovered(*asked, merged([*(job.charged if job is not None else []), *added]))
        if fresh != [asked]:
            step = next(step for step in range(*asked) if not any(start <= step < stop for start, stop in fresh))
            raise JobMismatch(
                f"step {step} of job {cost.job!r} was charged before, and the job is not repeatable: it has no "
                "key, so a second value would have other noise, which nobody has paid for. Release each step once, "
                "from the object and in the process that was charged for it. A charge that was interrupted before "
                "its value existed stays charged: make a new mechanism, or a Cost with a new job, and charge that. "
                "With a key, retries are free"
            )
    return uncovered(*asked, merged([*(job.spans if job is not None else []), *added]))


def new_coins(accounts: Accounts, cost: Cost, before: Sequence[Row]) -> Row:
    """Return the entry of a row for the coins of a cost; empty if it has none, or the ledger knows them already.

    Raises:
        JobMismatch: if the step had other coins, or another step or job has used these.
    """
    job = accounts.jobs.get(cost.job)
    for step, coins in ({} if job is None else job.coins).items():
        if coins != cost.coins and cost.step <= step < cost.step + cost.steps:
            raise JobMismatch(
                f"step {step} of job {cost.job!r} was charged before for a batch of other coins: a retry repeats "
                "the sum exactly, coins included; anything else needs a job (or a key) of its own"
            )
    if not cost.coins:
        return {}
    added = {row["coins"][1]: (row["job"], row["coins"][0]) for row in before if "coins" in row}
    used = added.get(cost.coins, accounts.coins.get(cost.coins))
    if used == (cost.job, cost.step):
        return {}
    if used is not None:
        raise JobMismatch(
            f"the coins of this batch (digest {cost.coins}) were used by job {used[0]!r}: coins may be used once, "
            "because two releases of one batch are not the two independent ones that would be charged. Make "
            "another sum, with coins of its own; a retry needs the key of that job"
        )
    return {"coins": [cost.step, cost.coins]}
