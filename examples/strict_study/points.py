"""The points of the study: the numbers of a method that tuning chooses."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from examples.strict_study.learnt import LOSS_BOUND, plan_rest
from examples.strict_study.tasks import Grid, Task
from inosgm import (
    BetaTail,
    HardTail,
    LinearTail,
    LogitAdjustment,
    Owners,
    Plan,
    StepTail,
    Tail,
    plan_blend,
    plan_sample,
    plan_scale,
    plan_uniform,
)
from inosgm.methods.asc import plan_asc
from inosgm.methods.baselines import plan_lowered, plan_undersampled

RATES = tuple(float(f"{digit}e{power}") for power in range(-4, 5) for digit in (1, 3))
TAILS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
STRENGTHS = tuple(half / 2 for half in range(9))
TEMPERATURES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STEPS = (0.5, 0.25, 0.125, 0.0)
"""The levels of a tail in steps (App. C.2.5 of the INO-SGD paper)."""
AFTER = (*(quarter / 4 for quarter in range(17)), 5.0, 6.0, 8.0)
"""Strengths after training that every run counts: they need no run of their own."""

EVERY = 20
"""Steps between the releases of losses that ASC follows."""


@dataclass(frozen=True, order=True)
class Point:
    """One way to train: a plan and the numbers that go with it.

    Attributes:
        plan: "uniform", "scale", "sample" or "asc"; or "blend W", "lowered W", "undersampled W" and "learnt W" with a
            number W: a weight, or a share of a budget or of the records.
        rate: The learning rate.
        tail: The fraction in the tail; 0 is none.
        inside: The strength of the correction in the loss.
        temperature: Of ASC.
        averaging: The decay of an exponential average of the parameters, which replaces them in the end; 0 is none.
        leveled: Whether the offsets count the mass that the tail takes as taken from the largest owners.
        form: The form of the tail: "linear", "hard", "steps", or "beta A B" with two numbers.
        order: What the tail follows: "descending" losses, "ascending" ones, or "random".
        clip: What gradients are clipped to before they are scaled to the sensitivity of their owner: "own W" is W times
            that sensitivity, "common W" is W for all owners. A gradient within it grows.
        views: Whether a gradient is the mean over several views of a record.
    """

    plan: str
    rate: float
    tail: float = 0.0
    inside: float = 0.0
    temperature: float = 0.0
    averaging: float = 0.0
    leveled: bool = False
    form: str = "linear"
    order: str = "descending"
    clip: str = "own 1"
    views: bool = False


@dataclass(frozen=True)
class Method:
    """A method of the study, which has points.

    Attributes:
        name: What tables call it.
        plan: The plan of its points.
        tailed: Whether it has a tail.
        corrected: Whether it has strengths, in the loss and after.
    """

    name: str
    plan: str
    tailed: bool = False
    corrected: bool = False

    def start(self, grid: Grid) -> list[Point]:
        """Return the points that tuning starts from; ASC, whose runs share no batches, starts from one strength."""
        strengths = grid.strengths[:1] if self.plan == "asc" else grid.strengths
        return [
            Point(self.plan, rate, tail, inside, temperature)
            for rate, tail, inside, temperature in product(
                grid.rates,
                grid.tails if self.tailed else (0.0,),
                strengths if self.corrected else (0.0,),
                grid.temperatures if self.plan == "asc" else (0.0,),
            )
        ]

    def neighbours(self, point: Point) -> list[Point]:
        """Return the points next to a point along each of the method's numbers."""
        axes = {"rate": RATES}
        if self.tailed:
            axes["tail"] = TAILS
        if self.corrected:
            axes["inside"] = STRENGTHS
        if self.plan == "asc":
            axes["temperature"] = TEMPERATURES
        found = []
        for name, values in axes.items():
            place = values.index(getattr(point, name))
            found += [replace(point, **{name: values[at]}) for at in (place - 1, place + 1) if 0 <= at < len(values)]
        return found


def methods(task: Task) -> list[Method]:
    """Return the methods of a task, each without and with the correction.

    Where classes are equally large, the plan of DP-SGD implies a flat prior: its correction changes nothing.
    """
    found = [Method("DP-SGD", "uniform")]
    for plan in task.plans:
        found += [Method(f"IDP-SGD ({plan.upper()})", plan), Method(f"INO-SGD ({plan.upper()})", plan, tailed=True)]
    if task.asc:
        found.append(Method("ASC", "asc"))
    forms = [(method, replace(method, name=f"{method.name} + c", corrected=True)) for method in found]
    return [form for pair in forms for form in pair if task.unequal or form != forms[0][1]]


def plan_of(name: str, owners: Owners, task: Task) -> Plan:
    """Make the plan of a point."""
    request: dict[str, Any] = {
        "steps": task.steps,
        "expected_batch": task.expected_batch,
        "clip_norm": task.clip_norm,
    }
    kind, _, number = name.partition(" ")
    if kind == "blend":
        return plan_blend(owners, weight=float(number), **request)
    if kind == "lowered":
        return plan_lowered(owners, share=float(number), method="scale", **request)
    if kind == "learnt":
        return plan_rest(owners, float(number), task)
    if kind == "undersampled":
        return plan_undersampled(owners, share=float(number), method="scale", **request)
    if kind == "asc":
        return plan_asc(owners, every=EVERY, loss_bound=LOSS_BOUND, **request)
    return {"uniform": plan_uniform, "scale": plan_scale, "sample": plan_sample}[kind](owners, **request)


def tail_of(point: Point, plan: Plan) -> Tail:
    """Make the tail of a point."""
    length = plan.tail_length(point.tail)
    form, *numbers = point.form.split()
    if form == "beta":
        return BetaTail(*map(float, numbers), length=length)
    if form == "steps":
        return StepTail(STEPS, length / len(STEPS))
    return HardTail(length) if form == "hard" else LinearTail(length)


def clip_norms(point: Point, bounds: np.ndarray) -> np.ndarray:
    """Return what gradients are clipped to, for the sensitivities of their owners.

    >>> clip_norms(Point("scale", 1.0, clip="own 0.5"), np.array([1.0, 2.0]))
    array([0.5, 1. ])
    >>> clip_norms(Point("scale", 1.0, clip="common 0.5"), np.array([1.0, 2.0]))
    array([0.5, 0.5])
    """
    kind, number = point.clip.split()
    return float(number) * (bounds if kind == "own" else np.ones_like(bounds))


def log_prior(plan: Plan, shares: np.ndarray, point: Point) -> np.ndarray:
    """Return the offsets of strength 1 of a point."""
    if not point.leveled:
        return LogitAdjustment(plan, shares).offsets
    mass = (plan.sample_rates * plan.sizes * plan.sensitivities) @ shares
    kept = level(mass, point.tail / 2 * mass.sum())  # a linear tail takes half of its length
    return np.asarray(np.log(kept / kept.sum()))


def level(mass: np.ndarray, taken: float) -> np.ndarray:
    """Return masses cut at one height, so that together they lose what is taken.

    >>> level(np.array([1.0, 2.0, 5.0]), 4.0)
    array([1. , 1.5, 1.5])
    """
    low, high = 0.0, float(mass.max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (mass - np.minimum(mass, middle)).sum() > taken else (low, middle)
    return np.minimum(mass, high)
