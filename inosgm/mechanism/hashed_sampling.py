"""Coins that need no coordination: a keyed hash of each record's id decides whether it is in a batch."""

from typing import Protocol

import numpy as np

_BLOCK = 1 << 13
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


class Sampler(Protocol):
    """Draws batches."""

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""


class HashedSampler:
    """Draws batches in which each record enters with its owner's sample rate, by a hash of its position and a secret.

    **Guarantee.** The coins are those of a pseudorandom function (SipHash-2-4) under a secret of 128 bits: nobody who
    does not know it can tell them from independent ones. Their rate is the owner's, rounded down to a multiple of
    2^-64, so never above it. Whoever knows the secret tosses the same coins again, wherever the record is.

    Args:
        sample_rates: One rate in (0, 1] per owner.
        owners: The index of the owner of each record.

    >>> sampler = HashedSampler(np.array([1.0, 1e-9]), np.array([0, 1, 0]))
    >>> sampler.draw(np.random.default_rng(0))
    array([0, 2])
    """

    def __init__(self, sample_rates: np.ndarray, owners: np.ndarray) -> None:
        self._limits, self._owners = limits_of(sample_rates), owners

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""
        secret = secret_of(generator)
        everyone = np.arange(self._owners.size)
        return everyone if self._limits is None else everyone[tossed(secret, everyone, self._limits[self._owners])]


def secret_of(generator: np.random.Generator) -> bytes:
    """Return the secret of all coins of a step."""
    return generator.bytes(16)


def limits_of(sample_rates: np.ndarray) -> np.ndarray | None:
    """Return the largest hash with which a record of each owner is in the batch; None if everybody always is.

    Raises:
        ValueError: for a rate that hashes of 64 bits cannot have.
    """
    if (sample_rates == 1).all():
        return None
    if sample_rates.min() < 2.0**-48:
        raise ValueError(f"sample_rates must be at least 2^-48 for hashed coins, got {sample_rates.min():g}")
    below = np.minimum(sample_rates, 0.5)  # 2^64 itself is no hash
    limits = np.ldexp(below, 64).astype(np.uint64)
    limits += np.ldexp(sample_rates - below, 64).astype(np.uint64)  # exact: both have the last bit of the rate
    return np.asarray(limits - np.uint64(1))


def tossed(secret: bytes, ids: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Say of each record whether its coin lets it into the batch."""
    found = np.empty(ids.size, dtype=np.bool_)
    for begin in range(0, ids.size, _BLOCK):
        part = slice(begin, begin + _BLOCK)
        np.less_equal(siphash(secret, ids[part]), limits[part], out=found[part])
    return found


def siphash(secret: bytes, ids: np.ndarray) -> np.ndarray:
    """Return SipHash-2-4 (Aumasson and Bernstein, 2012) of 64-bit whole numbers under a secret of 16 bytes.

    >>> hex(siphash(bytes(range(16)), np.array([0x0706050403020100]))[0])
    '0x93f5f5799a932462'
    """
    keys = [int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")]
    message = ids.astype(np.uint64)
    state = [np.full(ids.shape, keys[i % 2] ^ word, np.uint64) for i, word in enumerate(_START)]
    spare = np.empty(ids.shape, np.uint64)
    for word in (message, np.uint64(8 << 56)):
        state[3] ^= word
        _rounds(state, spare, 2)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    _rounds(state, spare, 4)
    found: np.ndarray = state[0] ^ state[1] ^ state[2] ^ state[3]
    return found


def _rounds(state: list[np.ndarray], spare: np.ndarray, count: int) -> None:
    a, b, c, d = state
    for _ in range(count):
        a += b
        _rotate(b, 13, spare)
        b ^= a
        _rotate(a, 32, spare)
        c += d
        _rotate(d, 16, spare)
        d ^= c
        a += d
        _rotate(d, 21, spare)
        d ^= a
        c += b
        _rotate(b, 17, spare)
        b ^= c
        _rotate(c, 32, spare)


def _rotate(words: np.ndarray, by: int, spare: np.ndarray) -> None:
    np.left_shift(words, np.uint64(by), out=spare)
    words >>= np.uint64(64 - by)
    words |= spare
