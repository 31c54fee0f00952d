"""What durable jobs cost: private training runs of about a second each, on two Ray actors.

    python -m benchmarks.jobs                (about 13 minutes on an idle machine with two cores)
    python -m benchmarks.jobs --quick        (about 3; `--jobs 128` sets the number of jobs)

A job trains a small network with `Trainer` for a fixed number of steps, in one thread, on data that all jobs share,
and gives its parameters. It says itself when it began and ended, by a clock that all processes of a machine share.

The ideal is the sum of the seconds in jobs, divided by the number of workers. Overhead is what comes on top of it: of
the whole call, which starts the workers, makes the store, charges the ledger and gives all back; and of the time in
which every worker is wanted, from the moment when all have begun to the moment when the first one has nothing left
to do. How much slower a job is because another one runs beside it (two workers are two threads of one core on many
machines) is no overhead and is shown apart: it is the same for two bare processes that do nothing but these jobs, one
after the other. What others, Ray and our driver too, take from jobs while they run is in the ratio to those.

All contenders take turns, a block of jobs each, and medians over rounds are shown. Tune's trials are functions, for
which it starts a process each, and classes that can be used again (`reuse_actors`).
"""

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.timing import report
from inosgm import LinearTail, Plan
from inosgm.jobs import Attempt, Executor, JobSpec, ProcessExecutor, Result, SerialExecutor, Store
from inosgm.ledger.cost import Cost

RECORDS, BATCH = 30_000, 256


@dataclass(frozen=True)
class Span:
    """When a job ran, in seconds of the machine's clock, and what it had of the processor."""

    began: float
    ended: float
    cpu: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """A task that trains a small network on made-up images: what a job of a study of seeds does.

    Attributes:
        images: Shared by all jobs.
        labels: Theirs.
        steps: How many steps a job makes.
        weigh: Stay for a while at the end, and give the memory of the process.
    """

    images: np.ndarray
    labels: np.ndarray
    steps: int
    weigh: bool = False

    def plan(self) -> Plan:
        """Return what one owner of all records pays for."""
        rate = BATCH / RECORDS
        return Plan(sample_rates=[rate], sensitivities=[1.0], sizes=[RECORDS], noise_scale=1.0, steps=self.steps)

    def cost(self, spec: JobSpec) -> tuple[Cost, ...]:
        """Return the whole plan."""
        return (self.plan().cost(job=spec.id),)

    def run(self, spec: JobSpec, attempt: Attempt) -> Result:
        """Train."""
        return Result(**self.train(spec.seed, attempt.key, attempt.ledger))

    def train(self, seed: int, key: int, ledger: Any = None) -> dict[str, Any]:
        """Return the span of a job as values, and the parameters as arrays."""
        import torch
        import torch.nn.functional as F
        from torch import nn

        from inosgm.training import Trainer

        began, cpu = time.monotonic(), time.thread_time()
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(784, 47), nn.ReLU(), nn.Linear(47, 47), nn.ReLU(), nn.Linear(47, 10))
        trainer = Trainer(
            self.plan(),
            model,
            F.cross_entropy,
            torch.optim.SGD(model.parameters(), lr=0.1),
            owners=np.zeros(RECORDS, dtype=np.int64),
            tail=LinearTail(0.4 * BATCH),
            key=key,
            ledger=ledger,
        )
        for _ in range(self.steps):
            trainer.step(self.images, self.labels)
        arrays = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
        values: dict[str, Any] = {"began": began, "ended": time.monotonic(), "cpu": time.thread_time() - cpu}
        if self.weigh:
            time.sleep(5)  # until the others are as far
            values["memory"] = memory()
        return {"values": values, "arrays": arrays}


def memory() -> dict[str, float]:
    """Return the memory of this process in megabytes; what is shared by n processes counts as an n-th: Linux."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    fields = {line.partition(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {name: fields[name] for name in ("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem")}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some jobs by some workers."""

    spans: Sequence[Span]
    workers: int
    call: float
    """Seconds of the whole call."""
    memories: Sequence[dict[str, float]] = ()
    """Of jobs that were weighed."""

    @property
    def seconds(self) -> float:
        """Median seconds of a job."""
        return statistics.median(span.seconds for span in self.spans)

    @property
    def over_ideal(self) -> float:
        """The whole call, over what jobs take on as many workers."""
        return self.call * self.workers / sum(span.seconds for span in self.spans)

    @property
    def others(self) -> float:
        """Seconds in jobs over those that they had of the processor."""
        return sum(span.seconds for span in self.spans) / sum(span.cpu for span in self.spans)

    def steady(self) -> tuple[float, float]:
        """Return the overhead over the ideal, and jobs per second, while there is work for every worker."""
        times = sorted({time for span in self.spans for time in (span.began, span.ended)})
        full = [time for time in times if sum(span.began <= time < span.ended for span in self.spans) >= self.workers]
        begin = full[0]
        end = min(time for time in times if time > full[-1])
        inside = [(min(span.ended, end) - max(span.began, begin), span.seconds) for span in self.spans]
        busy = sum(max(seconds, 0.0) for seconds, _ in inside)
        jobs = sum(max(seconds, 0.0) / whole for seconds, whole in inside)
        return (end - begin) * self.workers / busy, jobs / (end - begin)


