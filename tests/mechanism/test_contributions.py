import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from inosgm import Concatenated, Contributions, Dense


@given(
    arrays(
        np.float64, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4), elements=st.floats(-9, 9, width=16)
    )
)
def test_dense_is_the_plain_arithmetic(array):
    weights = np.linspace(0, 1, array.shape[0])
    for dense in (Dense(array), Dense(torch.from_numpy(array))):
        np.testing.assert_allclose(dense.norms(), [np.sqrt((row**2).sum()) for row in array])
        expected = sum((w * row for w, row in zip(weights, array, strict=True)), np.zeros(array.shape[1:]))
        np.testing.assert_allclose(dense.weighted_sum(weights), expected, atol=1e-12)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_concatenated_equals_the_whole(sizes):
    whole = np.random.default_rng(0).normal(size=(sum(sizes), 3))
    weights = np.linspace(0, 1, sum(sizes))
    parts = Concatenated([Dense(part) for part in np.split(whole, np.cumsum(sizes)[:-1])])
    np.testing.assert_allclose(parts.norms(), Dense(whole).norms())
    np.testing.assert_allclose(parts.weighted_sum(weights), Dense(whole).weighted_sum(weights), atol=1e-12)


def test_concatenated_adds_trees():
    class Pair:
        def norms(self):
            return np.ones(1)

        def weighted_sum(self, weights):
            return {"a": weights.sum(), "b": [np.ones(2) * weights.sum()]}

    total = Concatenated([Pair(), Pair()]).weighted_sum(np.array([1.0, 2.0]))
    assert total["a"] == 3
    assert total["b"][0].tolist() == [3, 3]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("of", [np.array, torch.tensor])
def test_a_broken_record_is_left_out_alone(bad, of):
    dense = Dense(of([[1.0, bad], [3.0, 4.0]]))
    norms = np.asarray(dense.norms())
    assert not np.isfinite(norms[0])
    assert norms[1] == 5
    np.testing.assert_array_equal(dense.weighted_sum(np.array([0.0, 1.0])), [3, 4])


def test_small_records_do_not_drown_in_float32():
    array = np.array([[1e4]] * 1000 + [[1e-3]], dtype=np.float32)
    with_small = Dense(array).weighted_sum(np.ones(1001))
    without = Dense(array[:-1]).weighted_sum(np.ones(1000))
    np.testing.assert_allclose(with_small - without, 1e-3, rtol=1e-5)


def test_errors():
    with pytest.raises(ValueError, match="one row per record"):
        Dense(np.array(1.0))
    with pytest.raises(ValueError, match="at least one part"):
        Concatenated([])
    assert isinstance(Dense(np.ones(2)), Contributions)
