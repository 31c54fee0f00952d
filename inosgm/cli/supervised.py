"""Supervision of a command that uses Ray: it works in a second process, because Ray may end that without a message.

When the raylet of this machine, one of its agents or the GCS dies, Ray's library ends every process that is connected
to it, in C++: no `except`, `finally` or `atexit` of Python runs. So the first process only
supervises: it starts a second one that does the work, passes signals on, and prints what died if the second one ends
without having sent its exit code.
"""

import json
import os
import re
import selectors
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from inosgm.jobs.clusters import supervised_through, tell_supervisor

RAY_GONE = 4
"""The exit code of a command whose Ray died, or did not start, or whose process that worked with it was killed."""

SHOW_CURSOR = "\x1b[?25h\n"
"""Shows the cursor again that a progress bar has hidden: its process was killed before it could."""

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
"""Signals that users, terminals and batch systems send to end a command; the second process decides what they mean."""


def supervised(work: Callable[[], None]) -> None:
    """Do work in a second process, and end as it ends; if Ray ended it, print what died and exit with `RAY_GONE`.

    Where processes cannot be forked, this one does the work.
    """
    if not hasattr(os, "fork"):
        work()
        return
    reader, writer = os.pipe()
    parent = os.getpid()
    worker = os.fork()
    if worker:
        os.close(writer)
        _Watch(worker, reader).until_the_end()
    os.close(reader)
    supervised_through(writer)
    _end_with(parent)
    os.setpgid(0, 0)  # signals to a group, such as Ctrl-C, come through the process that watches, once
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or else `stty tostop` stops what another group of the terminal says
    code = 1  # that of a traceback
    try:
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    finally:
        tell_supervisor(code=code)


def resuming(why: str) -> str:
    """Return the sentence for a command that Ray ended: why, that nothing is lost, and which command resumes."""
    return f"error: {why}; nothing is lost, and the same command resumes: {_typed(sys.orig_argv[1:])}"


def without_key(word: str) -> str:
    """Return a word of a command line as logs may have it."""
    return re.sub(r"^(--key=|--set=key=|key=).*", r"\1...", word)


def _typed(words: Sequence[str]) -> str:
    """Return a command as it was typed, without a key."""
    words = ["python", *words] if words[0] == "-m" else [Path(words[0]).name, *words[1:]]
    after = ["", *words]
    shown = ["..." if before == "--key" else without_key(word) for before, word in zip(after, words, strict=False)]
    return shlex.join(shown)


def _end_with(parent: int) -> None:
    """Have this process killed with the one that supervises it: killing a command means all of it."""
    import ctypes

    with suppress(OSError, AttributeError):  # which only Linux has
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # it was killed before prctl took effect


class _Watch:
    """The process that supervises.

    Args:
        worker: The process that works.
        reader: The line from it.
    """

    def __init__(self, worker: int, reader: int) -> None:
        self._worker, self._reader = worker, reader
        self._told, self._rest = dict[str, Any](), b""
        self._passed: set[int] = set()
        self._dead: list[str] = []
        self._killed = False

    def until_the_end(self) -> None:
        """Wait until the worker has ended, and end like it."""
        for name in PASSED_ON:
            signal.signal(getattr(signal, name), self._pass_on)
        signal.signal(signal.SIGTSTP, self._pause)
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            while self._hear(selector):
                pass
        _, status = os.waitpid(self._worker, 0)
        code = os.waitstatus_to_exitcode(status)
        if "code" in self._told:  # even if threads of libraries crashed after that
            os._exit(self._told["code"])
        about = self._told.get("ray") or {}
        shutil.rmtree(about.get("spilled", ""), ignore_errors=True)
        if -code in self._passed:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        shown = SHOW_CURSOR if os.isatty(2) else ""
        with suppress(OSError):  # stderr has no reader, or its disk is full
            os.write(2, f"{shown}{resuming(self._why(code, about))}\n".encode())
        os._exit(RAY_GONE)

    def _hear(self, selector: selectors.BaseSelector) -> bool:
        """Wait for a message of the worker, or for a process of its Ray to end; return whether the worker is there."""
        ready = [key.data for key, _ in selector.select()]  # Linux lists first what happened first
        if None in ready[:1]:  # a worker that leaves Ray sends that before Ray's processes end
            return self._take(selector)
        if ready:
            self._unwatch(selector)
            self._dead = list(takewhile(lambda name: name is not None, ready))
            if not _ended(self._worker):  # Ray would end it as well, but only after a minute if the GCS is gone
                self._killed = True
                os.kill(self._worker, signal.SIGKILL)
        return True

    def _take(self, selector: selectors.BaseSelector) -> bool:
        """Take messages of the worker; return whether it is there."""
        read = os.read(self._reader, 1 << 16)
        *lines, self._rest = (self._rest + read).split(b"\n")
        for line in lines:
            facts = json.loads(line)
            self._told |= facts
            if "ray" in facts:
                self._unwatch(selector)
                for name, process in (facts["ray"] or {}).get("processes", {}).items():
                    with suppress(OSError, AttributeError):  # which only Linux has
                        selector.register(os.pidfd_open(process), selectors.EVENT_READ, data=name)
        return bool(read)

    def _unwatch(self, selector: selectors.BaseSelector) -> None:
        for key in list(selector.get_map().values()):
            if key.data is not None:
                selector.unregister(key.fileobj)
                os.close(key.fd)

    def _why(self, code: int, about: dict[str, Any]) -> str:
        """Return what ended the worker."""
        by_others = code < 0 and code != -signal.SIGABRT and not self._killed  # Ray's library exits, or aborts
        if by_others or not about:  # the Ray that it had started then ended with it
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return f"process {self._worker}, which worked for this command, ended with {how} (was there memory?)"
        if "processes" not in about:
            return f"Ray ended while this command was connecting to it (--address {about['address']})"
        if not about["processes"]:
            return f"the Ray at {about['address']}, or its part on this machine, ended"
        agent = _failed_agent(about.get("session"))
        if agent:
            return f"the {agent} of the Ray that this command had started died, and its raylet with it"
        # If the worker ended before anything was seen to end, the raylet did: without a GCS, it ends a minute later.
        what = " and ".join(f"the {name}" for name in self._dead or ["raylet"]).replace("gcs_server", "GCS server")
        return f"{what} of the Ray that this command had started died (was there memory?)"

    def _pass_on(self, number: int, _: Any) -> None:
        self._passed.add(number)
        with suppress(ProcessLookupError):
            os.kill(self._worker, number)

    def _pause(self, *_: Any) -> None:
        """Stop both processes, as Ctrl-Z does, and continue both."""
        os.kill(self._worker, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.kill(self._worker, signal.SIGCONT)


def _ended(process: int) -> bool:
    """Return whether the main thread of a process has ended; other threads may still hold its files."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return False


def _failed_agent(session: str | None) -> str:
    """Return which agent took the raylet with it, from Ray's log; nothing if none did."""
    with suppress(OSError, TypeError):
        found = re.search(r"one Ray agent failed, agent_name = (\w+)", Path(session, "logs", "raylet.err").read_text())  # type: ignore[arg-type]
        return found[1].replace("_", " ") if found else ""
    return ""
