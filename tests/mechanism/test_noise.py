from typing import NamedTuple

import numpy as np
import torch
from scipy import stats

from inosgm.mechanism.noise import GaussianNoise, streams

add_gaussian = GaussianNoise().add


class Pair(NamedTuple):
    first: object
    second: object


def test_noise_of_a_key_and_step_is_always_the_same():
    values = {(key, step): streams(key, step)[1].normal() for key in (1, 2) for step in (0, 1)}
    assert len(set(values.values())) == 4
    assert values == {(key, step): streams(key, step)[1].normal() for key in (1, 2) for step in (0, 1)}
    coins, noise = streams(1, 0)
    assert coins.random() != noise.random()


def test_without_a_key_nothing_repeats():
    assert streams(None, 0)[1].normal() != streams(None, 0)[1].normal()


def test_noise_keeps_the_shape_of_what_is_released():
    total = {"a": np.zeros((2, 3)), "b": Pair(torch.zeros(4), np.zeros(()))}
    noisy = add_gaussian(total, 1.0, streams(5, 0)[1])
    assert noisy["a"].shape == (2, 3)
    assert noisy["b"][0].dtype == torch.float32
    assert isinstance(noisy["b"], Pair)
    assert len({float(x) for x in (*noisy["a"].ravel(), *noisy["b"][0])}) == 10  # no coordinate shares its noise


def test_torch_noise_has_more_than_32_bits_of_seed():
    """Of 200,000 pairs none repeats; seeds of 32 bits would repeat 4.7 of them on average."""
    noise = streams(3, 0)[1]
    pairs = {tuple(add_gaussian(torch.zeros(2, dtype=torch.float64), 1.0, noise).tolist()) for _ in range(200_000)}
    assert len(pairs) == 200_000


def test_half_precision_sums_get_noise_in_float32():
    for half in (torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.float16)):
        assert add_gaussian(half, 1.0, streams(1, 0)[1]).dtype == torch.float32


def test_scale_of_the_noise_in_numpy_and_torch():
    """Kolmogorov-Smirnov against N(0, 3^2) with 50,000 draws each; false-alarm rate 1e-6 per array kind."""
    for zero in (np.zeros(50_000), torch.zeros(50_000, dtype=torch.float64), torch.zeros(50_000)):
        noise = np.asarray(add_gaussian(zero, 3.0, streams(11, 0)[1]))
        assert stats.kstest(noise, stats.norm(scale=3.0).cdf).pvalue > 1e-6
