"""Coins and noise without a key come from AES, and from nothing else; their distributions are those of numpy's."""

import numpy as np
import pytest
import torch
from scipy import stats

from inosgm import INOSGM, Plan
from inosgm._internal.keys import COINS, NOISE, Purpose, SecretKey
from inosgm.mechanism.noise import GaussianNoise, key_beside, name_of_noise, streams
from inosgm.mechanism.sampling import FixedSizeSampler, PoissonSampler
from inosgm.mechanism.secure_generator import SecureGenerator

ALARM = 1e-6
"""False-alarm rate of every statistical test of this file; seeds are fixed, so none fails by chance on another day."""


def generator(seed):
    return SecureGenerator(np.random.default_rng(seed).bytes(32))


class Total(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def test_words_are_the_key_stream_of_aes():
    """The first block under the zero key is AES-256 of the zero block: a known answer of FIPS 197 validations."""
    assert SecureGenerator(bytes(32)).words(2).tobytes().hex() == "dc95c078a2408989ad48a21492842087"
    long, short = SecureGenerator(bytes(32)).words(40_000), SecureGenerator(bytes(32))
    assert np.array_equal(long, np.concatenate([short.words(n) for n in (1, 9_999, 30_000)]))
    with pytest.raises(ValueError, match="32 bytes"):
        SecureGenerator(b"short")


def test_normal_numbers_are_normal_in_the_middle_and_in_the_tails():
    values = generator(1).standard_normal((1000, 600)).ravel()
    assert stats.kstest(values, "norm").pvalue > ALARM
    edges = np.concatenate([[-np.inf], np.linspace(-4.4, 4.4, 45), [np.inf]])
    counts, expected = np.histogram(values, edges)[0], np.diff(stats.norm.cdf(edges)) * values.size
    assert stats.chisquare(counts, expected, sum_check=False).pvalue > ALARM
    assert generator(1).standard_normal(5, dtype=np.float32).dtype == np.float32
    assert isinstance(generator(1).standard_normal(), float)


@pytest.mark.parametrize("rate", [0.5, 2.0**-6])
def test_gaps_are_geometric(rate):
    gaps = generator(2).geometric(rate, 100_000)
    most = int(6 / rate)
    counts = np.bincount(np.minimum(gaps, most), minlength=most + 1)[1:]
    expected = stats.geom.pmf(np.arange(1, most + 1), rate) * gaps.size
    expected[-1] = stats.geom.sf(most - 1, rate) * gaps.size
    assert stats.chisquare(counts, expected, sum_check=False).pvalue > ALARM


def test_tiny_rates_are_as_exact_as_others():
    """Gaps at a rate of 2^-45 are exponential with mean 2^45; uniform numbers of 53 bits would have 2^8 steps there."""
    gaps = generator(3).geometric(2.0**-45, 50_000) * 2.0**-45
    assert stats.kstest(gaps, "expon").pvalue > ALARM
    first = np.sort(gaps)[:1000]
    assert np.unique(first).size == 1000


def test_every_set_is_chosen_alike():
    drawn = [tuple(sorted(generator([4, i]).choice(5, 2).tolist())) for i in range(4000)]
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert counts.size == 10
    assert stats.chisquare(counts).pvalue > ALARM
    with pytest.raises(ValueError, match="at most 5"):
        generator(4).choice(5, 6)


def test_samplers_draw_their_rates_from_it():
    rates, owners = np.array([0.3, 0.002, 1.0]), np.repeat([0, 1, 2], [20_000, 200_000, 10])
    drawn = PoissonSampler(rates, owners).draw(generator(5))
    counts = np.bincount(owners[drawn], minlength=3)
    assert counts[2] == 10
    for count, size, rate in zip(counts[:2].tolist(), (20_000, 200_000), rates, strict=False):
        assert stats.binomtest(count, size, rate).pvalue > ALARM
    fixed = FixedSizeSampler(np.array([3, 0]), np.array([0, 1, 0, 0, 0])).draw(generator(6))
    assert fixed.size == np.unique(fixed).size == 3


@pytest.mark.parametrize("key", [None, SecretKey(12345)])
def test_no_other_generator_is_asked_without_a_key_of_the_user(key, monkeypatch):
    """The attack: predict numpy's or torch's generator. Neither is ever made."""
    plan = Plan(sample_rates=[0.5], sensitivities=[1], sizes=[50], noise_scale=1.0, steps=2)
    mechanism = Total(plan, [0] * 50, key=key)

    def predictable(*_, **__):
        raise AssertionError("a generator that is not cryptographic")

    for module, name in [(np.random, "PCG64DXSM"), (np.random, "Generator"), (np.random, "SeedSequence")]:
        monkeypatch.setattr(module, name, predictable)
    monkeypatch.setattr(torch, "randn", predictable)
    mechanism.release(np.ones((50, 3)))
    coins, noise = streams(key, 0)
    assert isinstance(coins, SecureGenerator)
    GaussianNoise().add(torch.zeros(3), 1.0, noise)


def test_streams_of_a_secret_key_repeat_and_share_nothing():
    key = SecretKey.drawn()
    again = SecretKey.from_text(key.to_text())
    assert streams(key, 1)[1].words(4).tolist() == streams(again, 1)[1].words(4).tolist()
    firsts = {
        int(stream.words(1)[0])
        for step in range(3)
        for some in (key, key_beside(key))
        for stream in streams(some, step)
    }
    assert len(firsts) == 12
    assert COINS != NOISE
    assert isinstance(key_beside(key), SecretKey)
    assert isinstance(Purpose.REVISION_KEY.key_from(key, 3), SecretKey)


def test_a_number_and_a_secret_key_of_that_number_are_two_jobs():
    """A retry of one as the other would have other noise on the same sum: a ledger must not take it for a retry."""
    assert name_of_noise(SecretKey(7)) != name_of_noise(7)
    assert type(SecretKey.from_text("7")) is int  # files of earlier versions repeat what they repeated
    assert name_of_noise(np.int64(7)) == name_of_noise(7)
