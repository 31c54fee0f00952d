"""The time of a step with units of m records against the same records as units of their own."""

import time

import numpy as np
import torch
from torch import nn

from inosgm.training.gradients import BookKeeping
from inosgm.training.gradients.groups import Groups
from inosgm.training.losses import per_record

RECORDS, REPEATS = 256, 7


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Return models with inputs."""
    wide = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    cnn = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    encoder = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    text = nn.Sequential(nn.Embedding(500, 64), encoder, nn.Flatten(), nn.Linear(64 * 16, 10))
    images = torch.rand(RECORDS, 1, 28, 28)
    return {"MLP": (wide, images), "CNN": (cnn, images), "Transformer": (text, torch.randint(0, 500, (RECORDS, 16)))}


def seconds(engine: BookKeeping, inputs: torch.Tensor, targets: torch.Tensor, groups: Groups | None) -> float:
    """Return the least time of norms and a weighted sum."""
    units = {} if groups is None else {"groups": groups}
    found = []
    for _ in range(REPEATS):
        begin = time.process_time()
        gradients = engine.gradients(inputs, targets, **units)
        gradients.weighted_sum(torch.ones_like(gradients.norms()))
        found.append(time.process_time() - begin)
    return min(found)


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    targets = torch.randint(0, 10, (RECORDS,))
    ragged = np.sort(np.random.default_rng(0).zipf(1.8, RECORDS).clip(max=60).cumsum())  # ends of units
    for name, (model, inputs) in models().items():
        engine = BookKeeping(model, per_record(nn.CrossEntropyLoss()))
        plain = seconds(engine, inputs, targets, None)
        for members in (2, 4, 16, 64, "1 to 60"):
            ids = (
                np.searchsorted(ragged, np.arange(RECORDS))
                if isinstance(members, str)
                else np.arange(RECORDS) // members
            )
            groups = Groups.of(ids, 1 / np.bincount(ids), torch.device("cpu"))
            ratio = seconds(engine, inputs, targets, groups) / plain
            print(f"{name}: units of {members} records take {ratio:.2f} times the time of single records")


if __name__ == "__main__":
    main()
