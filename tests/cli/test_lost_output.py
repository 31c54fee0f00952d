"""An answer that was paid for is not lost where stdout goes wrong, and the exit code is not that of a mistake."""

import json
import os
import subprocess
import sys

import pytest

from inosgm.ledger.ledger import Ledger

ROWS = 40
COMMAND = (
    "stats mean t.csv --column wage --bounds 0 1 --budgets owners.csv --owner-column clinic --ledger ledger --quiet"
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("wage,clinic\n" + "".join(f"0.{row},{'ab'[row % 2]}\n" for row in range(ROWS)))
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta\na,1,1e-5\nb,2,1e-5\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*more, stdout, **how):
    """Run the command with a stdout, which is closed here, and return its exit code and stderr."""
    command = [sys.executable, "-m", "inosgm", *COMMAND.split(), *more]
    try:
        found = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, **how)
    finally:
        os.close(stdout)
    return found.returncode, found.stderr


def full():
    """Return a file on a disk without space."""
    return os.open("/dev/full", os.O_WRONLY)


def broken():
    """Return a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


@pytest.mark.parametrize(
    ("stdout", "why"),
    [
        (broken, "broken pipe"),
        pytest.param(full, "no space left on device", marks=needs_full),
    ],
)
def test_an_answer_that_stdout_does_not_take_goes_to_stderr(here, stdout, why):
    """Fails on 76c85f1: nothing was said about a broken pipe, and a full disk was a mistake, exit code 2."""
    code, told = run(stdout=stdout())
    assert code == 1
    assert told.startswith(f"error: stdout cannot be written to ({why}): the result, which was paid for, is\n")
    assert "mean over all 40 records, each counting once" in told
    assert len(Ledger("ledger").history()) == 1


@needs_full
def test_a_full_disk_is_no_mistake_either_before_anything_is_charged(here):
    """Fails on 09c50e1: exit code 2, as for a mistake."""
    command = [sys.executable, "-m", "inosgm", *COMMAND.removesuffix(" --quiet").split()]
    with open("/dev/full", "w") as stdout:
        found = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr == "error: stdout, stderr or a file: no space left on device\n"
    assert not os.path.exists("ledger")


@needs_full
@pytest.mark.parametrize("how", ["full", "closed"])
def test_a_mistake_is_a_mistake_if_stderr_does_not_take_it(here, how):
    """Fails on 09c50e1 for a full disk: exit code 1."""
    with open("/dev/full", "w") as stderr:
        close = (lambda: os.close(2)) if how == "closed" else None
        command = [sys.executable, "-m", "inosgm", "train", "none.yaml"]
        found = subprocess.run(command, stderr=stderr, check=False, preexec_fn=close)
    assert found.returncode == 2


def test_no_file_gets_the_number_of_a_closed_stream(here):
    """Fails on 09c50e1: a ledger was opened as number 2, to which libraries in C write."""
    script = (
        "import json, os, sys, inosgm.cli.program as cli\n"
        "def told(_):\n"
        "    facts = os.open('any', os.O_CREAT), sys.stdout is None, sys.stderr is None\n"
        "    os.write(7, json.dumps(facts).encode())\n"
        "cli.main = told\n"
        "cli.program()"
    )
    reader, writer = os.pipe()

    def closed():
        os.dup2(writer, 7)
        os.closerange(0, 3)

    subprocess.run([sys.executable, "-c", script], preexec_fn=closed, close_fds=False, check=True)
    os.close(writer)
    with open(reader) as told:
        number, no_stdout, no_stderr = json.load(told)
    assert number > 2
    assert (no_stdout, no_stderr) == (True, False)


def test_an_answer_that_is_kept_elsewhere_is_not_shown(here):
    """Fails on 76c85f1: the file was written after stdout only."""
    assert run("--output", "answer.json", stdout=broken()) == (1, "")
    assert "standard_error" in (here / "answer.json").read_text()


def test_a_closed_stdout_is_a_mistake_before_anything_is_charged(here):
    """Fails on 76c85f1: the answer was paid for, and shown to nobody, with exit code 0."""
    code, told = run(stdout=os.open(os.devnull, os.O_WRONLY), preexec_fn=lambda: os.close(1))
    assert (code, told.startswith("error: stdout is closed, so nobody would see the answer")) == (2, True)
    assert not os.path.exists("ledger")
