"""Checks of one model on several GPUs, which the machines of this project have not: `python -m ray_jobs.verify_gpus`.

It trains a small network on workers of Ray Train, compares with one process on a CPU, kills a worker, and prints a line
for each check. The guide "On a Ray cluster" shows the lines that it must print. With `--cpu` it does the same by gloo.
"""

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import ray.train
import torch
import torch.distributed
import typer
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from torch import nn

from inosgm import LinearTail, Owners, Trainer, plan_scale
from inosgm.ledger.ledger import Ledger
from inosgm.planning.plan import Plan
from inosgm.training import Workers
from ray_jobs.connection import connect
from ray_jobs.entry_points import application

BATCH, RECORDS_BY_BATCH, STEPS, KEY, CHECKPOINT = {"cpu": 96, "cuda": 4096}, 8, 12, 7, 3
TRIED = 8
"""Most records of a pass in which the model is tried: such passes do not count."""

EXACT = 1e-9
"""A noise scale that is lost in the roundings: CPUs and GPUs draw other noise from one key."""


class Mortal(nn.Module):
    """A convolutional network whose process kills itself, once, in a pass over records if a file says so."""

    def __init__(self, fatal: str, rank: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
            *(nn.Flatten(), nn.Linear(1024, 10)),
        )
        self.fatal, self.rank = fatal, rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        fatal = Path(self.fatal)
        if self.training and len(x) > TRIED and fatal.is_file() and fatal.read_text() == str(self.rank):
            self._die_later(fatal)
        return self.layers(x)  # type: ignore[no-any-return]

    def _die_later(self, fatal: Path) -> None:
        """Kill this process if the run has come to its middle."""
        if len(list(fatal.parent.glob("run/checkpoint-*"))) > 2:
            fatal.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def problem(batch: int, *, exact: bool) -> tuple[Plan, np.ndarray, np.ndarray]:
    """Return a plan, without noise that matters if asked, and records."""
    drawn = np.random.default_rng(0)
    records = RECORDS_BY_BATCH * batch
    x, y = drawn.normal(size=(records, 3, 16, 16)).astype(np.float32), drawn.integers(0, 10, records)
    owners = Owners(of_record=np.where(y < 5, "strict", "open"), epsilon={"strict": 1.0, "open": 4.0}, delta=1e-5)
    plan = plan_scale(owners, steps=STEPS, expected_batch=batch, clip_norm=1.0)
    if exact:
        public: dict[str, Any] = {"sizes": plan.sizes, "labels": plan.labels, "steps": STEPS, "noise_scale": EXACT}
        plan = Plan(sample_rates=plan.sample_rates, sensitivities=plan.sensitivities, **public)
    return plan, x, y


def train_here(given: dict[str, Any]) -> None:
    """Train as one worker; the leader writes what came of it."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    workers, device = Workers(shards=given["shards"]), torch.device("cpu") if given["cpu"] else get_device()
    backend = torch.distributed.get_backend() if torch.distributed.is_initialized() else "none"
    kind = "cpu" if given["cpu"] else "cuda"
    result = trained(workers, device, BATCH[kind], given["exact"], given.get("run"), given.get("fatal", ""))
    if workers.leads:
        torch.save({**result, "backend": backend, "size": workers.size, "device": device.type}, given["out"])


def trained(
    workers: Workers, device: Any, batch: int, exact: bool, run: str | None = None, fatal: str = ""
) -> dict[str, Any]:
    """Train, and return parameters and seconds."""
    plan, x, y = problem(batch, exact=exact)
    model = Mortal(fatal, workers.rank).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    labels = np.where(y < 5, "strict", "open")
    tail = LinearTail(plan.tail_length(0.4))
    loss = nn.CrossEntropyLoss()
    trainer = Trainer(plan, model, loss, optimizer, tail=tail, owners=labels, key=KEY, workers=workers)
    begin = time.perf_counter()
    trainer.fit(x, y, run=run, checkpoint_every=CHECKPOINT, progress=False)
    seconds = time.perf_counter() - begin
    parameters = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
    return {"parameters": parameters, "seconds": seconds, "spent": {} if exact else trainer.spent()}


def on_workers(number: int, folder: Path, *, cpu: bool, **given: Any) -> dict[str, Any]:
    """Train on so many workers of Ray Train, and return what the leader wrote."""
    out = folder / "out.pt"
    TorchTrainer(
        train_here,
        train_loop_config={"out": str(out), "cpu": cpu, **given},
        torch_config=TorchConfig(backend="gloo" if cpu else "nccl"),
        scaling_config=ray.train.ScalingConfig(num_workers=number, use_gpu=not cpu),
        run_config=ray.train.RunConfig(
            storage_path=str(folder / "ray"), failure_config=ray.train.FailureConfig(max_failures=2)
        ),
    ).fit()
    result: dict[str, Any] = torch.load(out)
    return result


def say(what: str, good: bool, about: str) -> bool:
    """Print one check."""
    print(f"{'ok  ' if good else 'FAIL'} {what}: {about}", flush=True)
    return good


def main(workers: int, *, cpu: bool) -> int:
    """Run all checks; return the exit code."""
    with tempfile.TemporaryDirectory() as place:
        folder, many = Path(place), dict[str, Any](cpu=cpu, shards=workers)
        exact = on_workers(workers, folder, exact=True, **many)
        where = f"{exact['backend']}, {exact['size']} ranks on {exact['device']}"
        wanted = (workers, "cpu" if cpu else "cuda")
        checks = [say("process group", (exact["size"], exact["device"]) == wanted, where)]
        torch.set_num_threads(1)
        alone = trained(Workers(), torch.device("cpu"), BATCH["cpu" if cpu else "cuda"], exact=True)
        error = float((exact["parameters"] - alone["parameters"]).abs().max())
        checks.append(say("equal to one process on a CPU", error < 1e-3, f"largest difference {error:.1e}"))
        first = on_workers(workers, folder, exact=False, **many)
        fewer = on_workers(max(1, workers - 1), folder, exact=False, **many)
        same = torch.equal(first["parameters"], fewer["parameters"])
        checks.append(say("same bits with one worker less", same, "yes" if same else "no: a killed run is refused"))
        fatal = folder / "fatal"
        fatal.write_text(str(workers - 1))
        killed = on_workers(workers, folder, exact=False, run=str(folder / "run"), fatal=str(fatal), **many)
        resumed = not fatal.exists() and torch.equal(first["parameters"], killed["parameters"])
        checks.append(say("a killed worker changes nothing", resumed, f"worker {workers - 1} was killed"))
        spent = Ledger(folder / "run" / "ledger").spent()
        once = all(abs(spent[owner] - epsilon) < 1e-6 for owner, epsilon in first["spent"].items())
        checks.append(say("charged once", once, ", ".join(f"{owner} {value:.3f}" for owner, value in spent.items())))
        times = ", ".join(f"{some['seconds']:.1f} with {some['size']} workers" for some in (fewer, first))
        print(f"     seconds for {STEPS} steps: {times}")
    return 0 if all(checks) else 1


def verify(
    workers: Annotated[int, typer.Option(min=2, help="How many workers, each with a GPU.")] = 2,
    address: Annotated[str | None, typer.Option(help="Where Ray is; else one is started here.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Take CPUs and gloo instead of GPUs and nccl.")] = False,
) -> None:
    """Check that one model on several GPUs trains as one process does, resumes when a worker dies, and pays once."""
    leave = connect(address)
    try:
        code = main(workers, cpu=cpu)
    finally:
        leave()
    raise typer.Exit(code)


app = application(verify)

if __name__ == "__main__":
    app()
