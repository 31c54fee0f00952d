"""An append-only file of chained rows: durable, shared by processes, with every kind of damage detected or documented.

Every row is one line of JSON that holds the checksum of the row before it ("previous") and, last, its own. A row is
written in two acts, each made durable with fsync before the next: its bytes, then the newline that ends it. So a last
line without a newline was never acknowledged, whatever it holds, and a defect in a line with its newline is damage. The
rules for reading:

* A line with a newline that does not match its checksum, or the row before it, is damage: an error.
* A last line without newline that is a whole row counts (the writer died before the second act).
* A last line without newline that is a whole row and something more is damage: no writer leaves that.
* Any other last line without newline is torn. It counts for nothing; before the next row is written, its bytes are kept
  in a file beside the journal and a row says so.

The file alone cannot show whole rows cut off its end, a last row cut in the middle (it looks torn; its bytes are kept),
or a chain that was computed again. A head that was noted elsewhere reveals these.
"""

import errno
import io
import json
import os
import re
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Protocol

from inosgm._internal.files import sync_directory
from inosgm._internal.once import Uncopied, this_process

Row = dict[str, Any]

_START = "0" * 64  # stands for the checksum before the first row
_SEAL = re.compile(rb',"checksum":"([0-9a-f]{64})"\}')


class LedgerDamaged(ValueError):
    """A ledger file that was edited, cut or mixed up. It is never repaired automatically."""


class Journal(Protocol):
    """Rows in order, read and extended by one holder of the lock at a time.

    `with journal.turn, file:`, where `file` was returned by `open`, releases both without running a line of Python:
    Ctrl-C may interrupt any Python function on entry, including one that would release a lock.
    """

    heads: list[str]

    turn: threading.RLock
    """Held by the thread that uses the journal."""

    @property
    def torn(self) -> int:
        """Number of bytes at the end that are no whole row, and count for nothing."""

    def open(self, *, write: bool) -> tuple[io.IOBase, list[Row]]:
        """Take the lock, within `turn`; return the file that holds it until it is closed, and the new rows.

        Raises:
            RuntimeError: if this thread holds it already.
        """

    def mend(self) -> list[Row]:
        """Set a torn row aside, within `open(write=True)`; return the row that says so, if any."""

    def append(self, row: Mapping[str, Any]) -> Row:
        """Make a row durable, within `open(write=True)` and after `mend`; return it as it reads."""


class _Held:
    """A weak reference to the file that holds the lock of a journal."""

    def __init__(self) -> None:
        self._file: Callable[[], io.IOBase | None] = lambda: None

    def note(self, file: io.IOBase) -> io.IOBase:
        """Remember the file, and return it."""
        self._file = weakref.ref(file)
        return file

    def get(self) -> io.IOBase | None:
        """Return the file if it is open."""
        file = self._file()
        return None if file is None or file.closed else file

    def require_none(self) -> None:
        """Raise if a file is open: the thread that holds `turn` would use a state that is about to change."""
        if self.get() is not None:
            raise RuntimeError(
                "the ledger was asked from within itself, by an accountant, a signal handler or a finalizer that ran "
                "while it was working something out: nothing was written; ask it afterwards, or from another thread"
            )


