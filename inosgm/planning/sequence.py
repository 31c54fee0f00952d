"""A sequence of plans that are followed one after another, all of them known before the first step."""

from dataclasses import dataclass

import numpy as np

from inosgm._internal.text import MAX_ROWS, columns
from inosgm.ledger.cost import Cost
from inosgm.planning.plan import Plan


@dataclass(frozen=True)
class PlanSequence:
    """Stages of a run, each with a plan of its own.

    **Guarantee.** That of each plan; since none of them depends on what is released, costs compose, and the last plan,
    whose `past` holds the others, says what all of them cost together.

    Args:
        plans: In their order, of the same owners. Each counts those before it as its past.

    Raises:
        ValueError: for no plans, for plans of different owners, and for a past that leaves a stage out.

    >>> first = Plan(sample_rates=[0.5], sensitivities=[1], sizes=[10], noise_scale=2, steps=3)
    >>> second = Plan(sample_rates=[1.0], sensitivities=[1], sizes=[10], noise_scale=4, steps=2, past=[first.segment()])
    >>> PlanSequence((first, second)).steps
    5
    """

    plans: tuple[Plan, ...]

    def __post_init__(self) -> None:
        if not self.plans:
            raise ValueError("plans must hold one at least")
        done = self.plans[0].past
        for plan in self.plans:
            if plan.labels != self.plans[0].labels or plan.unit != self.plans[0].unit:
                raise ValueError("plans must be of the same owners, in the same order, and of the same unit")
            if plan.past != done:
                raise ValueError("plans must count those before them as their past")
            done = (*done, plan.segment(), *(other.segment() for other in plan.side_releases))

    @property
    def first(self) -> Plan:
        """The plan that is followed first."""
        return self.plans[0]

    @property
    def last(self) -> Plan:
        """The plan that is followed last: its `spent()` is what everything costs."""
        return self.plans[-1]

    @property
    def steps(self) -> int:
        """How many steps there are in all stages."""
        return sum(plan.steps for plan in self.plans)

    def report(self) -> str:
        """Return a table for people: the stages, and what everything costs each owner. Of very many, the first."""
        if len(self.plans) == 1:
            return self.first.report()
        rows = [
            [
                f"{number} of {len(self.plans)}",
                str(plan.steps),
                f"{plan.expected_batch:.4g}",
                f"{plan.noise_scale:.4g}",
                f"{np.count_nonzero(plan.sample_rates)} of {plan.sizes.size}",
            ]
            for number, plan in enumerate(self.plans, start=1)
        ]
        units = f"{int(self.first.sizes.sum())} {self.first.unit_name}s"
        lines = [f"{self.steps} steps in {len(self.plans)} stages, {units}"]
        lines += columns(["stage", "steps", "expected batch", "noise scale", "owners that take part"], rows)
        last = self.last
        if last.epsilon is None or last.delta is None:
            return "\n".join(lines)
        numbers = zip(last.labels, last.sizes.tolist(), last.epsilon, last.spent(), last.delta, strict=True)
        owners = [[str(label), str(size), *(f"{value:.4g}" for value in row)] for label, size, *row in numbers]
        lines += ["", *columns(["owner", f"{last.unit_name}s", "epsilon granted", "used", "delta"], owners[:MAX_ROWS])]
        return "\n".join([*lines, *[f"({len(owners) - MAX_ROWS} more owners)"] * (len(owners) > MAX_ROWS)])

    def costs(self, *, job: str, note: str = "") -> tuple[Cost, ...]:
        """Return what the stages cost, and their side releases.

        Each has noise of its own, and so is a job of its own: `job`, `job/1`, `job/2` and so on. Under one name a
        ledger would take stages that cost the same for one that is tried again, and charge it once.
        """
        every = [
            told
            for plan in self.plans
            for told in ((plan, note), *((other, side_release_note(note)) for other in plan.side_releases))
        ]
        names = [job, *(f"{job}/{place}" for place in range(1, len(every)))]
        return tuple(plan.cost(job=name, note=about) for (plan, about), name in zip(every, names, strict=True))


def side_release_note(note: str) -> str:
    """Return the note of a side release in a ledger.

    >>> side_release_note("run.yaml, seed 0")
    'run.yaml, seed 0, losses of groups'
    """
    return ", ".join(filter(None, (note, "losses of groups")))


Course = PlanSequence
"""The name that earlier versions had for `PlanSequence`."""
