"""One step of training with book-keeping against plain SGD, and against Opacus with hooks and with ghost clipping.

Timed, for every contender: from a batch in hand to the end of the optimizer's step, in one thread, as time of the
processor (medians of interleaved rounds). Ours (INO with a linear tail, IDP without a tail) computes losses, norms,
importance weights, clip factors and the weighted gradient; coins, gathering of the batch and the ledger are left out.
Plain SGD has no noise, so the ratio to it is taken without noise, and shown with noise, too; all ratios to Opacus are
with noise on both sides. For networks with convolutions, plain SGD gets images with channels last, the layout that ours
converts them to inside of its timed step, and is shown in the default one, too.

Memory is the peak resident size in three steps minus the size before them, each contender in a process of its own.

Also shown, with nothing asked of it: a whole `Trainer.step` (coins, gathering, noise; no ledger) against plain SGD that
gathers a random batch; and the memory of micro-batching, which must not grow with the logical batch.
"""

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from opacus import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from benchmarks.timing import medians, report
from inosgm import Descending, LinearTail, NoTail, Plan, ScaleClipped
from inosgm.mechanism.mechanism import clipped_ordered_sum
from inosgm.mechanism.noise import GaussianNoise, streams
from inosgm.mechanism.tails import Tail
from inosgm.training import Trainer
from inosgm.training.gradients.bookkeeping import BookKeeping

Step = Callable[[], object]


def logistic_regression() -> nn.Module:
    """784 pixels, 10 classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def mlp() -> nn.Module:
    """Three hidden layers of 47."""
    hidden = [part for width in (784, 47, 47) for part in (nn.Linear(width, 47), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(47, 10))


def mnist_cnn() -> nn.Module:
    """The papers' network for MNIST."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


def cifar_cnn() -> nn.Module:
    """The papers' network for CIFAR-10."""
    layers: list[nn.Module] = []
    for first, second in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(first, second, 3, padding=1), nn.Tanh(), nn.Conv2d(second, second, 3, padding=1)]
        layers += [nn.Tanh(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 128), nn.Tanh(), nn.Linear(128, 10))


SHAPES = {logistic_regression: (1, 28, 28), mlp: (1, 28, 28), mnist_cnn: (1, 28, 28), cifar_cnn: (3, 32, 32)}
CASES = [
    (logistic_regression, (256, 1024), 1.8, 0.25),
    (mlp, (256, 1024), 1.4, 0.25),
    (mnist_cnn, (256, 1024), 1.6, 0.5),
    (cifar_cnn, (256, 512), 1.6, 0.5),
]


def contenders(make: Callable[[], nn.Module], batch: int) -> dict[str, Step]:
    """Return one step of each way to train, on the same made-up batch."""
    torch.manual_seed(0)
    x, y = torch.randn(batch, *SHAPES[make]), torch.randint(10, (batch,))
    as_ours = x.to(memory_format=torch.channels_last) if make in (mnist_cnn, cifar_cnn) else x
    return {
        "SGD": _plain(make(), as_ours, y),
        "SGD, default layout": _plain(make(), x, y),
        "INO": _ours(make(), x, y, LinearTail(0.4 * batch), noise_scale=1.0),
        "IDP": _ours(make(), x, y, NoTail(), noise_scale=1.0),
        "INO, no noise": _ours(make(), x, y, LinearTail(0.4 * batch), noise_scale=0.0),
        "Opacus hooks": _hooks(make(), x, y),
        "Opacus ghost": _ghost(make(), x, y),
    }


def whole_steps(make: Callable[[], nn.Module], batch: int, most: int | None = None) -> dict[str, Step]:
    """Return a step of plain SGD and one of a Trainer, both with a random batch of some records of many."""
    torch.manual_seed(0)
    records = 4 * batch
    x, y = torch.randn(records, *SHAPES[make]), torch.randint(10, (records,))
    model, peer = make(), make()
    plan = Plan(sample_rates=[0.25], sensitivities=[1.0], sizes=[records], noise_scale=1.0, steps=10**6)
    trainer = Trainer(
        plan,
        model,
        F.cross_entropy,
        torch.optim.SGD(model.parameters(), lr=0.01),
        owners=np.zeros(records, dtype=np.int64),
        tail=LinearTail(0.4 * batch),
        max_physical_batch=most,
    )
    optimizer = torch.optim.SGD(peer.parameters(), lr=0.01)

    def plain() -> None:
        picked = torch.randint(records, (batch,))
        images = x[picked].to(memory_format=torch.channels_last) if make in (mnist_cnn, cifar_cnn) else x[picked]
        optimizer.zero_grad()
        F.cross_entropy(peer(images), y[picked]).backward()
        optimizer.step()

    return {"SGD": plain, "Trainer": lambda: trainer.step(x, y)}


