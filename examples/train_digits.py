"""INO-SGD in a page: handwritten digits, where the owners of 8 and 9 are ten times as strict as the others.

Compares IDP-SGD (no tail) with INO-SGD (half of the batch's sensitivity in the tail) at the same budgets.
"""

import torch

from inosgm import LinearTail, NoTail, Owners, Trainer, plan_scale
from inosgm.datasets import load
from inosgm.sgd.models import make

STRICT = (8, 9)


def owner_of(digit: int) -> str:
    """Return who owns a digit."""
    return "strict" if digit in STRICT else "open"


def main() -> None:
    """Train both ways and print the accuracy for each owner."""
    digits = load("digits")
    owners = Owners(of_record=[owner_of(y) for y in digits.y], epsilon={"open": 8.0, "strict": 0.8}, delta=1e-5)
    plan = plan_scale(owners, steps=100, expected_batch=400, clip_norm=0.3)
    held_out = (digits.x_test, digits.y_test, [owner_of(y) for y in digits.y_test])
    print(plan.report())
    for name, tail in (("IDP-SGD", NoTail()), ("INO-SGD", LinearTail(plan.tail_length(0.5)))):
        model = make("mlp", classes=10, input_shape=digits.input_shape, seed=0, widths=(32,), activation="tanh")
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
        trainer = Trainer(plan, model, torch.nn.CrossEntropyLoss(), optimizer, tail=tail)
        curve = trainer.fit(digits.x, digits.y, held_out=held_out, progress=False)
        print(f"\n{name}\n{curve}")


if __name__ == "__main__":
    main()
