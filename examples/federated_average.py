"""Federated averaging in a page: clients with six images of a digit each, who grant epsilon 2 (of digit 0) to 8 (of 9).

What a client grants covers all that it reports, in all rounds: updates of a logistic regression, and its loss. Whoever
grants little weighs little, so the average serves these clients badly. With an order, clients with small losses count
less in every round, and those who are worst off get back a part of what they lost, for the same budgets.
"""

import numpy as np
from sklearn.datasets import load_digits

from inosgm import Ledger, Owners, plan_scale
from inosgm.statistics import FederatedAverage

ROUNDS, IMAGES, LONGEST, RATE = 15, 6, 0.1, 60.0


def clients() -> tuple[np.ndarray, np.ndarray]:
    """Return images of 4 x 4 pixels and a constant (client, image, pixel), and their digits (client, image)."""
    table = load_digits()
    pixels = table.images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) / 16 - 0.3
    by_digit = np.argsort(table.target, kind="stable")
    held = by_digit[: by_digit.size // IMAGES * IMAGES].reshape(-1, IMAGES)
    return np.insert(pixels, 16, 0.5, axis=1)[held], table.target[held]


def reports(model: np.ndarray, images: np.ndarray, digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what clients report: the direction in which each would change the model, and its loss."""
    scores = np.exp(images @ model)
    chances = scores / scores.sum(axis=2, keepdims=True)
    truth = np.eye(10)[digits]
    updates = np.einsum("cip,cid->cpd", images, truth - chances) / IMAGES
    return updates.reshape(len(images), -1), -np.log((truth * chances).sum(axis=2)).mean(axis=1)


def main() -> None:
    """Train with and without an order, and compare the clients that are worst off."""
    images, digits = clients()
    owners = Owners(of_record=np.arange(len(images)), epsilon=np.linspace(2, 8, 10)[digits[:, 0]], delta=1e-3)
    plan = plan_scale(owners, steps=ROUNDS, expected_batch=len(images), clip_norm=1.0)
    for name, fraction in (("without an order", 0.0), ("largest losses first", 0.8)):
        ledger = Ledger(owners=owners)
        server = FederatedAverage(
            plan, owners, clip_norm=LONGEST, fraction=fraction, rounds=ROUNDS, ledger=ledger, note=name
        )
        model = np.zeros((images.shape[2], 10))
        for _ in range(ROUNDS):
            model += RATE * server.round(*reports(model, images, digits)).reshape(model.shape)
        losses = np.sort(reports(model, images, digits)[1])
        right = (images @ model).argmax(axis=2) == digits
        print(
            f"{name}: {right.mean():.0%} right; loss {losses.mean():.2f}, of the worst tenth of clients "
            f"{losses[-len(losses) // 10 :].mean():.2f}, of the worst {losses[-1]:.2f}"
        )
    print(
        "epsilon spent by the first and the last client:", *(f"{ledger.spent()[i]:.2f}" for i in owners.labels[::298])
    )


if __name__ == "__main__":
    main()
