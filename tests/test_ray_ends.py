"""When a part of the Ray that a command has started dies: one sentence, an exit code of its own, and nothing lost."""

import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import wait_until

from inosgm._supervised import RAY_GONE, RayGone
from inosgm.doctor import State, examine
from inosgm.jobs import Store
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
TESTS = str(Path(__file__).parent)
HOLD = """
import os, patience, sys
def hold(module):
    patience.wait_until(lambda: os.getppid() != int(os.environ["RAY_RAYLET_PID"]))  # its Ray has ended
    os._exit(0)

def say_when_connected(module):
    tell = module.tell
    def told(**facts):
        tell(**facts)
        if "processes" in (facts.get("ray") or {}):
            open("connected", "w").close()
    module.tell = told

if not any(word.endswith("default_worker.py") for word in sys.orig_argv):
    patience.after_import("ray_jobs.connection", say_when_connected)
elif os.environ.get("HOLD_WORKERS"):
    patience.after_import("ray_jobs", hold)
"""
"""Keeps workers of a Ray from ever doing anything: what dies then dies before the command can be done."""

COMMANDS = {
    "train": ("raylet", "train run.yaml --seeds 2 --address local --store train"),
    "stats": ("runtime env agent", "stats mean t.csv --column wage --bounds 0 1 --owners owners.csv --owner clinic"),
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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), TESTS, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def begin(here, start):
    """Starts commands."""
    return lambda words, **variables: start("-m", "inosgm", *words.split(), env={**os.environ, **variables})


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


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("name", COMMANDS)
def test_what_died_is_said_and_the_same_command_resumes(here, begin, name):
    """Fails on 76c85f1: exit code 1 after pages of Ray's, and nothing said."""
    part, words = COMMANDS[name]
    if name == "stats":
        words += " --address local --store stats --ledger ledger"
    process = begin(words, HOLD_WORKERS="1")
    os.kill(part_of_ray(process, part), signal.SIGKILL)
    code, out, err = process.ended()
    assert code == RAY_GONE, err
    died = rf"the {part} of the Ray that this command had started died"
    died += r"( \(was there memory\?\)|, and its raylet with it)"
    resumes = f"nothing is lost, and the same command resumes: python -m inosgm {words}"
    assert re.fullmatch(rf"error: {died}; {re.escape(resumes)}", err.splitlines()[-1])
    assert "raylet" not in out  # which Ray writes pages about to stdout
    assert out == "" or "--json" not in words
    if name == "train":
        code, _, err = begin(words).ended()
        assert code == 0, err
        assert len(Store("train").results()) == len(Store("train").charges()) == 2


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
    [cluster] = [finding for finding in examine() if finding.part == "ray"]
    place = connection.found("auto")
    assert connection.listens(place)
    assert (cluster.state, cluster.about) == (State.good, f"{place} answers: --address auto uses it")
    assert embedded_ray["address"]
