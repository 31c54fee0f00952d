"""To which Ray this process belongs."""

import logging
import signal
import threading

import ray


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
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise ConnectionError(
            f"no Ray could be reached at address={address!r} ({error}). Does it run, and does it ask for a token "
            "(RAY_AUTH_MODE=token makes this process send one)? address='local' starts a Ray on this machine"
        ) from error
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)
    return True