def main() -> None:
    """Print the ratios that issue 4 names."""
    torch.set_num_threads(1)
    for make in (logistic_regression, mlp, mnist_cnn):
        seconds = medians(whole_steps(make, 256), rounds=_rounds(make), clock=time.process_time)
        report(f"{make.__name__}, batches of about 256: Trainer.step / SGD", seconds["Trainer"] / seconds["SGD"])
    # as many parts in both: what the allocator of the system scatters grows with their number
    small, large = (_extra_memory(cifar_cnn, batch, "Trainer", steps=2048 // batch) for batch in (256, 2048))
    report(f"cifar_cnn in parts of 64: memory, {large:.0f} MB for 2048 / {small:.0f} MB for 256", large / small)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus, at every first layer
    for make, batches, of_sgd, of_opacus in CASES:
        convolutional = of_opacus == 0.5
        for batch in batches:
            seconds = medians(contenders(make, batch), rounds=_rounds(make), clock=time.process_time)
            what = f"{make.__name__}, batch {batch}"
            print(f"{what}: " + ", ".join(f"{name} {1000 * value:.2f} ms" for name, value in seconds.items()))
            report(f"{what}: INO, no noise / SGD", seconds["INO, no noise"] / seconds["SGD"], at_most=of_sgd)
            report(f"{what}: INO / SGD", seconds["INO"] / seconds["SGD"])
            if convolutional:
                report(f"{what}: INO / SGD, default layout", seconds["INO"] / seconds["SGD, default layout"])
            peers = ["Opacus hooks", "Opacus ghost"] if convolutional else ["Opacus hooks"]
            best = min(peers, key=lambda name: seconds[name])
            report(f"{what}: INO / {best}", seconds["INO"] / seconds[best], at_most=of_opacus)
            bound = 1.03 if convolutional and batch >= 512 else None
            report(f"{what}: INO / IDP", seconds["INO"] / seconds["IDP"], at_most=bound)
            if convolutional:
                ours, peer = (_extra_memory(make, batch, name) for name in ("INO", "Opacus hooks"))
                report(f"{what}: memory, {ours:.0f} MB / {peer:.0f} MB of Opacus hooks", ours / peer, at_most=0.5)


def _plain(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def _ours(model: nn.Module, x: Tensor, y: Tensor, tail: Tail, *, noise_scale: float) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine = BookKeeping(model, lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="none"))
    n = len(y)
    sensitivities, ids = np.ones(n), np.arange(n)

    def step() -> None:
        gradients = engine.gradients(x, y)
        total = clipped_ordered_sum(
            gradients,
            gradients.losses.numpy(),  # a few hundred numbers: small arrays are quicker in numpy
            sensitivities,
            ids,
            owners=sensitivities,
            tail=tail,
            order=Descending(),
            clipping=ScaleClipped(),
        )
        if noise_scale:
            total = GaussianNoise().add(total, noise_scale, streams(None, 0)[1])
        for parameter, value in zip(engine.parameters, total, strict=True):
            parameter.grad = value / n
        optimizer.step()

    return step


def _hooks(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    wrapped = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=len(y),
    )

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()

    return step


def _ghost(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=0.01),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=len(y),
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())

    def step() -> None:
        optimizer.zero_grad()
        loss(wrapped(x), y).backward()
        optimizer.step()

    return step


def _rounds(make: Callable[[], nn.Module]) -> int:
    return {cifar_cnn: 7, mnist_cnn: 21}.get(make, 201)


def _extra_memory(make: Callable[[], nn.Module], batch: int, name: str, *, steps: int = 3) -> float:
    """Return the megabytes by which the peak of a fresh process grows in some steps of one contender."""
    code = f"from benchmarks import training; training.measure_memory({make.__name__!r}, {batch}, {name!r}, {steps})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure_memory(model: str, batch: int, name: str, steps: int) -> None:
    """Print the growth of this process's peak in megabytes: run in a process of its own."""
    torch.set_num_threads(1)
    make, ways = globals()[model], partial(whole_steps, most=64) if name == "Trainer" else contenders
    ways(make, 4)[name]()  # what libraries load at their first use is no memory of a step
    step = ways(make, batch)[name]
    before = _resident()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    for _ in range(steps):
        step()
    print(_resident("VmHWM") - before)


def _resident(field: str = "VmRSS") -> float:
    """Return the resident memory of this process in megabytes, now or (VmHWM) at its peak: Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
