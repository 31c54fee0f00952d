"""Hard tails in passes have the bits of the tail that is held, and never those of another tail."""

import numpy as np
import pytest

from inosgm import HardTail, LinearTail, Plan
from inosgm.mechanism import rank_window, streaming
from inosgm.mechanism.orders import Ascending, Descending, RandomOrder
from inosgm.mechanism.rank_window import PassTask, RankCounts, RankWindow
from inosgm.mechanism.streaming import CountingPass, OrderedSum, Streaming

SENSITIVITIES = [0.5, 1.0, 3.0]
SCORES = {
    "distinct": lambda rng, n: rng.standard_normal(n),
    "ties": lambda rng, n: rng.integers(3, size=n).astype(float),
    "all tied": lambda rng, n: np.zeros(n),
    "both zeros": lambda rng, n: rng.choice([0.0, -0.0, 1.0], n),
    "not numbers": lambda rng, n: rng.choice([np.nan, -np.nan, np.inf, -np.inf, 1.0], n),
    "neighbouring floats": lambda rng, n: 1.0 + np.spacing(1.0) * rng.integers(50, size=n),
}


def plan_of(n, rate=1.0):
    sizes = [n // 3, n // 3, n - 2 * (n // 3)]
    return Plan(sample_rates=[rate] * 3, sensitivities=SENSITIVITIES, sizes=sizes, noise_scale=1.0, steps=1)


def batch_of(scores, n, seed):
    rng = np.random.default_rng(seed)
    owners = rng.permutation(np.repeat([0, 1, 2], [n // 3, n // 3, n - 2 * (n // 3)]))
    return rng.standard_normal(n), SCORES[scores](rng, n), owners, rng.permutation(n) - 7


def in_passes(empty, windowed, batch, parts=3, passes=None):
    """Return the sum of a batch in passes, each over parts in turn that are merged."""
    chunks = np.array_split(np.arange(batch[0].size), parts)

    def read(task):
        if passes is not None:
            passes.append(task)
        if task is not None and task.counting:
            total = RankCounts(task.window)
            for chunk in chunks:
                part = CountingPass(empty(), task.window)
                part.update(*(column[chunk] for column in batch))
                total.merge(part.counts)
            return total
        total, *others = (windowed(None if task is None else task.window) for _ in chunks)
        for part, chunk in zip([total, *others], chunks, strict=True):
            part.update(*(column[chunk] for column in batch))
        for part in others:
            total.merge(OrderedSum.from_bytes(part.to_bytes()))
        return total

    return empty().in_passes(read)


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("order", [Descending(), Ascending()], ids=repr)
@pytest.mark.parametrize("length", [1e-3, 40.0, 444.25, 1000.0])  # 445.5 units are all of 300 records
def test_passes_have_the_bits_of_the_tail_that_is_held(scores, order, length, monkeypatch):
    monkeypatch.setattr(rank_window, "HELD", 8)
    monkeypatch.setattr(rank_window, "_BUCKET_BITS", 4)
    monkeypatch.setattr(streaming, "needs_passes", lambda *_: True)
    for rate in (1.0, 0.6):
        how = {"tail": HardTail(length), "order": order, "secret": bytes(range(16))}
        batch = batch_of(scores, 300, seed=int(length))
        held = OrderedSum(plan_of(300, rate), **how)
        held.update(*batch)
        passes = []
        found = in_passes(
            lambda how=how, rate=rate: OrderedSum(plan_of(300, rate), **how),
            lambda window, how=how, rate=rate: OrderedSum(plan_of(300, rate), **how, window=window),
            batch,
            passes=passes,
        )
        assert found.exact() == held.exact()
        assert (found.counts == held.counts).all()
        assert len(found._settled() or ()) <= 8
        assert [task.counting for task in passes] == [*[True] * (len(passes) - 1), False]


def test_only_long_hard_tails_take_passes(monkeypatch):
    monkeypatch.setattr(rank_window, "HELD", 100)
    plan, batch = plan_of(300), batch_of("distinct", 300, seed=1)

    def passes_of(tail, order):
        passes = []
        how = {"tail": tail, "order": order}
        in_passes(
            lambda: OrderedSum(plan, **how), lambda window: OrderedSum(plan, **how, window=window), batch, passes=passes
        )
        return len(passes)

    assert passes_of(HardTail(300.0), Descending()) == 2
    assert passes_of(HardTail(49.0), Descending()) == 1  # holds at most 98 records
    assert passes_of(LinearTail(300.0), Descending()) == 1
    assert passes_of(HardTail(300.0), RandomOrder(1)) == 1


def test_a_window_in_which_the_tail_does_not_end_is_refused():
    """Else records below it would get weight 0, or records above it weight 1, that have another one."""
    plan, batch = plan_of(300), batch_of("distinct", 300, seed=2)
    counts = CountingPass(OrderedSum(plan, HardTail(200.0)), RankWindow())
    counts.update(*batch)
    window, _ = counts.counts.narrowed(OrderedSum(plan, HardTail(200.0)).begins)
    right = OrderedSum(plan, HardTail(200.0), window=window)
    right.update(*batch)
    right.exact()
    for length in (150.0, 250.0):
        wrong = OrderedSum(plan, HardTail(length), window=window)
        wrong.update(*batch)
        with pytest.raises(ValueError, match="does not end in the window"):
            wrong.exact()
    gone = OrderedSum(plan, HardTail(200.0), window=window)
    gone.update(*(column[:150] for column in batch))
    with pytest.raises(ValueError, match="have the records changed"):
        gone.exact()


def test_windows_of_other_sums_are_refused():
    plan = plan_of(30)
    with pytest.raises(ValueError, match="window goes with a HardTail"):
        OrderedSum(plan, LinearTail(5.0), window=RankWindow())
    with pytest.raises(ValueError, match="window goes with a HardTail"):
        OrderedSum(plan, HardTail(5.0), RandomOrder(1), window=RankWindow())
    with pytest.raises(ValueError, match="keys must ascend"):
        RankWindow((5, 4))
    one, other = (OrderedSum(plan, HardTail(5.0), window=RankWindow((0, end))) for end in (7, 8))
    with pytest.raises(ValueError, match="part of the same sum"):
        one.merge(other)


def test_one_id_for_many_records_is_noticed(monkeypatch):
    monkeypatch.setattr(rank_window, "HELD", 8)
    monkeypatch.setattr(streaming, "needs_passes", lambda *_: True)
    plan, (rows, _, owners, _) = plan_of(300), batch_of("all tied", 300, seed=3)
    batch = rows, np.zeros(300), owners, np.zeros(300, dtype=np.int64)
    with pytest.raises(ValueError, match="ids must differ"):
        in_passes(
            lambda: OrderedSum(plan, HardTail(200.0)),
            lambda window: OrderedSum(plan, HardTail(200.0), window=window),
            batch,
        )


class Largest(Streaming):
    """The sum of the largest values."""

    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_mechanism_releases_the_same_bits_in_passes(rate, monkeypatch):
    plan, (rows, _, owners, _) = plan_of(600, rate), batch_of("distinct", 600, seed=4)
    labels = [plan.labels[owner] for owner in owners]
    made = {"tail": HardTail(500.0), "key": 3}
    held = Largest(plan, labels, **made).release(rows).value
    monkeypatch.setattr(rank_window, "HELD", 16)
    assert Largest(plan, labels, **made).release(rows).value == held
    mechanism = Largest(plan, **made)

    def read(task: PassTask | None):
        part = mechanism.start(task)
        mechanism.fill(part, rows, owners, 0)
        return part.counts if isinstance(part, CountingPass) else part

    total = mechanism.sum_in_passes(read)
    assert total.window is not None
    assert mechanism.release(total).value == held
