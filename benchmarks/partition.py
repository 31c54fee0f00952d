"""A cut link between two nodes of a Ray cluster: workers that were given up live on, and want to commit.

    python -m benchmarks.partition            (root needed: two network namespaces, joined by a pair of veth devices)
    python -m benchmarks.partition --freeze   (no root, no namespaces: the far node is stopped with SIGSTOP instead)

The driver and a head node are in one namespace, a far node is in the other; both see the store, as on a shared file
system. When every far worker is in the middle of a job, the link goes down. Ray gives the far node up and the driver
gives its jobs to near workers, but the far ones run on. Half of them commit before the second attempt at their job
does, which then is the duplicate; the other half comes too late, and is the duplicate itself. When all is done, the
link comes back, a new far node joins, and the same command is given again, with some more jobs. What attempts wait
for is written down in files, so that nothing here is a matter of luck, and every attempt that has come to its end says
so in a file of its own, whatever the store says.

Asked: each job is committed once and has one row in the ledger, every other end of an attempt is fenced, and results
are those of a serial run, bit for bit. Ends with an error if not.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from inosgm.jobs.executors import SerialExecutor
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.jobs.task import Attempt, Result
from inosgm.ledger.cost import Cost

NEAR, FAR = 3, 4
"""Workers on each side."""
PACE = 1.5
"""Seconds of a job on the near side."""
MORE = 12
"""Jobs that come after the cut."""
SIDE = "INOSGM_BENCHMARK_SIDE"
ROOT = Path(__file__).resolve().parent.parent
QUICK = {"initial_delay_ms": 1000, "period_ms": 1000, "timeout_ms": 1000, "failure_threshold": 3}
"""How soon Ray gives a node up: about 5 seconds instead of about 50."""


def until(what: str, condition: Callable[[], Any], seconds: float = 240.0) -> None:
    """Wait for something; TimeoutError names it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: waited {seconds:g} seconds")
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A task that draws numbers, and waits at the right places on either side of the cut.

    Attributes:
        store: The path of the store.
        notes: A directory for files that say what has happened.
    """

    store: str
    notes: str

    def cost(self, spec: JobSpec) -> tuple[Cost, ...]:
        """Return one step that two owners pay for."""
        rates, multipliers = np.array([0.1, 0.2]), np.array([2.0, 1.0])
        return (Cost(labels=("a", "b"), sample_rates=rates, noise_multipliers=multipliers, job=spec.id),)

    def run(self, spec: JobSpec, attempt: Attempt) -> Result:
        """Draw numbers from the job's seed and key."""
        side = os.environ.get(SIDE, "alone")
        notes, name = Path(self.notes), f"{spec.index}-{attempt.number}-{side}"
        (notes / f"begun-{name}").touch()
        attempt.ledger.charge(self.cost(spec)[0])
        numbers = np.random.default_rng([spec.seed, attempt.key]).normal(size=1000)
        result = Path(self.store, "jobs", spec.id, "result.json")
        if side == "far" and not (notes / "back").exists():
            until("the cut", (notes / "cut").exists)
            if spec.index in json.loads((notes / "cut").read_text())["ahead"]:
                until("the second attempt", lambda: list(notes.glob(f"begun-{spec.index}-*-near")))
            else:
                until("the result of the second attempt", result.exists)
        elif side == "near":
            time.sleep(PACE)
            if (notes / "cut").exists() and spec.index in json.loads((notes / "cut").read_text())["ahead"]:
                until("the ends of all far attempts", (notes / "over").exists)
        (notes / f"ended-{name}").touch()
        return Result(values={"total": float(numbers.sum())}, arrays={"numbers": numbers})


def specs(jobs: int) -> list[JobSpec]:
    """Return what the jobs are."""
    fields: dict[str, Any] = {
        "kind": "numbers",
        "configuration": {"seed": 5},
        "data_fingerprint": "",
        "code_version": "1",
    }
    return [JobSpec(**fields, index=index) for index in range(jobs)]


def opened(path: Path, jobs: int) -> Store:
    """Return a store that holds all jobs, with keys that are the same in every store."""
    store = Store(path)
    for spec in specs(jobs):
        store.add(spec, key=1000 + spec.index)
    return store


def drive(path: str, notes: str, jobs: int, address: str) -> None:
    """Run all jobs on a Ray cluster: what the driver's process does."""
    from ray_jobs.executor import RayExecutor

    task = Numbers(store=path, notes=notes)
    outcome = RayExecutor(address=address).run(task, specs(jobs), Store(path), progress=False)
    print(f"done {len(outcome.done)}, failed {len(outcome.failed)}, left {len(outcome.left)}")


