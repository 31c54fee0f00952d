"""This code against an earlier revision of it: `python -m benchmarks.against REVISION`.

Both versions are timed in one run: two processes, one per version, take turns within every round, so that a noisy
machine disturbs both alike. Shown is the median over rounds of the ratio of processor times, new / old. The cases use
public names only, so that revisions with other modules inside can be compared.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import report

ROUNDS = 41

WORKER = """
import sys, time
from benchmarks.against import cases
steps = cases()
for line in sys.stdin:
    name, repeats = line.rsplit(" ", 1)
    begin = time.process_time()
    for _ in range(int(repeats)):
        steps[name]()
    print(time.process_time() - begin, flush=True)
"""

REPEATS = {
    "Trainer.step, logistic regression": 40,
    "Trainer.step, MLP": 20,
    "Trainer.step, MLP in parts of 64": 8,
    "Trainer.step, MLP with dropout in parts of 64": 8,
    "Trainer.step, MNIST CNN": 3,
    "importance weights of 65,536": 10,
    "OrderedSum, a million rows and a tail": 1,
    "private_mean of 100,000 records": 3,
}
"""How often a case runs per turn: about 50 milliseconds."""


def cases() -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import nn

    from inosgm import LinearTail, OrderedSum, Owners, Plan, Trainer, importance_weights, private_mean

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)

    def training(model: nn.Module, most: int | None = None) -> Callable[[], object]:
        torch.manual_seed(0)
        x, y = torch.randn(1024, 1, 28, 28), torch.randint(10, (1024,))
        plan = Plan(sample_rates=[0.25], sensitivities=[1.0], sizes=[1024], noise_scale=1.0, steps=10**6)
        trainer = Trainer(
            plan,
            model,
            F.cross_entropy,
            torch.optim.SGD(model.parameters(), lr=0.01),
            owners=np.zeros(1024, dtype=np.int64),
            tail=LinearTail(100.0),
            max_physical_batch=most,
        )
        return lambda: trainer.step(x, y)

    def mlp(*dropout: nn.Module) -> nn.Module:
        hidden = [part for width in (784, 47, 47) for part in (nn.Linear(width, 47), nn.ReLU(), *dropout)]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(47, 10))

    cnn = nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.Tanh(), nn.Linear(32, 10)),
    )
    scores, sensitivities = generator.normal(size=65_536), np.ones(65_536)
    rows, kinds = generator.normal(size=10**6), generator.integers(3, size=10**6)

    def stream() -> object:
        total = OrderedSum([0.5, 1.0, 2.0], LinearTail(10_000.0))
        total.update(rows, scores=rows, owners=kinds, ids=0)
        return total.exact()

    wages = generator.uniform(0, 1, 100_000)
    owners = Owners(of_record=["a", "b"] * 50_000, epsilon={"a": 1.0, "b": 2.0}, delta=1e-6)
    steps = (
        training(nn.Sequential(nn.Flatten(), nn.Linear(784, 10))),
        training(mlp()),
        training(mlp(), most=64),
        training(mlp(nn.Dropout(0.5)), most=64),
        training(cnn),
        lambda: importance_weights(scores, sensitivities, LinearTail(20_000.0)),
        stream,
        lambda: private_mean(wages, owners, bounds=(0, 1)),
    )
    return dict(zip(REPEATS, steps, strict=True))


def main(revision: str) -> None:
    """Print the ratio of every case."""
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run(["git", "-C", here, "worktree", "add", "--detach", "-q", old, revision], check=True)
        (old / "benchmarks" / "against.py").write_text(Path(__file__).read_text())  # the same cases
        (old / "benchmarks" / "timing.py").write_text((here / "benchmarks" / "timing.py").read_text())
        try:
            with _worker(here) as new_code, _worker(old) as old_code:
                for name, repeats in REPEATS.items():
                    ratios = []
                    for number in range(ROUNDS + 2):  # who comes first takes turns as well
                        first, second = (new_code, old_code) if number % 2 else (old_code, new_code)
                        times = {id(each): _seconds(each, name, repeats) for each in (first, second)}
                        ratios.append(times[id(new_code)] / times[id(old_code)])
                    report(f"{name}: now / {revision}", statistics.median(ratios[2:]))  # two rounds of warm-up
        finally:
            subprocess.run(["git", "-C", here, "worktree", "remove", "--force", old], check=True)


def _worker(code: Path) -> "subprocess.Popen[str]":
    """Start a process that runs cases with one version of the code."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=code,
        env={"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _seconds(worker: "subprocess.Popen[str]", name: str, repeats: int) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{name} {repeats}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


if __name__ == "__main__":
    main(sys.argv[1])
