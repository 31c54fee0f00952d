"""Ctrl-C once, or SIGTERM: finish cleanly. Ctrl-C after that: stop at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import FrameType

_asked: list[int] = []


def asked() -> bool:
    """Return whether this process was asked to finish; cheap."""
    return bool(_asked)


@contextmanager
def deferred() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM only be noted, and a SIGINT after that raise KeyboardInterrupt.

    A second SIGTERM changes nothing: `timeout` sends it to the process and to its group. SIGKILL stops at once.
    Signals come to the main thread; in any other nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, _: FrameType | None) -> None:
        _asked.append(number)
        if len(_asked) > 1 and number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.clear()


def pause(seconds: float) -> None:
    """Sleep, but not through a request to finish."""
    end = monotonic() + seconds
    while not _asked and (left := end - monotonic()) > 0:
        sleep(min(left, 0.1))  # a handler that only sets a flag does not wake it: nobody waits longer than this
