"""Coins that need no coordination: a keyed hash of each record's id decides whether it is in a batch."""

from typing import Protocol

import numpy as np

from inosgm.mechanism.secure_generator import Generator

_BLOCK = 1 << 16  # records per pass: their hashes, an eighth as many, stay in the cache of a core
_LAST_BITS = np.uint64((1 << 56) - 1)
_GROUPS = (1 << 61) - 1  # ids are 64 bits, so groups of eight neighbours are numbers of 61 bits
_NO_GROUP = np.array([-1, -2])  # numbers that are no group, so that no coin uses their hashes
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


class Sampler(Protocol):
    """Draws batches."""

    def draw(self, generator: Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""


class HashedSampler:
    """Draws batches in which each record enters with its owner's sample rate, by a hash of its position and a secret.

    **Guarantee.** The coins are those of a pseudorandom function (SipHash-2-4) under a secret of 128 bits: without the
    secret they are indistinguishable from independent ones. Their rate is the owner's, rounded down to a multiple of
    2^-64, so never above it. With the secret, the coin of a record can be drawn again on any machine.

    Args:
        sample_rates: One rate in (0, 1] per owner.
        owners: The index of the owner of each record.

    >>> sampler = HashedSampler(np.array([1.0, 1e-9]), np.array([0, 1, 0]))
    >>> sampler.draw(np.random.default_rng(0))
    array([0, 2])
    """

    def __init__(self, sample_rates: np.ndarray, owners: np.ndarray) -> None:
        self._limits, self._owners = limits_of(sample_rates), owners

    def draw(self, generator: Generator) -> np.ndarray:
        """Return the positions of the records in the next batch, ascending."""
        secret = secret_of(generator)
        if self._limits is None:
            return np.arange(self._owners.size)
        return np.flatnonzero(included(secret, 0, self._limits, self._owners))


def secret_of(generator: Generator) -> bytes:
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


def included(secret: bytes, ids: np.ndarray | int, limits: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return for each record whether its coin includes it in the batch.

    A coin is a uniform number of 64 bits, compared with the limit of the record's owner. One hash gives the first bytes
    of eight neighbouring records. They decide unless they equal the first byte of the limit, in 1 of 256 cases; only
    then the other 56 bits are computed, from a hash of the record alone.

    Args:
        secret: 16 bytes.
        ids: One number per record, or the first of consecutive ones.
        limits: The largest number with which a record is included, for each owner.
        owners: The index of the owner of each record.
    """
    first_bytes = (limits >> np.uint64(56)).astype(np.uint8)
    further_secret = siphash(secret, _NO_GROUP).tobytes()
    chosen = np.empty(owners.size, dtype=np.bool_)
    for begin in range(0, owners.size, _BLOCK):
        block = owners[begin : begin + _BLOCK]
        numbers = ids + begin if isinstance(ids, int) else ids[begin : begin + _BLOCK]
        coins, bounds = _first_bytes(secret, numbers, block.size), first_bytes[block]
        part = chosen[begin : begin + _BLOCK]
        np.less(coins, bounds, out=part)
        undecided = np.flatnonzero(coins == bounds)
        if undecided.size:
            further = siphash(further_secret, numbers + undecided if isinstance(numbers, int) else numbers[undecided])
            rest = limits[block[undecided]] & _LAST_BITS
            part[undecided] = further >> np.uint64(8) <= rest
    return chosen


def _first_bytes(secret: bytes, ids: np.ndarray | int, size: int) -> np.ndarray:
    if isinstance(ids, int) or (ids[-1] - ids[0] == size - 1 and (np.diff(ids) == 1).all()):
        first = ids if isinstance(ids, int) else int(ids[0])
        groups = np.arange(first >> 3, (first + size - 1 >> 3) + 1) & _GROUPS
        hashed: np.ndarray = siphash(secret, groups).astype("<u8").view(np.uint8)
        return hashed[first & 7 :][:size]
    groups = ids >> 3 & _GROUPS
    shifts = (ids & 7).astype(np.uint64) << np.uint64(3)
    return np.asarray((siphash(secret, groups) >> shifts).astype(np.uint8))


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
