"""The connection of this process to a Ray."""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import ray
from ray._private import services, utils, worker

from inosgm._internal.scratch import scratch_directory
from inosgm.jobs.clusters import ESSENTIAL, RayGone, tell_supervisor

REACH = 10.0
"""Seconds within which a given address must accept a connection; Ray itself would try for many minutes."""


def connect(address: str | None) -> Callable[[], None]:
    """Connect this process to a Ray, unless it is connected to one.

    A Ray that is started here spills objects to a directory that only its user can read: they include the data of a
    task.

    Returns:
        A function that disconnects: it stops a Ray that was started here, and no other.

    Raises:
        ConnectionError: if no Ray answers.
        RayGone: if one that is started here does not come up.
    """
    if ray.is_initialized():
        return lambda: None
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


def require_raylet() -> None:
    """Raise if the raylet that this process is connected to is gone: Ray itself says so after a quarter of a minute.

    Raises:
        RayGone: if nothing listens at its port.
    """
    node: Any = worker._global_node
    if node is not None and not listens(f"{node.node_ip_address}:{node.node_manager_port}"):
        address = ray.get_runtime_context().gcs_address
        raise RayGone(f"the Ray at {address}, or its part on this machine, ended")


def _initialized(address: str | None) -> Callable[[], None]:
    """Connect this process to a Ray, and return what undoes it."""
    with ExitStack() as undo:
        private = undo.enter_context(scratch_directory("ray"))
        undo.enter_context(_silent())
        undo.callback(tell_supervisor, ray=None)
        tell_supervisor(ray={"address": address, "spilled": private})
        with _replaced(utils, "set_sigterm_handler"):  # Ray's own would end the process, with 15 as its exit code
            ray.init(
                address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_spilling_directory=private,  # of no effect on a Ray that others have started
            )
        undo.callback(ray.shutdown)
        undo.callback(tell_supervisor, ray=None)  # before it is stopped: what ends now is meant to
        tell_supervisor(ray=_about() | {"spilled": private})
        return undo.pop_all().close


def _about() -> dict[str, Any]:
    """Return what the process that watches this one should know about the Ray: which, and its essential processes."""
    node = worker._global_node
    started: Any = {} if node is None else node.all_processes  # none of a Ray that others have started
    processes = {name: started[name][0].process.pid for name in ESSENTIAL if started.get(name)}
    session = None if node is None else node.get_session_dir_path()
    address = ray.get_runtime_context().gcs_address
    return {"address": address, "processes": processes, "session": session}


def _silent() -> AbstractContextManager[None]:
    """Keep Ray from printing pages about nodes to stdout, where a result may be JSON; Ray's logs have them."""
    return _replaced(worker, "print_to_stdstream")


@contextmanager
def _replaced(module: Any, name: str) -> Iterator[None]:
    """Replace a function of Ray by one that does nothing."""
    before = getattr(module, name)
    setattr(module, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(module, name, before)


def found(address: str | None) -> str | None:
    """Return which Ray an address stands for, as Ray itself finds it; None where one is to be started.

    Args:
        address: None for the Ray of RAY_ADDRESS or of the last `ray start` here, "auto" for one that runs here as well,
            whatever its --temp-dir is, "local" to start one, or the address of a cluster.

    Raises:
        ConnectionError: for "auto", if none runs.
        ValueError: for "auto", if several run: Ray itself takes any of them, which may be that of another command.
    """
    if address in (None, "auto"):
        address = os.environ.get("RAY_ADDRESS") or address
    if address == "auto":
        return _running()
    if address is None:
        address = services.find_bootstrap_address(None)
    return None if address == "local" else address


def _running() -> str:
    """Return the Ray of the last `ray start` here; if there is none, the only one that runs on this machine."""
    last = services.find_bootstrap_address(None)
    if last is not None and listens(last):
        return str(last)
    seen = sorted(services.find_gcs_addresses())  # type: ignore[no-untyped-call]
    running = [place for place in seen if listens(place)]
    if len(running) > 1:
        several = ", ".join(running)
        raise ValueError(f"--address auto may be any of {several}, which run on this machine: name one of them")
    places = [*running, *filter(None, [last]), *seen]  # where none runs, say which one is gone
    if not places:
        raise ConnectionError("none runs on this machine")
    return str(places[0])


def listens(place: str, seconds: float = REACH) -> bool:
    """Return whether an address with host and port accepts connections; True for any other address."""
    host, _, port = place.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


def _reached(address: str | None) -> str | None:
    """Return where something listens; a Ray that was started here once and is gone does not count.

    Raises:
        OSError: if nothing listens at an address that names a host and a port.
    """
    place = found(address)
    if place is None:
        return address
    if listens(place):
        return place
    if address is None and not os.environ.get("RAY_ADDRESS"):
        return "local"
    raise ConnectionError(f"nothing listens at {place}")