@dataclass
class Ground:
    """Where blocks run: the task, and a directory for stores."""

    task: Training
    directory: Path
    reference: Any
    used: int = 0

    def durable(self, executor: Executor, jobs: int, workers: int, task: Training | None = None) -> Block:
        """Run jobs through an executor, in a new store."""
        self.used += 1
        began = time.monotonic()
        store = Store(self.directory / f"store-{self.used}")
        fingerprint = store.fingerprint([self.task.images, self.task.labels])
        specs = [
            JobSpec(kind="train", configuration={}, data_fingerprint=fingerprint, code_version="1", index=index)
            for index in range(jobs)
        ]
        outcome = executor.run(task or self.task, specs, store, progress=False)
        call = time.monotonic() - began
        if len(outcome.done) < jobs or len(store.charges()) < jobs:
            raise RuntimeError(f"{outcome.failed or outcome.left}")
        values = [result.values for result in store.results().values()]
        memories = [one["memory"] for one in values if "memory" in one]
        return Block(spans=spans(values), workers=workers, call=call, memories=memories)

    def bare(self, jobs: int, workers: int) -> Block:
        """Run jobs in processes that do nothing else, each of them its share."""
        began = time.monotonic()
        context = get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context, initializer=hold, initargs=(self.task,)) as pool:
            shares = [pool.submit(loop, range(share, jobs, workers)) for share in range(workers)]
            values = [one for share in shares for one in share.result()]
        return Block(spans=spans(values), workers=workers, call=time.monotonic() - began)

    def tasks(self, jobs: int) -> Block:
        """Run jobs as plain tasks of Ray."""
        import ray

        began = time.monotonic()
        train: Any = ray.remote(num_cpus=1)(lambda task, index: task.train(index, index))
        found = ray.get([train.remote(self.reference, index) for index in range(jobs)])
        return Block(spans=spans(one["values"] for one in found), workers=2, call=time.monotonic() - began)

    def trials(self, jobs: int, *, reuse: bool) -> Block:
        """Run jobs as trials of Ray Tune."""
        from ray import tune

        began = time.monotonic()
        self.used += 1
        tuner = tune.Tuner(
            tune.with_parameters(reused() if reuse else trial, task=self.task),
            param_space={"index": tune.grid_search(list(range(jobs)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=2, reuse_actors=reuse),
            run_config=tune.RunConfig(
                storage_path=str(self.directory / f"tune-{self.used}"),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        with redirect_stdout(StringIO()):  # tables, even if asked to be silent
            grid = tuner.fit()
        found = [grid[index].metrics for index in range(len(grid))]
        return Block(spans=spans(found), workers=2, call=time.monotonic() - began)


_held: list[Training] = []


def hold(task: Training) -> None:
    """Keep the task in a bare process."""
    _held.append(task)


def loop(indices: Iterable[int]) -> list[dict[str, Any]]:
    """Do jobs one after the other."""
    return [_held[0].train(index, index)["values"] for index in indices]


def trial(config: dict[str, Any], task: Training) -> dict[str, Any]:
    """Do one job as a trial."""
    values: dict[str, Any] = task.train(config["index"], config["index"])["values"]
    return values


def reused() -> type:
    """Return a class of trials whose processes Tune may use again."""
    from ray import tune

    class Trial(tune.Trainable):
        """One job."""

        def setup(self, config: dict[str, Any], task: Training) -> None:  # type: ignore[override]
            """Take the task."""
            self.task = task

        def step(self) -> dict[str, Any]:
            """Do it."""
            return {**trial(self.config, self.task), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            """Accept another."""
            return True

    return Trial


def spans(values: Iterable[Any]) -> list[Span]:
    """Return the spans of jobs, in the order of time."""
    found = [Span(one["began"], one["ended"], one["cpu"]) for one in values]
    return sorted(found, key=lambda span: span.began)


def made(seconds: float = 1.0) -> Training:
    """Return a task whose jobs take about so long on this machine, alone."""
    generator = np.random.default_rng(0)
    images = generator.standard_normal((RECORDS, 784), dtype=np.float32)
    task = Training(images=images, labels=generator.integers(10, size=RECORDS), steps=20)
    task.train(0, 0)
    short, long = (
        min(replace(task, steps=steps).train(0, 0)["values"]["cpu"] for _ in range(3)) for steps in (20, 120)
    )
    per_step = (long - short) / 100
    steps = max(1, round((seconds - (short - 20 * per_step)) / per_step))
    return replace(task, steps=steps)


def main(arguments: Sequence[str] = ()) -> None:
    """Print what issue 5 asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="64 jobs, and one round of short blocks")
    parser.add_argument("--jobs", type=int, help="jobs on two actors (default: 512)")
    options = parser.parse_args(arguments)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    import ray

    say_load("before")
    task = made()
    print(
        f"a job: {task.steps} steps of about {BATCH} of {RECORDS} records, {task.images.nbytes / 2**20:.0f} MB of data"
    )
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        with TemporaryDirectory(prefix="inosgm-") as directory:
            ground = Ground(task, Path(directory), ray.put(task))
            long_run(ground, options.jobs or (64 if options.quick else 512))
            comparison(ground, *((8, 4, 1) if options.quick else (20, 6, 3)))
            weigh(ground)
    finally:
        ray.shutdown()
    say_load("after")


def long_run(ground: Ground, jobs: int) -> None:
    """Print the overhead of many jobs on two actors."""
    from ray_jobs.executor import RayExecutor

    block = ground.durable(RayExecutor(max_concurrent=2), jobs, 2)
    whole = 1.05 if jobs >= 512 else None  # starting actors takes seconds, which fewer jobs cannot outweigh
    what = f"{jobs} jobs on 2 actors"
    first = min(span.began for span in block.spans)
    print(
        f"{what}: {block.call:.1f} s, {block.seconds:.2f} s in a job, the first one begun after "
        f"{block.call - (max(span.ended for span in block.spans) - first):.1f} s of starting and ending"
    )
    report(f"{what}: whole call / ideal", block.over_ideal, at_most=whole)
    report(f"{what}: while there is work for both / ideal", block.steady()[0], at_most=1.05)
    report(f"{what}: seconds in jobs / of them, on the processor", block.others)


def comparison(ground: Ground, jobs: int, trials: int, rounds: int) -> None:
    """Print what others make of the same jobs."""
    from ray_jobs.executor import RayExecutor

    contenders: dict[str, Callable[[], Block]] = {
        "2 Ray actors": lambda: ground.durable(RayExecutor(max_concurrent=2), jobs, 2),
        "1 Ray actor": lambda: ground.durable(RayExecutor(max_concurrent=1), jobs // 2, 1),
        "2 bare processes": lambda: ground.bare(jobs, 2),
        "1 bare process": lambda: ground.bare(jobs // 2, 1),
        "plain Ray tasks": lambda: ground.tasks(jobs),
        "Tune, functions": lambda: ground.trials(trials, reuse=False),
        "Tune, reused": lambda: ground.trials(jobs, reuse=True),
        "ProcessExecutor(2)": lambda: ground.durable(ProcessExecutor(2), jobs, 2),
        "SerialExecutor": lambda: ground.durable(SerialExecutor(), jobs // 2, 1),
    }
    blocks: dict[str, list[Block]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            blocks[name].append(run())
    head = ("jobs/s", "over ideal", "ms per job", "s in a job", "jobs/s, whole call", "(jobs)")
    print(f"\n{f'medians of {rounds} rounds':<20}" + "".join(f"{title:>{len(title) + 3}}" for title in head))
    rates = {}
    for name, found in blocks.items():
        overhead = statistics.median(block.steady()[0] for block in found)
        rates[name] = statistics.median(block.steady()[1] for block in found)
        inside = statistics.median(block.seconds for block in found)
        whole = statistics.median(len(block.spans) / block.call for block in found)
        print(
            f"{name:<20}{rates[name]:>9.3f}{overhead:>12.3f}x{1000 * (overhead - 1) * inside:>13.0f}{inside:>13.3f}"
            f"{whole:>21.3f}{len(found[0].spans):>9}"
        )
    say_load("here")
    report("jobs per second: 2 Ray actors / 1", rates["2 Ray actors"] / rates["1 Ray actor"], at_least=1.8)
    report("  what this machine gives: 2 bare processes / 1", rates["2 bare processes"] / rates["1 bare process"])
    for name in ("2 bare processes", "plain Ray tasks", "Tune, functions", "Tune, reused", "ProcessExecutor(2)"):
        report(f"jobs per second: 2 Ray actors / {name}", rates["2 Ray actors"] / rates[name])
    report("jobs per second: 1 Ray actor / SerialExecutor", rates["1 Ray actor"] / rates["SerialExecutor"])
    for two, one in (("2 Ray actors", "1 Ray actor"), ("2 bare processes", "1 bare process")):
        slower = statistics.median(block.seconds for block in blocks[two])
        report(f"seconds in a job: {two} / {one}", slower / statistics.median(block.seconds for block in blocks[one]))


def weigh(ground: Ground) -> None:
    """Print the memory of a worker, with torch imported and the data of all jobs."""
    from ray_jobs.executor import RayExecutor

    print()
    executors: dict[str, Executor] = {"Ray actor": RayExecutor(max_concurrent=2), "process": ProcessExecutor(2)}
    for name, executor in executors.items():
        memories = ground.durable(executor, 2, 2, replace(ground.task, weigh=True)).memories
        parts = {part: max(found[part] for found in memories) for part in memories[0]}
        print(
            f"memory of one of 2, {name}: {parts['Pss']:.0f} MB (PSS): its own {parts['Pss_Anon']:.0f}, "
            f"shared files {parts['Pss_File']:.0f}, shared data {parts['Pss_Shmem']:.0f}"
        )


def say_load(when: str) -> None:
    """Print how busy the machine is."""
    print(f"load average of the last minute, {when}: {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    from benchmarks import jobs  # so that workers find the task under its name

    jobs.main(sys.argv[1:])