class Machine:
    """Processes of the two sides, in namespaces or not, all of which end with it."""

    def __init__(self, directory: Path, stack: ExitStack, *, apart: bool) -> None:
        self._directory, self._stack, self._apart = directory, stack, apart
        self._started = 0
        token = directory / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        mine = {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        mine |= {f"RAY_health_check_{name}": str(value) for name, value in QUICK.items()}
        mine |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": "600"}
        self._environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | mine
        self.spaces = {side: f"inosgm-{os.getpid()}-{side}" for side in ("near", "far")}
        self.addresses = {"near": "10.99.7.1", "far": "10.99.7.2"} if apart else {"near": "", "far": "127.0.0.2"}
        if apart:
            self._make_namespaces()

    def start(self, side: str, *command: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a process on one side; its output goes to a file."""
        self._started += 1
        log = self._directory / f"{self._started}-{side}.log"
        inside = ("ip", "netns", "exec", self.spaces[side]) if self._apart else ()
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*inside, *command],
                env=self._environment | {SIDE: side},
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(end, process)
        return process, log

    def node(self, side: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a node of Ray and wait until it is up."""
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory", "100000000")
        where = ("--node-ip-address", self.addresses[side]) if self.addresses[side] else ()
        process, log = self.start(side, *ray, *where, *options)
        until(f"a {side} node of Ray", lambda: b"runtime started" in log.read_bytes() or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"ray start on the {side} side ended with {process.returncode}:\n{log.read_text()}")
        return process

    def link(self, state: str) -> None:
        """Take the link up or down."""
        run("ip", "-n", self.spaces["far"], "link", "set", "link0", state)

    def _make_namespaces(self) -> None:
        for side in ("near", "far"):
            run("ip", "netns", "add", self.spaces[side])
            self._stack.callback(remove, self.spaces[side])
        near, far = self.spaces["near"], self.spaces["far"]
        run(*f"ip link add link0 netns {near} type veth peer name link0 netns {far}".split())
        for side, space in self.spaces.items():
            run(*f"ip -n {space} address add {self.addresses[side]}/24 dev link0".split())
            run(*f"ip -n {space} link set lo up".split())
            run(*f"ip -n {space} link set link0 up".split())


def run(*command: str) -> str:
    """Run a command; what it complains of is part of the error."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        about = getattr(error, "stderr", "") or error
        raise RuntimeError(f"{' '.join(command)}: {about} (is this root? --freeze needs no namespaces)") from None


def family(pid: int) -> list[int]:
    """Return a process and all that come from it, parents first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, as far as they are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that come from it."""
    if process.poll() is None:
        send(family(process.pid), signal.SIGKILL)
        process.wait()


def remove(space: str) -> None:
    """Kill what is left in a namespace, and delete it."""
    send([int(pid) for pid in run("ip", "netns", "pids", space).split()], signal.SIGKILL)
    run("ip", "netns", "delete", space)


@contextmanager
def cut(machine: Machine, node: subprocess.Popen[bytes]) -> Iterator[Callable[[], None]]:
    """Take the link to the far node down while this lasts."""
    machine.link("down")
    try:
        yield lambda: None  # its workers are awake all the time
    finally:
        machine.link("up")


@contextmanager
def frozen(machine: Machine, node: subprocess.Popen[bytes]) -> Iterator[Callable[[], None]]:
    """Stop the far node and its workers while this lasts; what it gives wakes the workers, but not the node."""
    pids = family(node.pid)
    raylet = [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet"]
    send(pids, signal.SIGSTOP)
    try:
        yield lambda: send([pid for pid in pids if pid not in (*raylet, node.pid)], signal.SIGCONT)
    finally:
        send(pids, signal.SIGCONT)


def fenced(store: Store) -> set[int]:
    """Return the jobs that an attempt was too late for."""
    states, known = store.states(), store.specs()
    return {known[job].index for job, state in states.items() if "fenced" in state.attempts.values()}


def done(store: Store) -> set[int]:
    """Return the jobs that have a result."""
    return {spec.index for job, spec in store.specs().items() if store.done(job)}


def perform(directory: Path, jobs: int, *, freeze: bool) -> tuple[Store, Path]:
    """Run all jobs through the cut; return the store, and the notes."""
    notes = directory / "notes"
    notes.mkdir()
    store = opened(directory / "store", jobs + MORE)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

    def far(what: str) -> set[int]:
        return {int(path.name.split("-")[1]) for path in notes.glob(f"{what}-*-far")}

    def again(index: int) -> bool:
        return any(notes.glob(f"begun-{index}-*-near"))

    with ExitStack() as stack:
        machine = Machine(directory, stack, apart=not freeze)
        options = ("--head", "--port", "6399", "--include-dashboard", "false", "--temp-dir", str(directory / "ray"))
        machine.node("near", *options, "--num-cpus", str(NEAR))
        address = (directory / "ray" / "ray_current_cluster").read_text().strip()
        join = ("--address", address, "--num-cpus", str(FAR))
        node = machine.node("far", *join)
        say(f"two nodes of Ray are up: {NEAR} workers near, {FAR} far")

        def drives(number: int) -> tuple[subprocess.Popen[bytes], Path]:
            call = (
                f"from benchmarks.partition import drive; drive({store.uri!r}, {str(notes)!r}, {number}, {address!r})"
            )
            return machine.start("near", sys.executable, "-c", call)

        def finishes(driver: subprocess.Popen[bytes], log: Path) -> None:
            until("the end of the driver", lambda: driver.poll() is not None)
            say(f"the driver has ended with {driver.returncode}: {log.read_text().splitlines()[-1]}")

        def happens(what: str, condition: Callable[[], Any]) -> None:
            until(what, lambda: condition() or driver.poll() is not None)
            if not condition():
                raise RuntimeError(f"{what}: the driver has ended before that\n{log.read_text()}")

        driver, log = drives(jobs)
        happens(f"{FAR} attempts on the far side", lambda: len(far("begun")) == FAR)
        lost = sorted(far("begun"))
        behind, ahead = set(lost[: FAR // 2]), set(lost[FAR // 2 :])
        with (frozen if freeze else cut)(machine, node) as wake:
            (notes / "draft").write_text(json.dumps({"ahead": sorted(ahead)}))
            (notes / "draft").rename(notes / "cut")
            say(f"{'the far node is frozen' if freeze else 'the link is cut'} in the middle of jobs {lost}")
            happens("second attempts", lambda: ahead <= {index for index in lost if again(index)})
            say("Ray has given the far node up, and the driver has begun its jobs again")
            wake()
            happens("the ends of all far attempts", lambda: far("ended") == set(lost))
            happens(
                "an answer to all that have tried to commit", lambda: behind <= fenced(store) and ahead <= done(store)
            )
            say("every far worker has come to the end of its attempt, and has tried to commit")
            (notes / "over").touch()
            finishes(driver, log)
        say(f"the far node is {'awake again' if freeze else 'in reach again'}")
        machine.node("far", *join)
        (notes / "back").touch()
        say(f"a new far node has joined; the same again, with {MORE} more jobs")
        finishes(*drives(jobs + MORE))
    return store, notes


def check(store: Store, notes: Path, alone: Store) -> list[str]:
    """Print what has become of the jobs; return what is not as asked."""
    wrong = []

    def line(what: str, found: object, asked: object = None) -> None:
        met = asked is None or found == asked
        print(f"{what:<76} {found!s:>8}  {'' if asked is None else f'asked: {asked}'}{'' if met else '  NOT REACHED'}")
        if not met:
            wrong.append(what)

    known, states = store.specs(), store.states()
    jobs = len(known)
    ends: dict[str, list[str]] = {job: [] for job in known}  # of attempts that ran to their end: side, if it was late
    for path in notes.glob("ended-*"):
        _, index, number, side = path.name.split("-")
        job = next(job for job, spec in known.items() if spec.index == int(index))
        ends[job].append(side if states[job].attempts[int(number)] == "fenced" else "")
    commits = [found.count("") for found in ends.values()]
    late = [side for found in ends.values() for side in found if side]
    equal = sum(same(store.result(job), alone.result(job)) for job, state in states.items() if state.done)
    line("jobs done", sum(state.done for state in states.values()), jobs)
    line("commits per job: least, most", (min(commits), max(commits)), (1, 1))
    line("fenced duplicates: attempts that came to their end too late", len(late), FAR)
    line("  of them, far ones that came after the second attempt", late.count("far"), FAR // 2)
    line("  of them, second attempts that came after the far one", late.count("near"), FAR - FAR // 2)
    line("attempts begun", sum(len(state.attempts) for state in states.values()))
    line("jobs that the new far node has done", len(list(notes.glob("ended-*-far"))) - FAR)
    line("ledger rows", len(store.charges()), jobs)
    line("jobs with a key or a checkpoint left", sum(state.leftovers for state in states.values()), 0)
    line("results equal to those of a serial run, bit for bit", equal, jobs)
    return wrong


def same(one: Result, other: Result) -> bool:
    """Say whether two results are equal, bit for bit."""
    arrays = [{name: array.tobytes() for name, array in result.arrays.items()} for result in (one, other)]
    return one.values == other.values and arrays[0] == arrays[1]


def main() -> None:
    """Cut, and count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partition", description=__doc__.partition("\n")[0])
    parser.add_argument("--freeze", action="store_true", help="stop the far node with SIGSTOP: no root, no namespaces")
    parser.add_argument("--jobs", type=int, default=20, help="how many jobs before and during the cut (default: 20)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    with TemporaryDirectory(prefix="inosgm-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        store, notes = perform(directory, arguments.jobs, freeze=arguments.freeze)
        alone = opened(directory / "alone", arguments.jobs + MORE)
        (directory / "unused").mkdir()
        task = Numbers(store=alone.uri, notes=str(directory / "unused"))
        SerialExecutor().run(task, specs(arguments.jobs + MORE), alone, progress=False)
        if wrong := check(store, notes, alone):
            sys.exit(f"not as asked: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
