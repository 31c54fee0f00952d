"""A cryptographic random generator with the methods of numpy's that coins and noise need: AES-256 in counter mode."""

import math
from functools import cached_property
from typing import Any

import numpy as np

from inosgm.mechanism.ziggurat import normals

_ZEROS = bytes(1 << 17)
"""What is encrypted: the key stream itself comes out. As many bytes as a chunk of samples takes."""


class SecureGenerator:
    """Random numbers from the key stream of AES-256 in counter mode, through the package `cryptography`.

    **Guarantee.** Whoever can tell its words from uniform ones, whatever else of the stream they have seen, can break
    AES-256. Words are never seen by a generator that is not cryptographic.

    Args:
        secret: 32 bytes that nobody else knows. Each use needs its own.

    >>> SecureGenerator(bytes(32)).words(1) == SecureGenerator(bytes(32)).words(1)
    array([ True])
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != 32:
            raise ValueError(f"secret must be 32 bytes, got {len(secret)}")
        self._secret = secret

    @cached_property
    def _stream(self) -> Any:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # 20 ms, for a first release only

        return Cipher(algorithms.AES(self._secret), modes.CTR(bytes(16))).encryptor()

    def words(self, size: int) -> np.ndarray:
        """Return uniform words of 64 bits."""
        drawn = np.empty(size, dtype=np.uint64)
        zeros = memoryview(_ZEROS if 8 * size <= len(_ZEROS) else bytes(8 * size))
        self._stream.update_into(zeros[: 8 * size], drawn.data.cast("B"))
        return drawn

    def bytes(self, length: int) -> bytes:
        """Return random bytes."""
        return self.words(-(-length // 8)).tobytes()[:length]

    def random(self, size: int | None = None) -> Any:
        """Return uniform multiples of 2^-53 in [0, 1)."""
        found = np.ldexp((self.words(1 if size is None else size) >> np.uint64(11)).astype(np.float64), -53)
        return float(found[0]) if size is None else found

    def geometric(self, rate: float, size: int) -> np.ndarray:
        """Return the numbers of trials up to the first success at a rate, by inversion of an exponential variable.

        The exponential is precise relative to itself, so that a rate of 2^-40 is as exact as one of 1/2.
        """
        drawn = self.words(size)
        small = drawn < np.uint64(1 << 63)
        part = np.ldexp(np.where(small, drawn, ~drawn).astype(np.float64) + 0.5, -64)
        exponential = np.where(small, -np.log1p(-part), -np.log(part))
        most = float(1 << 62)  # beyond every number of records
        return np.asarray(np.minimum(np.ceil(exponential / -math.log1p(-rate)), most).astype(np.int64))

    def choice(self, size: int, count: int, replace: bool = False) -> np.ndarray:
        """Return so many different numbers below `size` in random order; every set is as likely as any other."""
        if replace or count > size:
            raise ValueError(f"count must be at most {size} different numbers, got {count} (replace={replace})")
        labels = self.words(size)
        while np.unique(labels).size < size:  # equal labels would favour a position
            labels = self.words(size)
        return np.argsort(labels)[:count]

    def standard_normal(self, size: int | tuple[int, ...] | None = None, dtype: Any = np.float64) -> Any:
        """Return standard normal numbers, made of 53 random bits each."""
        shape = (1,) if size is None else size
        values = np.empty(shape, dtype=np.float64)
        normals().fill(values.reshape(-1), self.words)
        return float(values[0]) if size is None else values.astype(dtype, copy=False)

    normal = standard_normal


Generator = np.random.Generator | SecureGenerator
"""Where coins and noise come from."""
