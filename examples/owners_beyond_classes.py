"""Strict owners that are not classes: what helps them where logits cannot be corrected by a class prior.

Three tasks on the same images, each with owners of which the strictest grants epsilon 0.1 and the others up to 2.
*Regression*: ten owners hold a digit each, and the model predicts its value. *Multi-label*: the same owners, and the
model predicts four properties of a digit. *Other images*: two owners hold all digits alike, and those of the strict
one are turned by 90 degrees, so both have the same classes and different records. Every method tries the same learning
rates; half of the held-out images choose, the other half is reported.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from inosgm import (
    AdaptiveShares,
    LinearTail,
    NoTail,
    Owners,
    Plan,
    Tail,
    Trainer,
    plan_asc,
    plan_blend,
    plan_sample,
    plan_scale,
    plan_uniform,
)
from inosgm.datasets import load

RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
EVERY = 10
"""Steps between the releases of owners' mean losses, for ASC."""

PROPERTIES = np.array([[d % 2 == 0, d >= 5, d in (0, 4, 6, 8, 9), d in (2, 3, 5, 7)] for d in range(10)], np.float32)
"""Even, at least 5, has a hole, prime: four labels of each digit."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Records, owners, a loss, and a score of each prediction (more is better)."""

    x: np.ndarray
    y: np.ndarray
    owners: np.ndarray
    epsilon: dict[int, float]
    x_test: np.ndarray
    y_test: np.ndarray
    owners_test: np.ndarray
    outputs: int
    loss: nn.Module
    score: Callable[[np.ndarray, np.ndarray], np.ndarray]


def tasks() -> dict[str, Task]:
    """Return the three tasks."""
    images = load("mnist5k")
    ten = dict(enumerate(np.linspace(0.1, 2, 10).tolist()))
    x, x_test = (part.reshape(-1, 28, 28) for part in (images.x, images.x_test))

    def by_digit(target: Callable[[np.ndarray], np.ndarray], **more: object) -> Task:
        y, y_test = target(images.y), target(images.y_test)
        places = {"owners": images.y, "owners_test": images.y_test, "epsilon": ten}
        return Task(x=x, x_test=x_test, y=y, y_test=y_test, **places, **more)

    strict, strict_test = (np.arange(len(y)) % 5 == 0 for y in (images.y, images.y_test))  # a fifth of each digit

    def turned(part: np.ndarray, who: np.ndarray) -> np.ndarray:
        return np.where(who[:, None, None], np.rot90(part, axes=(1, 2)), part).copy()

    return {
        "regression": by_digit(
            lambda y: ((y - 4.5) / 3).astype(np.float32)[:, None],
            outputs=1,
            loss=nn.MSELoss(),
            score=lambda made, y: -np.abs(made - y)[:, 0] * 3,  # minus the error, in digits
        ),
        "multi-label": by_digit(
            lambda y: PROPERTIES[y],
            outputs=4,
            loss=nn.BCEWithLogitsLoss(),
            score=lambda made, y: ((made > 0) == (y > 0)).mean(axis=1),
        ),
        "other images": Task(
            x=turned(x, strict),
            y=images.y,
            owners=1 - strict,
            epsilon={0: 0.1, 1: 2.0},
            x_test=turned(x_test, strict_test),
            y_test=images.y_test,
            owners_test=1 - strict_test,
            outputs=10,
            loss=nn.CrossEntropyLoss(),
            score=lambda made, y: made.argmax(axis=1) == y,
        ),
    }


def methods(owners: Owners, steps: int) -> dict[str, tuple[Plan, Tail]]:
    """Return plans and tails by name."""
    asked = {"steps": steps, "expected_batch": 500, "clip_norm": 1.0}
    scale = plan_scale(owners, **asked)
    return {
        "DP-SGD": (plan_uniform(owners, **asked), NoTail()),
        "IDP-SGD, scale": (scale, NoTail()),
        "IDP-SGD, sample": (plan_sample(owners, **asked), NoTail()),
        "IDP-SGD, blend": (plan_blend(owners, weight=0.5, **asked), NoTail()),
        "INO-SGD, scale": (scale, LinearTail(scale.tail_length(0.7))),
        "ASC": (plan_asc(owners, every=EVERY, **asked), NoTail()),
        "lower 0.5": (plan_scale(lowered(owners, 0.5), **asked), NoTail()),
        "lower 0.9": (plan_scale(lowered(owners, 0.9), **asked), NoTail()),
    }


def lowered(owners: Owners, share: float) -> Owners:
    """Return owners who lower their epsilon by a share of what lies between it and the strictest (`plan.lower`)."""
    epsilon = owners.epsilon - share * (owners.epsilon - owners.epsilon.min())
    of_record = np.array(owners.labels)[owners.of_record]
    return Owners(of_record=of_record, epsilon=dict(zip(owners.labels, epsilon.tolist(), strict=True)), delta=1e-5)


def served(task: Task, plan: Plan, tail: Tail, rate: float, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Train once; return the mean score of each owner, in the half that chooses and in the other half."""
    torch.manual_seed(key)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.Tanh(), nn.Linear(32, task.outputs))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    steering = None if plan.choices is None else AdaptiveShares(plan, every=EVERY, temperature=1.0)
    trainer = Trainer(plan, model, task.loss, optimizer, owners=task.owners, tail=tail, steering=steering, key=key)
    trainer.fit(task.x, task.y, progress=False)
    with torch.no_grad():
        score = task.score(model.eval()(torch.as_tensor(task.x_test)).numpy(), task.y_test)
    first = np.arange(len(score)) % 2 == 0
    return tuple(
        np.array([score[half & (task.owners_test == owner)].mean() for owner in task.epsilon])
        for half in (first, ~first)
    )


def main(steps: int = 150, seeds: int = 3, rates: tuple[float, ...] = RATES) -> None:
    """Tune every method alike, and show whom each serves."""
    for name, task in tasks().items():
        owners = Owners(of_record=task.owners, epsilon=task.epsilon, delta=1e-5)
        print(f"{name:18}{'all owners':>11}{'strictest':>11}{'worst':>8}   learning rate")
        for method, way in methods(owners, steps).items():
            chosen = {rate: served(task, *way, rate, key=1000)[0].mean() for rate in rates}
            best = max(chosen, key=chosen.__getitem__)
            found = np.mean([served(task, *way, best, key=key)[1] for key in range(seeds)], axis=0)
            print(f"{method:18}{found.mean():11.3f}{found[0]:11.3f}{found.min():8.3f}   {best:g}", flush=True)


if __name__ == "__main__":
    main()
