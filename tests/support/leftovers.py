"""A pytest plugin: a resource that our code does not close fails the test that made it, one of a library does not.

Warnings are errors in tests. Python raises a ResourceWarning where it finalizes a file, a socket or a process that
nobody has closed. If the garbage collector does so, that is while whichever test happens to run: a process that Ray
keeps would fail a test of something else. So the creation of every such object is recorded: the code that asked for
it, and the test that ran. Exceptions in finalizers and threads are passed on to pytest, which fails the running test,
if they are ours; those of libraries are dropped. Where a test has left something open, garbage is collected at its end.
"""

import gc
import os
import subprocess
import sys
import sysconfig
import threading
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakSet

import pytest

STANDARD = os.path.join(sysconfig.get_path("stdlib"), "")
LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
"""What the path of a file of an installed package contains."""


@dataclass(frozen=True)
class Origin:
    """Who asked for a resource: our code or a library, and while which test."""

    ours: bool
    test: str


class Leftovers:
    """Records which code creates files, sockets and processes, and tells leftovers of ours from those of libraries."""

    def __init__(self):
        self._origins = {}  # by id for processes and sockets, by path for files
        self._processes = WeakSet()
        self._failed = set()
        self._collecting = False

    def audit(self, event, arguments):
        """Record who creates a resource: Python calls this hook while one is created."""
        if event == "open" and isinstance(arguments[0], str | bytes):
            self._origins[os.fsdecode(arguments[0])] = _origin(sys._getframe(1))
        elif event == "socket.__new__":
            self._origins[id(arguments[0])] = _origin(sys._getframe(1))
        elif event == "subprocess.Popen":
            frame = sys._getframe(1)
            while not isinstance(frame.f_locals.get("self"), subprocess.Popen):
                frame = frame.f_back
            process, origin = frame.f_locals["self"], _origin(frame)
            if origin.ours:
                self._processes.add(process)
            for part in (process, process.stdin, process.stdout, process.stderr):
                while part is not None:
                    self._origins[id(part)] = origin
                    part = getattr(part, "buffer", getattr(part, "raw", None))  # the file below, which is what warns

    def collecting(self, phase, _):
        """Note whether the garbage collector runs: it calls this before and after."""
        self._collecting = phase == "start"

    def failed(self, test):
        """Note that a test has failed: its leftovers must not fail another one."""
        self._failed.add(test)

    def open_now(self):
        """Return what this process has open, and the processes that our code has started and not waited for."""
        found = {process for process in self._processes if process.returncode is None}
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # what was listed may be closed: the directory itself is
                found.add((number, os.readlink(f"/proc/self/fd/{number}")))
        return found

    def is_ours(self, unraisable):
        """Say whether an exception that nobody can catch, such as one in a finalizer, is ours."""
        frames = _frames(unraisable.exc_traceback)
        codes = _ours_first(frames)
        if hasattr(unraisable.object, "cr_code"):  # a coroutine that was never awaited
            codes.append(unraisable.object.cr_code)
        decided = _decide(codes)
        if decided is not None:
            return decided
        for thing in _things(unraisable.object, frames):
            origin = self._origins.get(id(thing)) or self._origins.get(_path(thing))
            if origin is not None:
                return origin.ours and origin.test not in self._failed
        # If the garbage collector has found it, the code that runs has nothing to do with it.
        return not self._collecting and bool(_decide(frame.f_code for frame in _stack(sys._getframe(1))))


def _decide(codes):
    """Say whether the first code outside of the standard library is ours; None if there is none."""
    for code in codes:
        if any(part in code.co_filename for part in LIBRARIES):
            return False
        if not code.co_filename.startswith((STANDARD, "<")):
            return True
    return None


def _origin(frame):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return Origin(ours=bool(_decide(frame.f_code for frame in _stack(frame))), test=test)


def _stack(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def _frames(traceback):
    """Return the frames that an exception went through, without those that still run: they were only interrupted."""
    found, interrupted = [], set(_stack(sys._getframe(1)))
    while traceback is not None:
        found.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return [frame for frame in found if frame not in interrupted]


def _ours_first(frames):
    """Return the code of frames, so that ours decides: an exception in it is ours, whoever has called it."""
    return sorted((frame.f_code for frame in frames), key=lambda code: not _decide([code]))


def _things(thing, frames):
    """Return what may have been left: the object that was finalized, and what it holds, as an event loop sockets."""
    for one in (thing, *(frame.f_locals.get("self") for frame in frames)):
        yield one
        yield from getattr(one, "__dict__", {}).values()


def _path(thing):
    name = getattr(thing, "name", None)
    return os.fsdecode(name) if isinstance(name, str | bytes) else None


LEFTOVERS = Leftovers()
sys.addaudithook(LEFTOVERS.audit)
gc.callbacks.append(LEFTOVERS.collecting)


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """Put a filter before the hooks with which pytest has just replaced Python's."""
    finalizing, in_thread = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda about: finalizing(about) if LEFTOVERS.is_ours(about) else None
    threading.excepthook = lambda about: (
        None if _decide(_ours_first(_frames(about.exc_traceback))) is False else in_thread(about)
    )


def pytest_runtest_logreport(report):
    if report.failed:
        LEFTOVERS.failed(report.nodeid)


@pytest.fixture(autouse=True)
def _collect_garbage():
    """Finalize what a test has left open at its end, so that it fails this test and no other."""
    if not os.path.isdir("/proc/self/fd"):
        yield
        return
    before = LEFTOVERS.open_now()
    yield
    if LEFTOVERS.open_now() - before:
        gc.collect()
