"""Noise on a million coordinates: cryptographic and discrete, against numpy's generator."""

import os

import numpy as np
import torch

from benchmarks.timing import medians, report
from inosgm.mechanism.noise import DiscreteNoise, GaussianNoise, streams
from inosgm.mechanism.secure_generator import SecureGenerator

SIZE = 1_000_000


def main() -> None:
    """Print ratios of times: normal numbers without a key, and releases with float and with discrete noise."""
    fast, secure = np.random.Generator(np.random.PCG64DXSM(1)), SecureGenerator(os.urandom(32))
    total, tensor = np.random.default_rng(2).uniform(-1e3, 1e3, SIZE), torch.zeros(SIZE)
    floats, discrete = GaussianNoise(), DiscreteNoise()
    seconds = medians(
        {
            "numpy": lambda: fast.standard_normal(SIZE),
            "secure": lambda: secure.standard_normal(SIZE),
            "float": lambda: floats.add(total, 3.0, fast),
            "float, no key": lambda: floats.add(total, 3.0, streams(None, 0)[1]),
            "discrete": lambda: discrete.add(total, 3.0, fast),
            "discrete, no key": lambda: discrete.add(total, 3.0, streams(None, 0)[1]),
            "float32 tensor": lambda: floats.add(tensor, 3.0, fast),
            "float32 tensor, no key": lambda: floats.add(tensor, 3.0, streams(None, 0)[1]),
        },
        rounds=21,
    )
    for name, time in seconds.items():
        print(f"  {name}: {1e3 * time:.1f} ms")
    report("1,000,000 normal numbers: AES / numpy", seconds["secure"] / seconds["numpy"], at_most=2)
    report("noise on a float32 tensor: no key / key", seconds["float32 tensor, no key"] / seconds["float32 tensor"])
    report("release: discrete / float, with a key", seconds["discrete"] / seconds["float"], at_most=5)
    report("release: discrete / float, no key", seconds["discrete, no key"] / seconds["float, no key"], at_most=5)
    report(
        "release: discrete without a key / float with one", seconds["discrete, no key"] / seconds["float"], at_most=5
    )
