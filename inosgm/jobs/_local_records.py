"""Records as files of a directory, on a disk or a shared file system."""

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from inosgm._internal.files import sync_directory
from inosgm.jobs._record_rules import DRAFT, TRIAL, checked, prove_exclusive, unfit

DAY = 86400.0
"""Seconds after which a draft has no living writer: none takes a day for one record."""

ADVICE = {
    errno.EROFS: "can only be read: mount it for writing, or choose another store",
    errno.EACCES: "may not be used by this user: change its permissions, or choose another store",
    errno.EPERM: "may not be used by this user: change its permissions, or choose another store",
    errno.ENOSPC: "is full: free some space there and start again; finished work is kept",
    errno.EDQUOT: "is over its quota: free some space there and start again; finished work is kept",
    errno.ENOTDIR: "is not a directory, or a part of this name is a record: choose another store",
}
# What file systems without hard links answer.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class LocalRecords:
    """Records as files of a directory, on a disk or a shared file system with hard links.

    Guarantee: a record is written to a draft first, made durable, and then linked to its name, which the file system
    refuses if the name is taken. So a record is whole or not there at all, whenever a writer or the machine stops, and
    one creator wins, on whatever machine. `sweep` removes the drafts that killed writers have left.
    """

    def __init__(self, path: str) -> None:
        self.uri = os.path.abspath(os.path.expanduser(path))

    def create(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Write a draft, then link it to its name, which fails if the name is taken."""
        self._write(name, content, secret, self._link)

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Write a draft, then rename it."""
        self._write(name, content, secret, os.replace)

    def read(self, name: str) -> bytes:
        """Read a file."""
        path = self._path(name)
        with self._explained(name):
            chances = 5  # a record is replaced every few seconds at most, so two races in a row are rare
            while True:
                try:
                    with open(path, "rb") as file:
                        return file.read()
                except OSError as error:
                    chances -= 1
                    if error.errno != errno.ESTALE or not chances:  # NFS: replaced by another machine while open
                        raise

    def names(self, under: str = "") -> list[str]:
        """List all files but drafts."""
        folder = f"{checked(under)}/" if under else ""
        with self._explained(under):
            return sorted(name for name in self._walk(folder) if not _file(name).startswith("."))

    def remove(self, name: str) -> None:
        """Delete a file, durably: it may be a secret."""
        path = self._path(name)
        with self._explained(name), suppress(FileNotFoundError):
            os.unlink(path)
            sync_directory(path)

    def clear(self, under: str) -> None:
        """Delete drafts."""
        with self._explained(under):
            for name in self._walk(f"{checked(under)}/"):
                if _file(name).startswith(DRAFT):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{self.uri}/{name}")

    def sweep(self, over: Callable[[str], bool]) -> None:
        """Delete the drafts that no living writer needs.

        A draft with a second link has become a record: its writer has nothing left to do but to delete it. A draft that
        is `over` belongs to nothing that anybody still writes. Any other draft may have a living writer, who would have
        to write it again; it is deleted after a day, by the clock of the file system.
        """
        with self._explained(""):
            hidden = [name for name in self._walk("") if _file(name).startswith((DRAFT, TRIAL))]
            now = self._clock() if hidden else 0.0
            for name in hidden:
                path = f"{self.uri}/{name}"
                with suppress(FileNotFoundError):
                    found, draft = os.stat(path), _file(name).startswith(DRAFT)
                    if (draft and (found.st_nlink > 1 or over(name))) or now - found.st_mtime > DAY:
                        os.unlink(path)

    def probe(self) -> None:
        """Create records twice, in turn and at once."""
        prove_exclusive(self)

    def _path(self, name: str) -> str:
        return f"{self.uri}/{checked(name)}"

    def _write(self, name: str, content: bytes, secret: bool, place: Callable[[str, str], None]) -> None:
        """Write a draft and place it; write another if it was swept: its job is over, or this process slept a day."""
        path = self._path(name)
        with self._explained(name):
            while True:
                draft = self._draft(path, content, secret)
                try:
                    place(draft, path)
                except FileNotFoundError:
                    continue
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(draft)
                break
            sync_directory(path)

    def _draft(self, path: str, content: bytes, secret: bool) -> str:
        """Write a new file next to a path, durably but for its name, which need not last."""
        draft = f"{os.path.dirname(path)}/{DRAFT}{secrets.token_hex(8)}"
        flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o660
        try:
            descriptor = os.open(draft, flags, mode)
        except FileNotFoundError:
            _make_directory(os.path.dirname(path))
            descriptor = os.open(draft, flags, mode)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
        return draft

    def _link(self, draft: str, path: str) -> None:
        """Give a draft its name."""
        try:
            os.link(draft, path)
        except FileExistsError:
            if os.stat(draft).st_nlink < 2:  # else NFS has linked it, lost its answer and asked again: open(2), O_EXCL
                raise
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            raise unfit(self.uri, f"its file system has no hard links ({error.strerror})") from error

    def _walk(self, folder: str) -> Iterator[str]:
        """Yield the names of all files below, drafts and other hidden ones too, but not what is in hidden folders."""
        try:
            with os.scandir(f"{self.uri}/{folder}") as entries:
                found = list(entries)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            if not folder:
                raise
            return
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                yield folder + entry.name
            elif not entry.name.startswith("."):
                yield from self._walk(f"{folder}{entry.name}/")

    def _clock(self) -> float:
        """Return the time by the clock of the file system."""
        trial = f"{self.uri}/{TRIAL}{secrets.token_hex(8)}"
        descriptor = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            os.unlink(trial)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Add what to do to errors of the place, as opposed to those of a record."""
        try:
            yield
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "there is a record already", f"{self.uri}/{name}") from None
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no record", f"{self.uri}/{name}") from None
        except OSError as error:
            if error.errno not in ADVICE:
                raise
            advice = f"the store {self.uri} {ADVICE[error.errno]}"
            raise OSError(error.errno, f"{advice} ({error.strerror})", f"{self.uri}/{name}") from error


def _file(name: str) -> str:
    return name.rpartition("/")[2]


def _make_directory(path: str) -> None:
    """Make a directory and those above it, each with a durable name."""
    there = os.path.isdir(os.path.dirname(path))  # asked before: others may make it meanwhile
    try:
        os.mkdir(path)
    except FileNotFoundError:
        if there:
            raise OSError(errno.EACCES, "no folder can be made here", path) from None
        _make_directory(os.path.dirname(path))
        _make_directory(path)
        return
    except FileExistsError:
        return
    sync_directory(path)
