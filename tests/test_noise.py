import numpy as np
import torch
from scipy import stats

from inosgm.noise import add_gaussian, streams


def test_noise_of_a_key_and_step_is_always_the_same():
    values = {(key, step): streams(key, step)[1].normal() for key in (1, 2) for step in (0, 1)}
    assert len(set(values.values())) == 4
    assert values == {(key, step): streams(key, step)[1].normal() for key in (1, 2) for step in (0, 1)}
    coins, noise = streams(1, 0)
    assert coins.random() != noise.random()


def test_without_a_key_nothing_repeats():
    assert streams(None, 0)[1].normal() != streams(None, 0)[1].normal()


def test_noise_keeps_the_shape_of_what_is_released():
    total = {"a": np.zeros((2, 3)), "b": [torch.zeros(4), np.zeros(())]}
    noisy = add_gaussian(total, 1.0, streams(5, 0)[1])
    assert noisy["a"].shape == (2, 3)
    assert noisy["b"][0].dtype == torch.float32
    assert noisy["b"][1].shape == ()
    assert len({float(x) for x in (*noisy["a"].ravel(), *noisy["b"][0])}) == 10  # no coordinate shares its noise


def test_scale_of_the_noise_in_numpy_and_torch():
    """Kolmogorov-Smirnov against N(0, 3^2) with 50,000 draws each; false-alarm rate 1e-6 per array kind."""
    for zero in (np.zeros(50_000), torch.zeros(50_000, dtype=torch.float64), torch.zeros(50_000)):
        noise = np.asarray(add_gaussian(zero, 3.0, streams(11, 0)[1]))
        assert stats.kstest(noise, stats.norm(scale=3.0).cdf).pvalue > 1e-6
