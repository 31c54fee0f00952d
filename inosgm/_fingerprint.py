"""Keyed digests of data: the same data twice is recognised, and nothing else is learned from them."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import array_api_compat
import numpy as np

from inosgm.records import gather, records_in

_CHUNK = 4096
_SIZE = 16


class Fingerprint:
    """A digest of every record, taken in one pass over the data, under a secret.

    Whoever does not know the secret learns nothing from the total, not even whether a guess of the data is
    right; an unkeyed hash would tell. Keeping a digest per record makes it cheap to notice later that a
    record has been changed in place: only the records of a batch are read again, never the whole data.
    """

    def __init__(self, data: Any, secret: bytes) -> None:
        self._secret = blake2b(secret, digest_size=32, person=b"inosgm data").digest()
        n = records_in(data)
        self._digests = np.empty((n, _SIZE), dtype=np.uint8)
        for begin in range(0, n, _CHUNK):
            positions = np.arange(begin, min(begin + _CHUNK, n))
            self._digests[positions] = self._digest(data, positions)

    def total(self, *parts: bytes) -> str:
        """Return one digest of all records, in order, and of the parts, in hex."""
        state = blake2b(key=self._secret, digest_size=_SIZE)
        for part in (self._digests.tobytes(), *parts):
            state.update(len(part).to_bytes(8, "big") + part)
        return state.hexdigest()

    def check(self, data: Any, positions: np.ndarray) -> None:
        """Raise if a record at one of the positions is not what it was."""
        changed = np.any(self._digest(data, positions) != self._digests[positions], axis=1)
        if changed.any():
            raise RuntimeError(
                "data must not change under a mechanism with a key, but record "
                f"{positions[np.argmax(changed)]} did: the same noise on other data cancels; "
                "make a new mechanism with another key"
            )

    def _digest(self, data: Any, positions: np.ndarray) -> np.ndarray:
        key = self._secret
        rows = [blake2b(row, key=key, digest_size=_SIZE).digest() for row in _records(gather(data, positions))]
        return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), _SIZE)


def _records(batch: Any) -> Iterable[bytes | memoryview]:
    """Yield bytes that say everything about each record of a gathered batch."""
    if hasattr(batch, "iloc"):  # pandas
        batch = {str(name): batch[name].to_numpy() for name in batch} if batch.ndim == 2 else batch.to_numpy()
    if isinstance(batch, dict):
        names = [encode(name) for name in batch]
        columns = [_records(column) for column in batch.values()]
        return (b"".join(_framed(part) for part in (*names, *row)) for row in zip(*columns, strict=True))
    if isinstance(batch, tuple):
        return (b"".join(map(_framed, row)) for row in zip(*map(_records, batch), strict=True))
    if array_api_compat.is_torch_array(batch):
        batch = batch.detach().cpu().numpy()
    if not isinstance(batch, np.ndarray) or batch.dtype.hasobject:
        return map(encode, batch)
    kind = _framed(f"{batch.dtype.str}{batch.shape[1:]}".encode())
    return (kind + row.tobytes() for row in np.ascontiguousarray(batch))


def encode(value: Any) -> bytes:
    """Return bytes that differ for different values, of the kinds of which records are made."""
    if array_api_compat.is_torch_array(value):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic) and not np.asarray(value).dtype.hasobject:
        array = np.asarray(value)
        return _framed(f"{array.dtype.str}{array.shape}".encode()) + array.tobytes()
    if isinstance(value, dict):
        return b"dict" + b"".join(_framed(encode(part)) for item in value.items() for part in item)
    if isinstance(value, list | tuple | np.ndarray):
        return b"list" + b"".join(_framed(encode(part)) for part in value)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")
    raise TypeError(
        f"a {type(value).__name__} has no fingerprint: with a key and a ledger, records (and what "
        "`configuration` of a mechanism returns) must be arrays, numbers, text, or lists and dicts of them"
    )


def _framed(part: bytes | memoryview) -> bytes:
    return len(part).to_bytes(8, "big") + bytes(part)
