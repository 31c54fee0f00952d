"""Strict owners, served: the class prior that a plan makes public corrects what the plan unbalances.

Ten owners hold one handwritten digit each and grant epsilon 0.1 (of digit 0) to 2 (of 9). A plan gives strict owners
little of every batch, so a model hardly learns their digits. How little is public, so `LogitAdjustment` takes it out of
the logits again at no cost in privacy: in the loss, after training, or both. Every method tries the same learning
rates, and, with the correction, the same strengths; half of the held-out images choose, the other half is reported.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from inosgm import LinearTail, LogitAdjustment, NoTail, Owners, Plan, Tail, Trainer, plan_scale, plan_uniform
from inosgm.datasets import load
from inosgm.training.models import make

RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
STRENGTHS = ((1.0, 0.0), (1.0, 0.5), (1.0, 1.0))
"""Strengths in the loss and after training: the correction tries these three pairs."""


@dataclass(frozen=True)
class Way:
    """A method: a plan, a tail, and whether logits are corrected."""

    plan: Plan
    tail: Tail = field(default_factory=NoTail)
    corrected: bool = False


def main(steps: int = 200, seeds: int = 3) -> None:
    """Tune every method alike, and show whom each serves."""
    images = load("mnist5k")
    owners = Owners(of_record=images.y, epsilon=dict(enumerate(np.linspace(0.1, 2, 10).tolist())), delta=1e-5)
    plan = plan_scale(owners, steps=steps, expected_batch=512, clip_norm=1.0)
    uniform = plan_uniform(owners, steps=steps, expected_batch=512, clip_norm=1.0)
    tail = LinearTail(plan.tail_length(0.7))
    ways = {
        "DP-SGD": Way(uniform),
        "IDP-SGD": Way(plan),
        "IDP-SGD, corrected": Way(plan, corrected=True),
        "INO-SGD": Way(plan, tail),
        "INO-SGD, corrected": Way(plan, tail, corrected=True),
    }
    choosing = np.arange(len(images.y_test)) % 2 == 0

    def recalls(way: Way, rate: float, strengths: tuple[float, float], key: int) -> tuple[np.ndarray, np.ndarray]:
        """Train once; return the recall of each digit, in the half that chooses and in the other half."""
        model = make("mlp", classes=10, input_shape=images.input_shape, seed=key, widths=(64,), activation="tanh")
        inside, after = (LogitAdjustment(way.plan, strength=strength) for strength in strengths)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        trainer = Trainer(way.plan, model, inside.loss(nn.CrossEntropyLoss()), optimizer, tail=way.tail, key=key)
        trainer.fit(images.x, images.y, progress=False)
        model.eval()
        with torch.no_grad():
            right = after.adjust(model(torch.as_tensor(images.x_test))).argmax(1).numpy() == images.y_test
        return tuple(
            np.array([right[half & (images.y_test == digit)].mean() for digit in range(10)])
            for half in (choosing, ~choosing)
        )

    print(f"share classified correctly of held-out images, mean of {seeds} runs")
    print(f"{'':20}{'all':>6}{'strictest':>11}{'worst':>7}   learning rate, strengths")
    for name, way in ways.items():
        grid = [(rate, pair) for rate in RATES for pair in (STRENGTHS if way.corrected else ((0.0, 0.0),))]
        best = max(grid, key=lambda point: recalls(way, *point, key=1000)[0].mean())
        found = np.mean([recalls(way, *best, key=key)[1] for key in range(seeds)], axis=0)
        rate, pair = best
        print(f"{name:20}{found.mean():6.3f}{found[0]:11.3f}{found.min():7.3f}   {rate:g}, {pair[0]:g} and {pair[1]:g}")


if __name__ == "__main__":
    main()
