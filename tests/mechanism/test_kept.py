"""The tail of a long stream: records are let go on the way, and the sum stays the same to the last bit."""

import numpy as np
import pytest

from inosgm import Ascending, Descending, HardTail, LinearTail, OwnerFirst, RandomOrder
from inosgm.mechanism import tail_buffer as _kept
from inosgm.mechanism.streaming import OrderedSum


@pytest.mark.parametrize("few", [0, 7, 100])
@pytest.mark.parametrize("order", [Descending(), Ascending(), RandomOrder(1), OwnerFirst()], ids=repr)
def test_what_is_let_go_on_the_way_changes_nothing(few, order, monkeypatch):
    sensitivities = np.array([0.01, 0.5, 2.0])
    for seed in range(40):
        generator = np.random.default_rng(seed)
        n = int(generator.integers(1, 400))
        scores = generator.choice([generator.normal(size=n), generator.integers(0, 3, n).astype(float)])
        scores[generator.random(n) < 0.1 * (seed % 3)] = generator.choice([np.nan, np.inf, -np.inf])
        columns = generator.normal(size=n), scores, generator.integers(0, 3, n), generator.permutation(n)
        tail = (LinearTail if seed % 2 else HardTail)(generator.uniform(0, 30))
        monkeypatch.undo()
        whole = OrderedSum(sensitivities, tail, order)
        whole.update(*columns)
        monkeypatch.setattr(_kept, "_LEAST_WAITING", few)
        monkeypatch.setattr(_kept, "_NEAR", 3)
        monkeypatch.setattr(_kept, "_SAMPLE", 5)
        monkeypatch.setattr(_kept, "BLOCK", 16)
        part, other = OrderedSum(sensitivities, tail, order), OrderedSum(sensitivities, tail, order)
        for place, chunk in enumerate(np.array_split(np.arange(n), 20)):
            (other if place % 3 == 0 else part).update(*(column[chunk] for column in columns))
        part.merge(other)
        assert part.to_bytes() == whole.to_bytes()
        assert part.exact() == whole.exact()


def test_memory_is_that_of_the_tail_whatever_the_scores_are(monkeypatch):
    monkeypatch.setattr(_kept, "_LEAST_WAITING", 50)
    monkeypatch.setattr(_kept, "_NEAR", 8)
    rising, mixed = np.arange(20_000.0), np.maximum(np.arange(20_000) % 10 - 6.0, 0.0)  # most are tied at 0
    for scores in (rising, -rising, 0 * rising, mixed, -mixed, np.full(20_000, np.nan)):
        kept = OrderedSum([1.0], LinearTail(100.0))
        for begin in range(0, 20_000, 40):
            part = slice(begin, begin + 40)
            kept.update(np.ones(40), scores[part], np.zeros(40, dtype=int), begin)
            assert sum(map(len, kept._kept.all())) <= 2 * (126 + 8) + 40


def test_a_cut_leaves_enough_and_not_much_more(monkeypatch):
    monkeypatch.setattr(_kept, "_NEAR", 8)
    for seed in range(200):
        generator = np.random.default_rng(seed)
        key, spans = generator.normal(size=500), generator.choice([1, 5, 50], 500)
        begins = int(generator.integers(1, spans.sum() + 1))
        cut = _kept._exact_cut(key, spans, begins)
        assert spans[key >= cut].sum() >= begins
        assert spans[key >= cut].sum() <= begins + 8 * 50


@pytest.mark.parametrize("sample", [4, 64, 1 << 15])
def test_a_guessed_cut_leaves_enough_however_the_records_are_arranged(sample, monkeypatch):
    """A sample of every k-th record may be wrong about all others: then the exact cut is taken."""
    monkeypatch.setattr(_kept, "_SAMPLE", sample)
    monkeypatch.setattr(_kept, "_NEAR", 8)
    spans = np.array([1, 5, 50])
    for seed in range(60):
        generator = np.random.default_rng(seed)
        key, owners = generator.normal(size=2000), generator.integers(0, 3, 2000)
        if seed % 2:  # the sampled ones are far from the others
            key[:: max(1, key.size // sample)] += generator.choice([-100.0, 100.0])
        key[generator.random(2000) < 0.02] = np.nan
        begins = int(generator.integers(1, 1.2 * spans[owners].sum()))
        held = _kept.HeldRecords(key, np.arange(2000), owners, np.ones(2000), np.zeros(2000, dtype=np.int64))
        found = _kept.Kept(Ascending(), spans, spans, begins)._cut_in(held)
        if spans[owners].sum() < begins:
            assert found is None
            continue
        assert found[1] == spans[owners][~(key < found[0])].sum() >= begins
