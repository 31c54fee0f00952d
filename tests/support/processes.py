"""Processes that tests start: a pytest plugin that ends every one of them with its test, whatever becomes of the test.

The fixture `start` starts one. Any other that a test starts, and any that those start, is found by a variable in its
environment and killed when the test ends.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

MARK = "INOSGM_TEST"
"""The variable that says which test a process belongs to."""

KEPT = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")
"""What the command line of a process contains that Python starts once and keeps for later tests."""


class Process(subprocess.Popen):
    """A process in a session of its own, whose output is text."""

    def __init__(self, words, **options):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        super().__init__([str(word) for word in words], start_new_session=True, **{**streams, **options})

    def ended(self):
        """Wait for its end, however long it takes, and return exit code, stdout and stderr."""
        out, err = self.communicate()
        return self.returncode, out, err

    def end(self):
        """Kill it and its group, and close what leads to it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@pytest.fixture
def start():
    """Start Python with words for its command line, as a `Process`; it is killed when the test ends."""
    started = []

    def begin(*words, **options):
        started.append(Process([sys.executable, *words], **options))
        return started[-1]

    yield begin
    for process in started:
        process.end()


def _everybody():
    with suppress(FileNotFoundError):  # only Linux has it
        return {name for name in os.listdir("/proc") if name.isdecimal()}
    return set()


def _belongs(process, mark):
    """Say whether a process that runs was started by this one, or by one that it had started."""
    place = Path("/proc", process)
    try:
        state, parent, *_ = (place / "stat").read_text().rpartition(")")[2].split()
        if state in "ZX":
            return False
        if int(parent) == os.getpid():
            return not any(word in (place / "cmdline").read_bytes() for word in KEPT)
        return mark in (place / "environ").read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return False


@pytest.fixture(autouse=True)
def _end_all_processes():
    """Kill, at the end of a test, all that it has started and that still runs.

    Fixtures of wider scope are set up before this one, so that their processes live on.
    """
    mark, before = uuid4().hex, _everybody()
    os.environ[MARK] = mark
    yield
    del os.environ[MARK]
    while left := [int(one) for one in _everybody() - before if _belongs(one, f"{MARK}={mark}".encode())]:
        for process in left:  # again until none is left: a process may start another one meanwhile
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
