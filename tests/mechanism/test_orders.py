import numpy as np
import pytest
import torch
from cases import batches
from hypothesis import given
from hypothesis import strategies as st

from inosgm import Ascending, Descending, OwnerFirst, RandomOrder

orders = st.sampled_from([Descending(), Ascending(), OwnerFirst(), RandomOrder(1)])


@given(batches(min_size=2), orders, st.data())
def test_nobody_is_rearranged_by_a_newcomer(batch, order, data):
    scores, _ = batch
    ids, owners = np.arange(scores.size) * 3, np.arange(scores.size) % 2 * 1.0
    newcomer = data.draw(st.integers(0, scores.size - 1))
    others = np.delete(np.arange(scores.size), newcomer)
    everyone = order.ranking(scores, ids, owners)
    without = order.ranking(scores[others], ids[others], owners[others])
    assert [k for k in everyone if k != newcomer] == others[without].tolist()


def test_torch_ties_do_not_depend_on_the_newcomer():
    """torch.argsort without stable=True permutes 17 and more tied items, differently when one is added."""
    for n in (17, 40, 300):
        ranking = Descending().ranking(torch.zeros(n, dtype=torch.float64), torch.arange(n), None)
        assert ranking.tolist() == list(range(n))


def test_ties_of_few_and_of_many_records():
    for n in (500, 5000):
        scores = np.where(np.arange(n) % 3 == 2, np.nan, np.arange(n) % 3)
        expected = sorted(range(n), key=lambda k: ({0: 1, 1: 0, 2: 2}[k % 3], k))
        assert Descending().ranking(scores, np.arange(n), None).tolist() == expected


def test_descending_and_ascending():
    scores = np.array([0.0, np.nan, 3.0, np.inf, -np.inf, 3.0, -0.0, np.nan])
    assert Descending().ranking(scores, None, None).tolist() == [3, 2, 5, 0, 6, 4, 1, 7]
    assert Ascending().ranking(scores, None, None).tolist() == [4, 0, 6, 2, 5, 3, 1, 7]


def test_ties_go_by_id_wherever_the_record_stands():
    scores, ids = np.zeros(4), np.array([9, 2, 5, 7])
    assert Descending().ranking(scores, ids, None).tolist() == [1, 2, 3, 0]
    assert Ascending().ranking(scores, ids, None).tolist() == [1, 2, 3, 0]


def test_owner_first():
    ranking = OwnerFirst().ranking(np.array([9.0, 1.0, 5.0, 5.0]), None, np.array([2.0, 0.5, 0.5, 2.0]))
    assert ranking.tolist() == [2, 1, 0, 3]


def test_random_order_is_uniform_and_new_at_every_step():
    """Chi-square on the rank of record 0 among ten, over 2,000 steps; false-alarm rate 1e-4."""
    ids = np.arange(10)
    ranks = [RandomOrder(5).at(step, 9).ranking(np.zeros(10), ids, None).tolist().index(0) for step in range(2000)]
    counts = np.bincount(ranks, minlength=10)
    assert ((counts - 200) ** 2 / 200).sum() < 33.72  # the 1 - 1e-4 quantile with 9 degrees of freedom
    assert RandomOrder(5).at(1, 9) == RandomOrder(5).at(1, 9) != RandomOrder(5).at(2, 9)
    assert RandomOrder(5).at(1, 9) != RandomOrder(5).at(1, 8)


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        RandomOrder(seed)
