"""Temporary directories of a computation; if its process is killed, the next process deletes them."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

PREFIX = "inosgm-scratch-"


@contextmanager
def scratch_directory(purpose: str) -> Iterator[str]:
    """Make a directory that only this user can read, and delete it afterwards.

    Its process holds a lock on it, which the system takes away when the process ends, in whatever way. A directory
    without a lock was left by a process that was killed, and may hold secrets: it is deleted here first.

    Args:
        purpose: A word that becomes a part of its name.
    """
    _sweep()
    folder, lock = _locked(purpose)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(purpose: str) -> tuple[str, int]:
    """Return a new directory and the descriptor that holds its lock."""
    while True:
        folder = mkdtemp(prefix=f"{PREFIX}{purpose}-")
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # no locks here, so that nobody deletes what others have left
                fcntl.flock(lock, fcntl.LOCK_EX)  # waits for a process that sweeps, and has just deleted it
            if os.path.exists(folder):
                return folder, lock
            os.close(lock)


def _sweep() -> None:
    """Delete the directories of this user that nobody holds."""
    for folder in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # gone meanwhile, or of another user
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
