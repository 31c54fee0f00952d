import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from inosgm._internal.records import form_of, gather, records_in
from inosgm.mechanism.sampling import PoissonSampler

RATES = np.array([1.0, 0.9, 0.5, 0.3, 0.25, 0.01, 1e-4])


def counts_of(sampler, records, draws, seed):
    generator = np.random.default_rng(seed)
    counts = np.zeros(records, dtype=int)
    for _ in range(draws):
        batch = sampler.draw(generator)
        assert np.all(np.diff(batch) > 0)
        counts[batch] += 1
    return counts


def test_inclusion_counts_are_binomial():
    """Exact two-sided binomial test per record; with Bonferroni over the 350 records the false-alarm rate is 1e-6."""
    owners = np.random.default_rng(0).integers(RATES.size, size=350)
    draws = 4000
    counts = counts_of(PoissonSampler(RATES, owners), owners.size, draws, seed=1)
    p_values = [
        stats.binomtest(int(k), draws, float(RATES[owner])).pvalue for k, owner in zip(counts, owners, strict=True)
    ]
    assert min(p_values) > 1e-6 / owners.size


def test_totals_per_rate_are_binomial():
    """A thousand records per rate: exact tests of the totals, seven of them, false-alarm rate 1e-6 in all."""
    owners = np.repeat(np.arange(RATES.size), 1000)
    counts = counts_of(PoissonSampler(RATES, owners), owners.size, 500, seed=2)
    for owner, rate in enumerate(RATES):
        total = int(counts[owners == owner].sum())
        assert stats.binomtest(total, 500 * 1000, float(rate)).pvalue > 1e-6 / RATES.size


def test_coins_are_independent():
    """Neighbours of one owner, and of two owners with different rates: chi-square on pairs, false-alarm rate 1e-6."""
    rates = np.array([0.3, 0.45])
    sampler = PoissonSampler(rates, np.array([0, 0, 1, 1]))
    generator = np.random.default_rng(3)
    present = np.zeros((20_000, 4), dtype=bool)
    for row in present:
        row[sampler.draw(generator)] = True
    q = rates[[0, 0, 1, 1]]
    for i, j in ((0, 1), (1, 2), (2, 3), (0, 3)):
        observed = [np.sum((present[:, i] == a) & (present[:, j] == b)) for a in (0, 1) for b in (0, 1)]
        expected = [20_000 * (q[i] if a else 1 - q[i]) * (q[j] if b else 1 - q[j]) for a in (0, 1) for b in (0, 1)]
        assert stats.chisquare(observed, expected).pvalue > 1e-6 / 4


def test_tiny_rates_are_not_rounded_up():
    """At 1e-9, coins of float32 granularity would come 60 times too often; expected here: 2 hits in all draws."""
    sampler = PoissonSampler(np.array([1e-9]), np.zeros(1_000_000, dtype=int))
    generator = np.random.default_rng(4)
    hits = sum(sampler.draw(generator).size for _ in range(2000))
    assert stats.binomtest(hits, 2000 * 1_000_000, 1e-9).pvalue > 1e-6


@pytest.mark.parametrize("rate", [1e-300, 1e-18, 2.0**-1074])
def test_extreme_rates(rate):
    assert PoissonSampler(np.array([rate]), np.zeros(1000, dtype=int)).draw(np.random.default_rng(0)).size == 0


def test_everybody_and_nobody():
    generator = np.random.default_rng(0)
    assert PoissonSampler(np.array([1.0]), np.zeros(5, dtype=int)).draw(generator).tolist() == [0, 1, 2, 3, 4]
    assert PoissonSampler(np.array([0.5]), np.zeros(0, dtype=int)).draw(generator).size == 0


def test_gather_takes_what_people_have():
    array, positions = np.arange(10).reshape(5, 2), np.array([1, 4])
    assert gather(array, positions).tolist() == [[2, 3], [8, 9]]
    assert gather(torch.from_numpy(array), positions).tolist() == [[2, 3], [8, 9]]
    assert gather(pd.DataFrame(array), positions).to_numpy().tolist() == [[2, 3], [8, 9]]
    assert gather(list("abcde"), positions) == ["b", "e"]
    first, second = gather((array[:, 0], array[:, 1]), positions)
    assert (first.tolist(), second.tolist()) == ([2, 8], [3, 9])
    assert gather({"x": array[:, 0]}, positions)["x"].tolist() == [2, 8]
    for data in (array, torch.from_numpy(array), pd.DataFrame(array), list("abcde"), (array, array), {"x": array}):
        assert records_in(data) == 5
    with pytest.raises(ValueError, match=r"equally long, got lengths \[4, 5\]"):
        records_in((array, array[1:]))
    for nothing in (None, 5, (x for x in array)):
        with pytest.raises(TypeError, match="data must be an array, a table"):
            records_in(nothing)


def test_form_is_what_two_data_sets_share():
    array = np.zeros((5, 2))
    assert form_of(array) == form_of(array[:3])
    forms = [
        array,
        array[:, :1],
        array.astype(np.float32),
        torch.zeros(5, 2),
        pd.DataFrame(array),
        (array,),
        {"x": array},
    ]
    assert all(form_of(a) != form_of(b) for i, a in enumerate(forms) for b in forms[:i])
