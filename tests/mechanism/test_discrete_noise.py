"""Discrete noise: exact samples, and a privacy profile that is never above that of the Gaussian in the plan."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from mpmath import mp
from scipy import stats
from scipy.special import ndtr

from inosgm import DiscreteNoise, GaussianNoise
from inosgm.mechanism import discrete_gaussian as module
from inosgm.mechanism.discrete_gaussian import DiscreteGaussian
from inosgm.mechanism.noise import _grid, streams

ALARM = 1e-6
"""False-alarm rate of every statistical test of this file; seeds are fixed."""

VARIANCES = [1, 2, 9, 1000, 2**20, 2**40 + 16, 3 * 2**40 + 5, 2**42 + 16]


def raw(seed):
    return np.random.default_rng(seed).bit_generator.random_raw


def never(_):
    raise AssertionError("no word is needed")


@pytest.mark.parametrize("variance", VARIANCES)
def test_layers_cover_the_density_and_have_equal_areas(variance):
    """What makes a rejection exact, in rational numbers and 50 digits: areas, cover, and what is accepted unseen."""
    sampler = DiscreteGaussian(variance)
    widths, inner = sampler._whole_widths.tolist(), sampler._whole_inner.tolist()
    ends = [*sampler._lower_ends, sampler._lower_ends[-1] + sampler._columns[-1]]
    assert all(width * column == Fraction(sampler.area) for width, column in zip(widths, sampler._columns, strict=True))
    assert all(high - low == column for low, high, column in zip(ends[:-1], ends[1:], sampler._columns, strict=True))
    first, block = int(sampler.first), int(sampler.block)
    assert widths[0] == first + 2 * block
    with mp.workdps(50):

        def density(distance):
            return mp.exp(-(mp.mpf(distance) ** 2) / (2 * variance))

        def number(fraction):
            return mp.mpf(fraction.numerator) / fraction.denominator

        assert ends[-1] >= 1
        assert density(first - 0.5) <= number(ends[1])  # first point beyond the bottom layer, worst centre
        for blocks in range(1, 200):
            assert density(first + blocks * block - 0.5) <= number(ends[1]) / 2**blocks
        for layer in range(1, 256):
            assert density(widths[layer] - 0.5) <= number(ends[layer]), layer
        for layer, points in enumerate(inner):
            assert points == 0 or density(points - 1 + 0.5) >= number(ends[layer + 1]), layer
            assert points <= (first if layer == 0 else widths[layer])


@pytest.mark.parametrize("variance", [9, 2**40 + 16])
def test_every_point_of_a_layer_belongs_to_as_many_words(variance):
    """Lemire's rejection: of the 2^40 numbers u exactly floor(2^39 / w) give each point and are kept."""
    sampler = DiscreteGaussian(variance)
    half = 1 << 39
    for layer in (0, 1, 100, 255):
        width, biased = int(sampler._whole_widths[layer]), int(sampler._biased[layer])
        for point in (-width, -1, 0, 1, width // 3, width - 1):
            low, high = -(-point * half // width), -(-(point + 1) * half // width)  # u with floor(u w / 2^39) == point
            kept = [u for u in (low, low + 1) if u * width % half < biased]
            assert high - low - len(kept) == half // width
            assert len(kept) <= 1
            assert biased < module._SAFE


def probabilities(variance, centre, reach):
    points = np.arange(-reach, reach + 1)
    weights = np.exp(-((points - centre) ** 2) / (2 * variance))
    return points, weights / weights.sum()


@pytest.mark.parametrize("variance", [1, 9, 400])
@pytest.mark.parametrize("centre", [0.0, 0.3, -0.5])
def test_samples_have_the_exact_probabilities(variance, centre):
    """Chi-square against the exact probabilities, 200,000 samples; false-alarm rate 1e-6."""
    reach = int(12 * variance**0.5)
    points, expected = probabilities(variance, centre, reach)
    values = DiscreteGaussian(variance).sample(np.full(200_000, centre), raw([variance, int(abs(centre) * 10)]))
    counts = np.bincount(values + reach, minlength=points.size)
    often = expected * values.size >= 5
    counts = np.append(counts[often], counts[~often].sum())
    expected = np.append(expected[often], expected[~often].sum()) * values.size
    assert stats.chisquare(counts, expected, sum_check=False).pvalue > ALARM


def test_samples_on_a_fine_grid_are_right_in_the_middle_and_in_the_tails():
    """Chi-square over 46 intervals, the outermost beyond 4.4 standard deviations; false-alarm rate 1e-6."""
    sampler = DiscreteGaussian(2**40 + 16)
    values = sampler.sample(np.full(600_000, 0.25), raw(8)) / sampler.scale
    edges = np.concatenate([[-np.inf], np.linspace(-4.4, 4.4, 45), [np.inf]])
    counts, expected = np.histogram(values, edges)[0], np.diff(stats.norm.cdf(edges)) * values.size
    assert stats.chisquare(counts, expected, sum_check=False).pvalue > ALARM
    last = np.bincount((values * sampler.scale).astype(np.int64) & 7)  # the low bits are uniform
    assert stats.chisquare(last).pvalue > ALARM


@pytest.mark.parametrize("variance", [9, 2**40 + 16])
def test_float64_never_decides(variance, monkeypatch):
    """Parity: the same words give the same samples if every comparison is made with rational numbers."""
    centres = np.random.default_rng(3).uniform(-0.5, 0.5, 3000)
    fast = DiscreteGaussian(variance).sample(centres, raw(4))
    monkeypatch.setattr(module, "_UNSURE", np.inf)
    assert np.array_equal(fast, DiscreteGaussian(variance).sample(centres, raw(4)))


@pytest.mark.parametrize(("word", "below"), [(0, True), (2**64 - 1, False)])
def test_a_height_that_64_bits_do_not_decide_gets_further_bits(word, below):
    sampler, layer, point = DiscreteGaussian(100), 40, 9
    with mp.workdps(60):
        density = mp.exp(mp.mpf(-(point**2)) / 200)
        lower, column = sampler._lower_ends[layer], sampler._columns[layer]
        height = (density - mp.mpf(lower.numerator) / lower.denominator) * column.denominator / column.numerator
        drawn = int(mp.floor(height * 2**64))
    asked = []

    def words(size):
        asked.append(size)
        return np.full(size, word, dtype=np.uint64)

    assert sampler._exactly_below(layer, 0, drawn, point, 0.0, words) is below
    assert asked
    assert sampler._exactly_below(layer, 0, drawn - 1, point, 0.0, never)
    assert not sampler._exactly_below(layer, 0, drawn + 1, point, 0.0, never)


def test_the_tail_has_no_end():
    """Words whose first 64 coins are all 0 lead beyond every block."""
    sampler = DiscreteGaussian(2**40 + 16)
    script = iter([np.array([0, 1 << 63], dtype=np.uint64), np.array([1 << 63], dtype=np.uint64)])
    layers, points = np.zeros(2, dtype=np.int64), np.array([int(sampler.first) + 5, -int(sampler.first) - 1])
    moved, _, height, blocks = sampler.beyond(layers, points, lambda _: next(script))
    assert blocks.tolist() == [64, 0]
    assert moved.tolist() == [int(sampler.first) + 5 + 64 * int(sampler.block), -int(sampler.first) - 1]
    assert height[0] == height[1] * 2.0**-64


@pytest.mark.parametrize("scale", [1e-30, 0.1, 1.0, 1.5, 2.0 - 2**-52, 3e8])
def test_the_grid_is_public_and_fine_and_its_noise_is_not_smaller(scale):
    unit, variance = _grid(scale)
    assert math.frexp(unit)[0] == 0.5
    assert 2**20 <= scale / unit < 2**21
    assert variance - 16 >= (Fraction(scale) / Fraction(unit)) ** 2
    assert variance <= (scale / unit) ** 2 * (1 + 1e-10)


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def gaussian_delta(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("scale", [0.7, 3.0, 20.0])
@pytest.mark.parametrize("rate", [1.0, 0.2])
@pytest.mark.parametrize("shift", [1.0, 2.5, 4.0])
def test_its_exact_privacy_profile_is_below_that_of_the_plans_gaussian(scale, rate, shift):
    """Exact probabilities of both neighbours, whose sums need not be whole numbers of units.

    The Gaussian of the plan has `scale`, the discrete one the variance scale^2 + 16: delta of the sampled mechanism is
    compared at 40 epsilons, for a record removed and added. The bound of the proof allows 1e-136, float64 1e-14.
    """
    variance, mu = scale**2 + 16, shift / scale
    for centre in (0.0, 0.3):
        reach = int(14 * math.sqrt(variance)) + 10
        _, absent = probabilities(variance, centre, reach)
        _, present = probabilities(variance, centre + shift, reach)
        mixed = (1 - rate) * absent + rate * present
        for epsilon in np.linspace(0.0, 4 * mu, 40).tolist():
            removed = rate * gaussian_delta(mu, math.log1p(math.expm1(epsilon) / rate))
            assert hockey_stick(mixed, absent, epsilon) <= removed + 1e-14
            if math.exp(-epsilon) > 1 - rate:
                inside = -math.log1p(math.expm1(-epsilon) / rate)
                added = math.exp(epsilon) * rate * math.exp(-inside) * gaussian_delta(mu, inside)
                assert hockey_stick(absent, mixed, epsilon) <= added + 1e-14


def test_without_the_added_variance_the_profile_would_not_be_below():
    """The attack that t^2 = 16 prevents: on a coarse grid, discrete noise of the plan's own variance hides less."""
    _, absent = probabilities(1.0, 0.0, 20)
    _, present = probabilities(1.0, 1.0, 20)
    assert hockey_stick(present, absent, 1.0) > 1.1 * gaussian_delta(1.0, 1.0)


def test_rounding_a_gaussian_at_random_is_the_discrete_gaussian():
    """The proof itself, by quadrature in 60 digits: every probability agrees to within exp(+-1e-30) for t^2 = 4.

    The theorem says 4.2 exp(-2 pi^2 t^2) = 2e-34 there, and 1.5e-137 for t^2 = 16.
    """
    with mp.workdps(60):
        r, t, mean = mp.mpf(3), mp.mpf(2), mp.mpf("0.3")
        nodes = [mp.mpf(k) / 16 for k in range(-16 * 45, 16 * 45 + 1)]  # the trapezoid rule is exact to 1e-40 here

        def normaliser(y):
            return mp.nsum(lambda k: mp.exp(-((k - y) ** 2) / (2 * t**2)), [-60, 60])

        spread = {k: normaliser(mp.mpf(k) / 16) for k in range(16)}  # it has period 1
        variance = r**2 + t**2
        whole = mp.nsum(lambda k: mp.exp(-((k - mean) ** 2) / (2 * variance)), [-80, 80])
        for x in (-7, 0, 1, 12):
            mass = sum(
                mp.exp(-((y - mean) ** 2) / (2 * r**2) - (x - y) ** 2 / (2 * t**2)) / spread[int(y * 16) % 16]
                for y in nodes
            ) / (16 * r * mp.sqrt(2 * mp.pi))
            exact = mp.exp(-((x - mean) ** 2) / (2 * variance)) / whole
            assert abs(mp.log(mass / exact)) < mp.mpf("1e-30")


def test_noise_keeps_shape_kind_and_precision():
    total = {"a": np.zeros((2, 3)), "b": [torch.zeros(4), np.zeros(()), torch.zeros(2, dtype=torch.float64)]}
    noisy = DiscreteNoise().add(total, 1.0, streams(5, 0)[1])
    assert noisy["a"].shape == (2, 3)
    assert noisy["b"][0].dtype == torch.float32
    assert noisy["b"][1].shape == ()
    assert noisy["b"][2].dtype == torch.float64
    values = [*noisy["a"].ravel(), *noisy["b"][0].tolist(), float(noisy["b"][1]), *noisy["b"][2].tolist()]
    assert len(set(values)) == 13
    assert all(value * 2**20 % 1 == 0 for value in values)


@pytest.mark.parametrize("key", [11, None])
def test_scale_and_centre_of_the_noise(key):
    """Kolmogorov-Smirnov against N(1e6 + 0.1, 3^2), 50,000 draws; without a key, a failure by chance is 1e-9."""
    noisy = DiscreteNoise().add(np.full(50_000, 1e6 + 0.1), 3.0, streams(key, 0)[1])
    assert stats.kstest(noisy - 1e6, stats.norm(loc=0.1, scale=3.0).cdf).pvalue > (ALARM if key else 1e-9)


def test_sums_beyond_all_units_are_released_on_the_grid_of_floats():
    for total in (2.0**80, -(2.0**80), 1e-310):
        assert math.isclose(float(DiscreteNoise().add(np.array(total), 1.0, streams(1, 0)[1])), total, abs_tol=6.0)


@pytest.mark.parametrize("noise", [GaussianNoise(), DiscreteNoise()])
def test_what_noise_exceeds_with_a_risk(noise):
    """The exact tail of the discrete Gaussian at its quantile is at most the risk, and close to it."""
    risks = np.array([1e-3, 1e-9])
    found = noise.exceeded(2.0, risks)
    assert stats.norm.sf(found / 2.0) == pytest.approx(risks, rel=1e-4)
    assert (stats.norm.sf(found / 2.0) <= risks * (1 + 1e-12)).all()
