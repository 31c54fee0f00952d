"""To which Ray this process belongs."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
from ray._private import worker
from ray._private.services import get_ray_address_from_environment

from inosgm._scratch import scratch_directory
from inosgm._supervised import ESSENTIAL, RayGone, tell

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
        RayGone: if one that is started here does not come up.
    """
    if ray.is_initialized():
        return lambda: None
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)  # Ray puts its own in its place, which ends the process
    starting = False
    try:
        reached = _reached(address)
        starting = reached in (None, "local") and found(reached) is None
        return _initialized(reached)
    except Exception as error:
        about = str(error).strip().partition("\n")[0] or type(error).__name__
        if starting and not isinstance(error, ValueError | TypeError):  # its words differ from place to place in Ray
            raise RayGone(f"Ray did not start on this machine, or not in time ({about})") from error
        if isinstance(error, OSError) or type(error) is Exception:
            raise ConnectionError(
                f"no Ray could be reached at address={address!r} ({about}). Does it run, and does it ask for a token "
                "(RAY_AUTH_MODE=token makes this process send one)? address='local' starts a Ray on this machine"
            ) from error
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)


def _initialized(address: str | None) -> Callable[[], None]:
    """Connect this process to a Ray, and return what undoes it."""
    with ExitStack() as undo:
        private = undo.enter_context(scratch_directory("ray"))
        undo.enter_context(_silent())
        undo.callback(tell, ray=None)
        tell(ray={"address": address, "spilled": private})
        ray.init(
            address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_spilling_directory=private,  # of no effect on a Ray that others have started
        )
        undo.callback(ray.shutdown)
        undo.callback(tell, ray=None)  # before it is stopped: what ends now is meant to
        tell(ray=_about() | {"spilled": private})
        return undo.pop_all().close


def _about() -> dict[str, Any]:
    """Return what the process that watches this one should know about the Ray: which, and its essential processes."""
    node = worker._global_node
    started: Any = {} if node is None else node.all_processes  # none of a Ray that others have started
    processes = {name: started[name][0].process.pid for name in ESSENTIAL if started.get(name)}
    session = None if node is None else node.get_session_dir_path()
    address = ray.get_runtime_context().gcs_address
    return {"address": address, "processes": processes, "session": session}


@contextmanager
def _silent() -> Iterator[None]:
    """Keep Ray from printing pages about nodes to stdout, where a result may be JSON; Ray's logs have them."""
    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def found(address: str | None) -> str | None:
    """Return which Ray an address stands for, as Ray itself finds it; None where one is to be started.

    Args:
        address: None for the Ray of RAY_ADDRESS or of the last `ray start` here, "auto" for any that runs here as well,
            whatever its --temp-dir is, "local" to start one, or the address of a cluster.

    Raises:
        ConnectionError: for "auto", if none runs.
    """
    if address in (None, "auto"):
        address = get_ray_address_from_environment(address, None)  # type: ignore[arg-type]  # it takes None
    return None if address == "local" else address


def listens(place: str, seconds: float = REACH) -> bool:
    """Say whether something takes connections at an address that names a host and a port; True for any other."""
    host, _, port = place.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


def _reached(address: str | None) -> str | None:
    """Return the address, where something listens there; a Ray that was started here once and is gone does not count.

    Raises:
        OSError: if nothing listens at an address that names a host and a port.
    """
    place = found(address)
    if place is None or listens(place):
        return address
    if address is None and not os.environ.get("RAY_ADDRESS"):
        return "local"
    raise ConnectionError(f"nothing listens at {place}")
