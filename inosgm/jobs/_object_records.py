"""Records as objects of a store that fsspec reaches: S3, GCS, Azure, or the memory of this process."""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from fsspec import AbstractFileSystem, get_filesystem_class
from fsspec.asyn import AsyncFileSystem
from fsspec.core import url_to_fs
from fsspec.registry import known_implementations

from inosgm.jobs._record_rules import checked, prove_exclusive, unfit

OPTIONS: dict[str, dict[str, Any]] = {"s3": {"max_concurrency": 1}, "s3a": {"max_concurrency": 1}}
"""An S3 object is read in one request: parts of an object that is being replaced would not belong together."""

TURN = threading.RLock()
"""Serializes creation in memory, which is not atomic there."""

CONFLICTS = 8
"""How often a write that met another one is repeated: with doubling pauses from 0.05 s, 13 s in all."""


class ObjectRecords:
    """Records as objects, created by conditional writes that the store itself decides.

    Guarantee: a record is one object, put in one act that the store refuses if there is an object of that name. If the
    answer gets lost on the way, the library asks again and is refused: FileExistsError may mean one's own record.

    The permissions of the bucket decide who may read a secret: objects have no modes. Credentials come from the
    environment, as the libraries under fsspec find them. Only this process sees records in memory.

    Raises:
        ValueError: for a place that cannot be a store.
        ImportError: if the library that reaches it is not installed.
    """

    def __init__(self, uri: str) -> None:
        scheme, _, rest = uri.partition("://")
        if "@" in rest and ":" in rest[: rest.rindex("@")]:
            shown = f"{scheme}://...@{rest.rpartition('@')[2]}"
            raise ValueError(f"store must not hold credentials, got {shown!r}: put them into the environment")
        if any(mark in rest for mark in "?#*[") or "::" in uri or not rest.strip("/"):
            raise ValueError(f"store must be a plain URI such as s3://bucket/path, got {uri!r}")
        _check_kind(scheme, uri)
        self.uri = uri.rstrip("/")
        self._files, self._root = url_to_fs(self.uri, use_listings_cache=False, **OPTIONS.get(scheme, {}))
        # Creation in memory checks first and then writes; the lock makes that atomic.
        self._turn: AbstractContextManager[Any] = TURN if scheme == "memory" else nullcontext()

    def create(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Put an object, on the condition that there is none."""
        path = self._path(name)
        with self._explained(name, writing=True), self._turn:
            for conflict in range(CONFLICTS):
                try:
                    self._files.pipe_file(path, content, mode="create")
                    return
                except Exception as error:
                    if _status(error) != 409 or conflict == CONFLICTS - 1:
                        raise
                    time.sleep(0.05 * 2**conflict)  # S3: a concurrent write or deletion; nothing is decided yet

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Put an object."""
        path = self._path(name)
        with self._explained(name, writing=True):
            self._files.pipe_file(path, content)

    def read(self, name: str) -> bytes:
        """Get an object."""
        path = self._path(name)
        with self._explained(name):
            return bytes(self._files.cat_file(path))

    def names(self, under: str = "") -> list[str]:
        """List all objects below, in one call and never from a cache."""
        folder = self._path(under) if under else self._root
        start = len(self._root) + 1
        with self._explained(under):
            self._files.invalidate_cache()
            found = self._files.find(folder)
        names = [path[start:] for path in found if path.startswith(f"{folder}/")]
        return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))

    def remove(self, name: str) -> None:
        """Delete an object."""
        path = self._path(name)
        with self._explained(name), suppress(FileNotFoundError):
            self._files.rm_file(path)

    def clear(self, under: str) -> None:
        """Do nothing: an object is there whole, or not at all."""

    def sweep(self, over: Callable[[str], bool]) -> None:
        """Do nothing, likewise."""

    def probe(self) -> None:
        """Create records twice, in turn and at once."""
        prove_exclusive(self)

    def _path(self, name: str) -> str:
        return f"{self._root}/{checked(name)}"

    @contextmanager
    def _explained(self, name: str, *, writing: bool = False) -> Iterator[None]:
        """Turn errors of libraries into the errors of records, with what to do."""
        place = f"{self.uri}/{name}"
        try:
            yield
        except Exception as error:
            if isinstance(error, FileExistsError) or (writing and _status(error) == 412):
                raise FileExistsError(errno.EEXIST, "there is a record already", place) from None
            if isinstance(error, FileNotFoundError):
                about = f"there is no bucket for the store {self.uri}: make it" if writing else "there is no record"
                raise FileNotFoundError(errno.ENOENT, about, place) from None
            if isinstance(error, PermissionError):
                advice = "refuses this user: look at the credentials in the environment and at the bucket's permissions"
                raise PermissionError(errno.EACCES, f"the store {self.uri} {advice} ({error})", place) from error
            number = (isinstance(error, OSError) and error.errno) or errno.EIO
            advice = "failed: look at its address, at the network and at the credentials in the environment"
            raise OSError(number, f"the store {self.uri} {advice} ({type(error).__name__}: {error})", place) from error


def _check_kind(scheme: str, uri: str) -> None:
    """Raise if what fsspec has for a scheme cannot be reached, or clearly does not create exclusively."""
    built_in = known_implementations.get(scheme, {}).get("class", "").startswith("fsspec.")
    if built_in and scheme != "memory":
        raise unfit(uri, f"fsspec does not create exclusively over {scheme}. If it can be mounted, mount it")
    try:
        kind = get_filesystem_class(scheme)
    except ValueError:
        raise ValueError(
            f"store must be a path or a URI that fsspec knows, got {uri!r}: is the scheme right?"
        ) from None
    except ImportError as error:
        raise ImportError(f"store {uri!r} cannot be reached yet: {error}") from None
    base = (AbstractFileSystem, AsyncFileSystem)
    if not any({"pipe_file", "_pipe_file"} & vars(part).keys() for part in kind.__mro__ if part not in base):
        raise unfit(uri, f"{kind.__name__} asks whether a record is there and then writes, in two steps")


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status of what a library raised, also if it was raised as something else."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):  # botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status is not None:
                return int(status)
        error = error.__cause__
    return None
