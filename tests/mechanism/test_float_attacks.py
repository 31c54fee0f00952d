"""The attacks of the literature on floating point work on float noise and float sums, not on the discrete path."""

import math

import numpy as np
import pytest

from inosgm import INOSGM, DiscreteNoise, GaussianNoise, Plan, Streaming
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.noise import streams


class FloatTotal(INOSGM):
    """Sums and noise in floating point."""

    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return np.zeros(len(batch))


class Total(FloatTotal, Streaming):
    """Sums in fixed point, and discrete noise unless told otherwise."""


def released(kind, value, key, runs=200, **options):
    plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[1], noise_scale=1.0, steps=runs)
    mechanism = kind(plan, [0], key=key, **options)
    return np.array([float(mechanism.release(np.array([value])).value) for _ in range(runs)])


def too_fine_for_one(values):
    """Return which values cannot come from a sum of 1: Mironov's least significant bits.

    If 1 + noise lies in (0, 1/4), the noise lies in (-1, -3/4), where floats are multiples of 2^-53, and so is the sum.
    Noise alone in (0, 1/4) has finer bits, three times in four or more often.
    """
    return (values > 0) & (values < 0.25) & (values * 2.0**53 % 1 != 0)


@pytest.mark.parametrize("key", [5, None], ids=["keyed", "cryptographic"])
@pytest.mark.parametrize("fixed_point", [False, True], ids=["float sum", "exact sum"])
def test_least_significant_bits_betray_a_record_under_float_noise(key, fixed_point):
    """The attack is never wrong about a record of 1, and sure of a record of 0 in 3 of 40 runs, whatever epsilon says.

    It needs no weakness of the generator. By chance it finds none of 15 expected with probability 3e-7.
    """
    kind = (lambda *a, **k: Total(*a, noise=GaussianNoise(), **k)) if fixed_point else FloatTotal
    assert not too_fine_for_one(released(kind, 1.0, key)).any()
    assert too_fine_for_one(released(kind, 0.0, key)).any()


@pytest.mark.parametrize("key", [5, None], ids=["keyed", "cryptographic"])
def test_least_significant_bits_say_nothing_under_discrete_noise(key):
    """Every value is a multiple of 2^-20, which every sum can lead to."""
    for value in (0.0, 1.0, 1 / 3):
        found = released(Total, value, key, runs=60)
        assert (found * 2.0**20 % 1 == 0).all()
        assert not too_fine_for_one(found).any()


def box_muller(generator, count):
    """Return pairs of normal numbers as textbooks make them of two uniform numbers of 53 bits."""
    first, second = 1 - generator.random(count), generator.random(count)
    radius = np.sqrt(-2 * np.log(first))
    return np.stack([radius * np.cos(2 * math.pi * second), radius * np.sin(2 * math.pi * second)], axis=1)


def reconstructed(pairs, spread=8):
    """Return which pairs of noise Box-Muller could have made: the attack of Holohan and Braghin.

    Both uniform numbers are computed back from the pair, and the multiples of 2^-53 near them are run forward again.
    Pairs of large radius come from few uniform numbers near 0, so that most pairs of floats come from none.
    """
    found = np.zeros(len(pairs), dtype=bool)
    radius2 = (pairs**2).sum(axis=1)
    turns = np.arctan2(pairs[:, 1], pairs[:, 0]) / (2 * math.pi) % 1
    near = np.rint(np.exp(-radius2 / 2) * 2.0**53)
    angle = np.rint(turns * 2.0**53)
    for offset in range(-spread, spread + 1):
        radius = np.sqrt(-2 * np.log(np.maximum(near + offset, 1) * 2.0**-53))
        for turn in range(-spread, spread + 1):
            second = (angle + turn) * 2.0**-53
            made = np.stack([radius * np.cos(2 * math.pi * second), radius * np.sin(2 * math.pi * second)], axis=1)
            found |= (made == pairs).all(axis=1)
    return found


def test_box_muller_noise_is_reconstructed_and_ours_is_not():
    """Two sums, 0 and (1, 1) / 8: noise of Box-Muller is recognised under the right one and never under the other.

    Noise of this library under the right sum looks to the attack like noise under the wrong one, float or discrete.
    """
    other = 0.125
    pairs = box_muller(np.random.default_rng(1), 2000)
    pairs = pairs[(pairs**2).sum(axis=1) > 9]  # of these few uniform numbers are the cause
    assert reconstructed(pairs).mean() > 0.9
    assert reconstructed(pairs - other).mean() < 0.05
    for noise in (GaussianNoise(), DiscreteNoise()):
        ours = noise.add(np.zeros((2000, 2)), 1.0, streams(2, 0)[1])
        ours = ours[(ours**2).sum(axis=1) > 9]
        assert reconstructed(ours).mean() < 0.05


def both_sums(kind, plan, owners, data, left_out):
    everybody = np.arange(len(data))
    mechanism = kind(plan, owners)
    return Inspection(mechanism).sums(data, [everybody, np.delete(everybody, left_out)])


def test_a_float_sum_moves_by_far_more_than_a_record_may():
    """Casacuberta et al.: beside 2^60, sums are rounded to multiples of 256, and one record of at most 1 moves 256.

    In fixed point such owners are refused before anything is spent, with the reason.
    """
    count = 129
    owners, data = [1] * count + [0], np.array([[1.0]] * count + [[2.0**60]])
    plan = Plan(sample_rates=[1, 1], sensitivities=[2.0**60, 1], sizes=[1, count], noise_scale=1.0, steps=1)
    whole, less = both_sums(FloatTotal, plan, owners, data, 0)
    assert abs(whole - less)[0] >= 128
    with pytest.raises(ValueError, match="sensitivities must"):
        both_sums(Total, plan, owners, data[:, 0], 0)


def test_sums_in_fixed_point_never_move_by_more_than_a_record_may():
    """The same attack within what fixed point can hold: 2000 records that each try to be rounded up by others."""
    generator = np.random.default_rng(4)
    count, large = 2000, 2.0**30
    owners = np.array([1] * count + [0])
    plan = Plan(sample_rates=[1, 1], sensitivities=[large, 1], sizes=[1, count], noise_scale=1.0, steps=1)
    worst = {FloatTotal: 0.0, Total: 0.0}
    for kind in worst:
        for _ in range(20):
            data = np.append(1 - generator.uniform(0, 1e-9, count), generator.uniform(large / 2, large))
            rows = data[:, None] if kind is FloatTotal else data
            whole, less = both_sums(kind, plan, owners, rows, int(generator.integers(count)))
            worst[kind] = max(worst[kind], abs(float(np.squeeze(whole)) - float(np.squeeze(less))))
    assert worst[FloatTotal] > 1
    assert worst[Total] <= 1


def test_the_order_of_records_changes_float_sums_only():
    """Casacuberta et al., reordered data: the sum of the same records is another number."""
    generator = np.random.default_rng(6)
    data = generator.uniform(-1, 1, 3000)
    plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[3000], noise_scale=1.0, steps=1)
    sums = {FloatTotal: set(), Total: set()}
    for kind, found in sums.items():
        for _ in range(5):
            mixed = generator.permutation(data)
            rows = mixed[:, None] if kind is FloatTotal else mixed
            (total,) = Inspection(kind(plan, [0] * 3000)).sums(rows, [np.arange(3000)])
            found.add(float(np.squeeze(total)))
    assert len(sums[FloatTotal]) > 1
    assert len(sums[Total]) == 1
