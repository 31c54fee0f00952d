"""Coins and noise of many keys at once: the generators of `inosgm.mechanism.noise.streams`, several times faster."""

from collections.abc import Sequence

import numpy as np
from numpy.random.bit_generator import ISeedSequence

FIRST, FACTOR = 0x43B0D7E5, 0x931E8875
"""The constants with which numpy's `SeedSequence` mixes in words of entropy (INIT_A and MULT_A there)."""

FIRST_OUT, FACTOR_OUT = 0x8B51F9DD, 0x58F38DED
"""The constants with which it generates words of a state (INIT_B and MULT_B there)."""

LEFT, RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
"""The constants with which it combines two words (MIX_MULT_L and MIX_MULT_R there)."""

POOL = 4
"""The number of words in the pool of a `SeedSequence`."""

Generators = list[np.random.Generator]


class Streams:
    """Coins and noise of many keys.

    A generator of `streams(key, step)` starts from `SeedSequence(key, spawn_key=(step, 0))`, or (step, 1) for the
    noise. numpy mixes in the key once; step and number are mixed in here, for all keys together. numpy promises never
    to change the algorithm.

    Args:
        keys: The keys, integers.

    >>> from inosgm.mechanism.noise import streams
    >>> coins, noise = Streams([7, 8]).at(3)
    >>> noise[1].normal() == streams(8, 3)[1].normal()
    True
    """

    def __init__(self, keys: Sequence[int]) -> None:
        self._numbers = np.repeat(np.arange(2, dtype=np.uint32), len(keys))
        self._pools = np.stack([np.random.SeedSequence(key).pool for key in keys], axis=1)
        words = [max(POOL, -(-key.bit_length() // 32)) for key in keys]
        # one constant for every word of the pool, and for every pair of them; then as many for each further word
        used = [POOL + POOL * (POOL - 1) + POOL * (number - POOL) for number in words]
        self._constants = np.array([FIRST * pow(FACTOR, many, 2**32) % 2**32 for many in used], dtype=np.uint32)

    def at(self, step: int) -> tuple[Generators, Generators]:
        """Return the generators of the coins and those of the noise, one of each per key."""
        pools, constants = _mix(self._pools, self._constants, np.uint32(step))
        pools, _ = _mix(np.tile(pools, 2), np.tile(constants, 2), self._numbers)
        made = [np.random.Generator(np.random.PCG64DXSM(_State(state))) for state in _states(pools)]  # type: ignore[arg-type]
        return made[: len(made) // 2], made[len(made) // 2 :]


class _State(ISeedSequence):
    """A seed with a given state."""

    def __init__(self, words: np.ndarray) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        """Return the state; PCG64DXSM asks for four words of 64 bits."""
        return self._words


def _mix(pools: np.ndarray, constants: np.ndarray, words: np.ndarray | np.uint32) -> tuple[np.ndarray, np.ndarray]:
    """Mix one more word of entropy into each pool, and return the pools with the next constants."""
    mixed = np.empty_like(pools)
    for index, pool in enumerate(pools):
        value = words ^ constants
        constants = constants * np.uint32(FACTOR)
        mixed[index] = _fold(LEFT * pool - RIGHT * _fold(value * constants))
    return mixed, constants


def _states(pools: np.ndarray) -> np.ndarray:
    """Return four words of 64 bits from each pool."""
    words = np.empty((pools.shape[1], 2 * POOL), dtype="<u4")
    constant = FIRST_OUT
    for index in range(2 * POOL):
        value = pools[index % POOL] ^ np.uint32(constant)
        constant = constant * FACTOR_OUT % 2**32
        words[:, index] = _fold(value * np.uint32(constant))
    return words.view("<u8").astype(np.uint64)


def _fold(values: np.ndarray) -> np.ndarray:
    folded: np.ndarray = values ^ (values >> np.uint32(16))
    return folded
