"""INO-SGD in a page: handwritten digits, ten owners with a digit each, who grant epsilon 1 (of digit 0) to 8 (of 9).

IDP-SGD and INO-SGD spend the same budgets; INO-SGD gives up 70 % of a batch's sensitivity, softly, where losses are
smallest. What the strict owners lose under IDP-SGD, they get back in part.
"""

import numpy as np
import torch

from inosgm import LinearTail, NoTail, Owners, Trainer, plan_scale
from inosgm.datasets import load
from inosgm.sgd.models import make


def main() -> None:
    """Train both ways and print the accuracy for each owner."""
    digits = load("digits")
    epsilon = dict(enumerate(np.linspace(1, 8, 10).tolist()))
    owners = Owners(of_record=digits.y, epsilon=epsilon, delta=1e-5)
    plan = plan_scale(owners, steps=200, expected_batch=500, clip_norm=0.2)
    print(plan.report())
    for name, tail in (("IDP-SGD", NoTail()), ("INO-SGD", LinearTail(plan.tail_length(0.7)))):
        model = make("mlp", classes=10, input_shape=digits.input_shape, seed=0, widths=(32,), activation="tanh")
        optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
        trainer = Trainer(plan, model, torch.nn.CrossEntropyLoss(), optimizer, tail=tail)
        curve = trainer.fit(digits.x, digits.y, held_out=(digits.x_test, digits.y_test, digits.y_test), progress=False)
        print(f"\n{name}: {curve}")


if __name__ == "__main__":
    main()