class MemoryJournal(Uncopied):
    """A journal that lives as long as its object."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.torn = 0
        self.turn = threading.RLock()
        self._process = this_process()
        self._held = _Held()

    def open(self, *, write: bool) -> tuple[io.IOBase, list[Row]]:
        """Return an empty file and no rows: nobody else writes to memory."""
        if this_process() != self._process:
            raise RuntimeError("a ledger in memory cannot be shared by processes that fork: give it a path")
        self._held.require_none()
        return self._held.note(io.BytesIO()), []

    def mend(self) -> list[Row]:
        """Return no rows: memory does not tear."""
        return []

    def append(self, row: Mapping[str, Any]) -> Row:
        """Chain the row as a file journal does."""
        chained, _, checksum = _seal(row, self.heads)
        self.heads.append(checksum)
        return chained


class FileJournal(Uncopied):
    """A journal in a file, locked with flock (on NFS: Linux, with the lock service running).

    The lock belongs to a process: a child that is forked while it is held neither keeps it nor writes under it.
    """

    def __init__(self, path: str) -> None:
        self.heads: list[str] = []
        self.turn = threading.RLock()
        self._path = path
        self._seen = 0  # bytes of whole rows read so far
        self._ended = True  # whether the last of them has its newline
        self._known = 0, 0, True  # rows, bytes and newline as of the last act that was not interrupted
        self._torn = b""
        self._named = False  # whether the directory entry of the file is known to be durable
        self._held = _Held()
        self._process = this_process()  # the process that has last taken the lock
        _journals.add(self)

    @property
    def torn(self) -> int:
        """Number of bytes at the end that are no whole row, and count for nothing."""
        return len(self._torn)

    @classmethod
    def create(cls, path: str, row: Mapping[str, Any]) -> None:
        """Create the file with its first row, atomically; leave an existing file as it is."""
        draft = f"{path}.new-{secrets.token_hex(8)}"
        _, line, _ = _seal(row, [])
        try:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o660)
            try:
                _write(file, line + b"\n", 0)
                os.fsync(file)
            finally:
                os.close(file)
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
        sync_directory(path)

    def open(self, *, write: bool) -> tuple[io.IOBase, list[Row]]:
        """Return the file, which holds the lock (exclusive to write, else shared), and the new rows."""
        try:
            import fcntl
        except ImportError:
            raise OSError("a ledger in a file needs POSIX file locks: use a ledger in memory here") from None
        self._held.require_none()
        file = io.FileIO(self._path, "r+" if write else "r")
        try:
            self._held.note(file)
            fcntl.flock(file, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
            self._process = this_process()
            self._go_back()
            rows = self._read(file.fileno())
            self._known = len(self.heads), self._seen, self._ended
            return file, rows
        except BaseException as error:  # all or nothing: rows that were not returned must not count as seen
            file.close()
            self._go_back()
            if isinstance(error, OSError):
                error.filename = self._path
            raise

    def _go_back(self) -> None:
        """Forget the reads and writes of an interrupted act: they are read again."""
        rows, self._seen, self._ended = self._known
        del self.heads[rows:]

    def _forked(self) -> None:
        """Forget the lock of the parent process, in a forked child; it stays with the parent."""
        self.turn = threading.RLock()
        file = self._held.get()
        if file is not None:
            file.close()

    @property
    def _descriptor(self) -> int:
        """The file, for the holder of the lock."""
        file = self._held.get()
        if file is None or this_process() != self._process:
            raise RuntimeError(
                f"the ledger {self._path} was locked by the process that this one has forked off from: nothing was "
                "written; fork before or after a charge, not within it"
            )
        return file.fileno()

    def mend(self) -> list[Row]:
        """Move the bytes of a torn row, which was never acknowledged, to a file beside the journal; record it."""
        if not self._torn:
            return []
        with self._explained():
            digest = blake2b(self._torn, digest_size=8).hexdigest()
            kept = f"{self._path}.torn-{len(self.heads)}-{digest}"
            file = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o660)
            try:
                _write(file, self._torn, 0)
                os.fsync(file)
            finally:
                os.close(file)
            sync_directory(kept)
            os.ftruncate(self._descriptor, self._seen)
            os.fsync(self._descriptor)
            size, self._torn = len(self._torn), b""
        return [self.append({"kind": "torn", "bytes": size, "kept": os.path.basename(kept)})]

    def append(self, row: Mapping[str, Any]) -> Row:
        """Write the row, make it durable, and only then write its newline.

        Raises:
            OSError: when the row could not be made durable, such as on a full disk.
            RuntimeError: in a process that has forked off from the one that holds the lock.
        """
        file = self._descriptor
        chained, line, checksum = _seal(row, self.heads)
        start = b"" if self._ended else b"\n"
        end = self._seen + len(start) + len(line)
        with self._explained():
            if not self._named:  # the process that created the file may have died before it synced the directory
                sync_directory(self._path)
                self._named = True
            try:
                _write(file, start + line, self._seen)
                os.fsync(file)
                _write(file, b"\n", end)
                os.fsync(file)
            except OSError:
                # If this fails as well, the next reader finds a torn row, or a whole one that counts.
                with suppress(OSError):
                    os.ftruncate(file, self._seen)
                    os.fsync(file)
                raise
        self._seen, self._ended = end + 1, True
        self.heads.append(checksum)
        self._known = len(self.heads), self._seen, self._ended
        return chained

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                error.errno,
                f"the ledger {self._path} could not be written ({error.strerror}): nothing is released; "
                "make room or repair the disk, and try again",
            ) from error

    def _read(self, file: int) -> list[Row]:
        """Return the rows after those seen before; each is checked."""
        size = os.fstat(file).st_size
        back = 67 if self.heads else 0  # the end of the last row seen: 64 digits of its checksum, '"}' and a newline
        data = _read_all(file, max(self._seen - back, 0), size)
        known, data = data[:back], data[back:]
        if size < self._seen or (self.heads and self.heads[-1].encode() not in known):
            raise LedgerDamaged(
                f"{self._path} no longer holds the {len(self.heads)} rows it held: it was cut or replaced "
                "while in use; put the right file back"
            )
        if not self._ended and data:
            if not data.startswith(b"\n"):
                raise self._damage(len(self.heads), "is followed by something that is not a row")
            data, self._seen, self._ended = data[1:], self._seen + 1, True
        *lines, tail = data.split(b"\n")
        rows = [self._take(line) for line in lines]
        seal, self._torn = _SEAL.search(tail), b""
        if seal and seal.end() < len(tail):
            raise self._damage(len(self.heads) + 1, "does not end where a row ends")
        try:
            rows += [self._unsealed(tail, ended=False)] if tail else []
        except ValueError:  # also a row whose pages reached the disk out of order before a power failure
            self._torn = tail
        if not self.heads:
            raise LedgerDamaged(
                f"{self._path} holds no row: it is not a ledger, or it was cut; put the right file back"
            )
        return rows

    def _take(self, line: bytes) -> Row:
        try:
            return self._unsealed(line, ended=True)
        except ValueError as error:
            raise self._damage(len(self.heads) + 1, str(error)) from None

    def _unsealed(self, line: bytes, *, ended: bool) -> Row:
        row = _unseal(line, len(self.heads) + 1, (self.heads[-1:] or [_START])[0])
        self.heads.append(line[-66:-2].decode())
        self._seen, self._ended = self._seen + len(line) + ended, ended
        return row

    def _damage(self, row: int, what: str) -> LedgerDamaged:
        return LedgerDamaged(
            f"{self._path}: row {row} {what}. The ledger was edited, cut or mixed up, so what it says was "
            "spent cannot be trusted: put back a whole copy"
        )


_journals: "weakref.WeakSet[FileJournal]" = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_journals):
        journal._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _seal(row: Mapping[str, Any], heads: list[str]) -> tuple[Row, bytes, str]:
    """Return the row chained to the last head, its line, and its checksum."""
    now = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
    # "bind" rows carry no time: there is one per step, and the duration of a step depends on the sampled batch.
    timed = {} if row.get("kind") == "bind" else now
    chained = {"row": len(heads) + 1, **row, **timed, "previous": (heads[-1:] or [_START])[0]}
    body = json.dumps(chained, separators=(",", ":"), allow_nan=False).encode()
    checksum = blake2b(body, digest_size=32).hexdigest()
    return chained, body[:-1] + b',"checksum":"' + checksum.encode() + b'"}', checksum


def _unseal(line: bytes, number: int, previous: str) -> Row:
    """Return the row of a line; raise ValueError with the defect if it does not fit."""
    seal = _SEAL.fullmatch(line[-79:])  # ',"checksum":"', 64 digits and '"}'
    body = line[:-79] + b"}"
    if seal is None or blake2b(body, digest_size=32).hexdigest().encode() != seal[1]:
        raise ValueError("does not match its checksum")
    row: Row = json.loads(body)
    if row["previous"] != previous or row["row"] != number:
        raise ValueError("does not follow the row before it")
    return row


def _write(file: int, data: bytes, at: int) -> None:
    """Write all bytes at an offset, or raise."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view, at = view[written:], at + written


def _read_all(file: int, begin: int, end: int) -> bytes:
    """Read the bytes between two offsets."""
    blocks = []
    while begin < end and (block := os.pread(file, end - begin, begin)):
        blocks.append(block)
        begin += len(block)
    return b"".join(blocks)
