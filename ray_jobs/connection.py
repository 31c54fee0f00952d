"""To which Ray this process belongs."""

import logging
import os
import signal
import socket
import threading

import ray

REACH = 10.0
"""Seconds within which a given address must take a connection; Ray itself would try for many minutes."""


def connect(address: str | None) -> bool:
    """Connect this process to a Ray, unless it is connected to one, and say whether that was done here.

    `ray.shutdown()` undoes what was done here: it stops a Ray that was started here, and leaves any other alone.

    Raises:
        ConnectionError: if no Ray answers.
    """
    if ray.is_initialized():
        return False
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)  # Ray puts its own in its place, which ends the process
    try:
        _reach(os.environ.get("RAY_ADDRESS") or address if address in (None, "auto") else address)
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except OSError as error:
        raise ConnectionError(
            f"no Ray could be reached at address={address!r} ({error}). Does it run, and does it ask for a token "
            "(RAY_AUTH_MODE=token makes this process send one)? address='local' starts a Ray on this machine"
        ) from error
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)
    return True


def _reach(address: str | None) -> None:
    """Raise OSError unless something listens at an address that names a host and a port."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
