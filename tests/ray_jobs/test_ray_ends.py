"""When a part of the Ray that a command has started dies: one sentence, an exit code of its own, and nothing lost."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import wait_until
from ray._private import services

from inosgm.cli.doctor import State, examine
from inosgm.cli.supervised import RAY_GONE
from inosgm.jobs import Store
from inosgm.jobs.clusters import RayGone
from inosgm.ledger.ledger import Ledger
from ray_jobs import connection

TEXT = """
data: {name: breast_cancer}
owners: {by: class, epsilon: {benign: 5, malignant: 1}, delta: 1e-4}
model: {name: logistic_regression}
plan: {method: sample, steps: 6, expected_batch: 64, clip_norm: 1, accountant: rdp}
tail: {kind: linear, fraction: 0.4}
optimizer: {name: SGD, lr: 1.0}
training: {evaluate_every: 2}
"""
HOLD = """
import os, patience, signal, sys
def hold(*_):
    open(os.environ["HELD"], "a").close()
    patience.wait_until(lambda: os.getppid() != int(os.environ["RAY_RAYLET_PID"]))  # its Ray has ended
    os._exit(0)

def hold_attempts(module):
    assert callable(module.attempt)
    module.attempt = hold

def say_when_connected(module):
    tell = module.tell_supervisor
    def told(**facts):
        tell(**facts)
        if "processes" in (facts.get("ray") or {}):
            open("connected", "w").close()
    module.tell_supervisor = told

def terminate_while_ray_starts(module):
    from ray._private.node import Node
    def start(self, begin=Node.start_head_processes):
        signal.raise_signal(signal.SIGTERM)
        begin(self)
    Node.start_head_processes = start

def give_up_before_ray_notices(module):
    assert module.SILENT
    module.SILENT = 0

if os.environ.get("GIVE_UP_BEFORE_RAY_NOTICES"):
    patience.after_import("ray_jobs.worker_pool", give_up_before_ray_notices)
if os.environ.get("TERMINATE_WHILE_RAY_STARTS"):
    patience.after_import("ray_jobs.connection", terminate_while_ray_starts)
elif not any(word.endswith("default_worker.py") for word in sys.orig_argv):
    patience.after_import("ray_jobs.connection", say_when_connected)
elif os.environ.get("HOLD_WORKERS"):
    patience.after_import("ray_jobs", hold)
elif os.environ.get("HOLD_ATTEMPTS"):
    patience.after_import("inosgm.jobs.work", hold_attempts)
"""
"""Keeps workers of a Ray from ever doing anything, or from making attempts: what dies then dies before the command can
be done. Sends a command SIGTERM while it starts a Ray. Lets a command give up at the first worker that is silent.
"""

OTHERS = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
[raylet] = cluster.head_node.all_processes["raylet"]
print(cluster.address, raylet.process.pid, flush=True)
sys.stdin.read()
"""
"""Starts a Ray that lives until the test ends."""

NOBODY = "127.0.0.1:1"
"""Where nothing listens."""

STATS = "stats mean t.csv --column wage --bounds 0 1 --budgets owners.csv --owner-column clinic"
STATS += " --address local --store stats --ledger ledger"

