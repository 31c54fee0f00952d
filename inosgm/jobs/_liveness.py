"""Whether the process that has begun an attempt is still there."""

import os
import socket
from pathlib import Path
from time import monotonic
from typing import Any

Place = dict[str, Any]


def here() -> Place:
    """Return the identity of this process, for processes that see the same process ids."""
    return {
        "host": socket.gethostname(),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "pids": _link("/proc/self/ns/pid"),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def gone(place: Place) -> bool:
    """Return whether a process is certainly gone; one that is invisible from here is not certainly gone."""
    now = here()
    if not place["boot"] or any(place[name] != now[name] for name in ("host", "boot", "pids")):
        return False
    return _started(int(place["pid"])) != str(place["started"])


def _started(pid: int) -> str:
    """Return the start time of a process, which distinguishes it from a later one with its id; "" if it is gone."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


class Pulse:
    """The time since a value last changed, by the clock of this process: clocks of other machines may be wrong."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[Any, float]] = {}

    def silence(self, of: Any, value: Any) -> float:
        """Return for how many seconds a value has been the same in all calls."""
        known = self._seen.get(of)
        if known is None or known[0] != value:
            known = self._seen[of] = value, monotonic()
        return monotonic() - known[1]
