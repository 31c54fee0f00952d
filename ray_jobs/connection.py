"""To which Ray this process belongs."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import ray
from ray._private.services import find_bootstrap_address

REACH = 10.0
"""Seconds within which a given address must take a connection; Ray itself would try for many minutes."""


def connect(address: str | None) -> Callable[[], None]:
    """Connect this process to a Ray, unless it is connected to one.

    A Ray that is started here keeps objects for which it has no memory in a directory that only its user can read: the
    data of a task are among them.

    Returns:
        What undoes it: it stops a Ray that was started here, and leaves any other alone.

    Raises:
        ConnectionError: if no Ray answers.
    """
    if ray.is_initialized():
        return lambda: None
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)  # Ray puts its own in its place, which ends the process
    try:
        with ExitStack() as undo:
            private = undo.enter_context(TemporaryDirectory(prefix="inosgm-ray-", ignore_cleanup_errors=True))
            ray.init(
                _reached(address),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_spilling_directory=private,  # of no effect on a Ray that others have started
            )
            undo.callback(ray.shutdown)
            return undo.pop_all().close
    except OSError as error:
        raise ConnectionError(
            f"no Ray could be reached at address={address!r} ({error}). Does it run, and does it ask for a token "
            "(RAY_AUTH_MODE=token makes this process send one)? address='local' starts a Ray on this machine"
        ) from error
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)


def _reached(address: str | None) -> str | None:
    """Return the address, where something listens there; a Ray that was started here once and is gone does not count.

    Raises:
        OSError: if nothing listens at an address that names a host and a port.
    """
    named = os.environ.get("RAY_ADDRESS") or address if address in (None, "auto") else address
    last = find_bootstrap_address(None) if named is None else None  # of the last `ray start` on this machine
    host, _, port = (named or last or "").rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return address
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except OSError:
        if last is None:
            raise
        return "local"
    return address