COMMANDS = {
    "train": ("raylet", "train run.yaml --seeds 2 --address local --store train"),
    "stats": ("runtime env agent", STATS),
    "audit": ("GCS server", "audit run.yaml --shadows 2 --runs 0 --attack loss --address local --store audit"),
    "sweep": (
        "dashboard agent",
        "sweep run.yaml --grid optimizer.lr=1,2 --scheduler asha --address local --store sweep",
    ),
    "compare": ("raylet", "compare run.yaml --address local --store compare --json"),
}
PARTS = {
    "raylet": ("raylet/raylet",),
    "GCS server": ("gcs_server",),
    "dashboard agent": ("ray::DashboardAgent", "dashboard/agent.py"),
    "runtime env agent": ("ray::RuntimeEnvAgent", "runtime_env/agent/main.py"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "run.yaml").write_text(TEXT)
    (tmp_path / "sitecustomize.py").write_text(HOLD)
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta\na,1,1e-5\nb,2,1e-5\n")
    rows = "".join(f"{wage},{'ab'[row % 2]}\n" for row, wage in enumerate(rng.uniform(size=50)))
    (tmp_path / "t.csv").write_text("wage,clinic\n" + rows)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("HELD", str(tmp_path / "held"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def begin(here, start):
    """Starts commands, if need be with standard streams that are closed."""

    def begun(words, *, closed=(), **variables):
        how = {"preexec_fn": lambda: [os.close(number) for number in closed]} if closed else {}
        return start("-m", "inosgm", *words.split(), env={**os.environ, **variables}, **how)

    return begun


def below(process):
    """Return the processes that a process has started, and that those have started, each with its words."""
    parents, words = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            words[int(place.name)] = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended
            continue
    found = {process}
    while more := {one for one, parent in parents.items() if parent in found and one in words} - found:
        found |= more
    return {one: words[one] for one in found if one in words}


def part_of_ray(process, part):
    """Wait until a command is connected to the Ray that it has started; return the process that is a part of that."""
    wait_until(Path("connected").exists, process)
    there = below(process.pid)
    found = [one for one, words in there.items() if any(name in word for word in words[:3] for name in PARTS[part])]
    return found[-1] if part == "raylet" else next(one for one in found if "raylet/raylet" not in there[one][0])


@pytest.mark.long  # starts a Ray for each; tests/cli/test_supervised.py has the same sentences without one
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("name", COMMANDS)
def test_what_died_is_said_and_the_same_command_resumes(here, begin, name):
    """Fails on 76c85f1: exit code 1 after pages of Ray's, and nothing said."""
    part, words = COMMANDS[name]
    process = begin(words, HOLD_WORKERS="1")
    os.kill(part_of_ray(process, part), signal.SIGKILL)
    code, out, err = process.ended()
    assert code == RAY_GONE, err
    died = f"the {part} of the Ray that this command had started died"
    died += ", and its raylet with it" if part.endswith("agent") else " (was there memory?)"
    resumes = f"nothing is lost, and the same command resumes: python -m inosgm {words}"
    assert err.splitlines()[-1] == f"error: {died}; {resumes}", err
    assert "raylet" not in out  # which Ray writes pages about to stdout
    assert out == "" or "--json" not in words
    if name == "stats":  # here without a stderr: 09c50e1 ends with exit code 4 again and again
        assert begin(words, closed=(0, 2)).ended()[0] == 0
        assert len(Ledger("ledger").history()) == 1
    if name == "train":
        code, _, err = begin(words).ended()
        assert code == 0, err
        assert len(Store("train").results()) == len(Store("train").charges()) == 2


@pytest.mark.long
def test_the_raylet_of_a_ray_that_others_have_started(here, begin, start):
    """Fails on 09c50e1: exit code 2, and "the last 1 workers that Ray started ended ... is there memory"."""
    others = start("-c", OTHERS, stdin=subprocess.PIPE, stderr=None, env={**os.environ, "HOLD_ATTEMPTS": "1"})
    address, raylet = others.stdout.readline().split()
    words = f"train run.yaml --seeds 1 --address {address} --store train --quiet"
    process = begin(words, GIVE_UP_BEFORE_RAY_NOTICES="1")
    wait_until((here / "held").exists, process)
    os.kill(int(raylet), signal.SIGKILL)
    code, _, err = process.ended()
    assert code == RAY_GONE, err
    resumes = f"nothing is lost, and the same command resumes: python -m inosgm {words}"
    assert err.splitlines()[-1] == f"error: the Ray at {address}, or its part on this machine, ended; {resumes}"


@pytest.mark.long
def test_a_command_that_is_terminated_while_ray_starts_finishes(begin):
    """Fails on 09c50e1: Ray's handler ended it without a word, with exit code 15."""
    code, _, err = begin(COMMANDS["train"][1], TERMINATE_WHILE_RAY_STARTS="1").ended()
    assert code == 130, err
    assert err.endswith("interrupted: 2 of 2 runs remain in train; the same command resumes them\n")


def test_a_ray_that_does_not_start_is_a_sentence(monkeypatch, program, here):
    """Fails on 76c85f1: a traceback of the bare Exception that Ray raises after 30 seconds."""

    def slow(*_, **__):
        raise Exception("The current node timed out during startup. This could happen because\nof something.")

    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connection.ray, "init", slow)
    with pytest.raises(RayGone, match="Ray did not start on this machine, or not in time"):
        connection.connect("local")
    code, _, err = program(*COMMANDS["train"][1].split())
    assert code == RAY_GONE
    about = "The current node timed out during startup. This could happen because"
    assert f"error: Ray did not start on this machine, or not in time ({about}); nothing is lost, and the same" in err
    assert not Store("train").charges()


def test_the_doctor_finds_the_ray_that_auto_finds(monkeypatch, embedded_ray):
    """Fails on 76c85f1: only the Ray of the last `ray start` with the usual --temp-dir was found."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    place = embedded_ray["address"]
    services.find_gcs_addresses.cache_clear()
    assert place in services.find_gcs_addresses()
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: None)
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {place, NOBODY})  # others may run Rays on this machine
    [cluster] = [finding for finding in examine() if finding.part == "ray"]
    assert connection.found("auto") == connection._reached("auto") == place
    assert (cluster.state, cluster.about) == (State.good, f"{place} answers: --address auto uses it")


def test_which_of_several_rays_is_meant_must_be_said(monkeypatch, embedded_ray):
    """Fails on 09c50e1: any of them was used, another one in each process, be it that of another command."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)
    place = embedded_ray["address"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        two = sorted([place, f"127.0.0.1:{other.getsockname()[1]}"])
        monkeypatch.setattr(services, "find_bootstrap_address", lambda _: NOBODY)
        monkeypatch.setattr(services, "find_gcs_addresses", lambda: {*two, NOBODY})
        with pytest.raises(ValueError, match=f"--address auto may be any of {', '.join(two)}, which run on this"):
            connection.connect("auto")
        [cluster] = [finding for finding in examine() if finding.part == "ray"]
        assert cluster.about.endswith("which run on this machine: name one of them")
        monkeypatch.setattr(services, "find_bootstrap_address", lambda _: place)
        assert connection.found("auto") == place
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: set())
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: None)
    with pytest.raises(ConnectionError, match="none runs on this machine"):
        connection.connect("auto")
