import mpmath
import numpy as np
import pytest
import torch
from cases import tails
from hypothesis import given
from hypothesis import strategies as st

from inosgm import BetaTail, HardTail, LinearTail, NoTail, StepTail, TableTail


@given(tails)
def test_W_is_the_integral_of_an_importance(tail):
    """W(0) = 0, slopes between 0 and 1 that never fall, and slope 1 beyond the length."""
    x = np.linspace(0, 2 * tail.length + 1, 400)
    slopes = np.diff(tail.W(x)) / np.diff(x)
    assert tail.W(0.0) == 0
    assert np.all(slopes >= -1e-9)
    assert np.all(slopes <= 1 + 1e-9)
    assert np.all(np.diff(slopes) >= -1e-8)
    np.testing.assert_allclose(tail.W(tail.length + 1.0) - tail.W(tail.length), 1, atol=1e-9)


@given(tails, st.lists(st.floats(0, 200), min_size=1))
def test_table_agrees_with_W(tail, x):
    np.testing.assert_allclose(tail.pieces.integral(np.array(x)), tail.W(x), rtol=1e-12, atol=2e-11 * tail.length)
    np.testing.assert_array_equal(tail.W(torch.tensor(x, dtype=torch.float64)).numpy(), tail.W(x))


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.3), (0.3, 50), (50, 0.3), (50, 50), (1, 1), (2, 5)])
def test_beta_W_matches_its_definition(alpha, beta):
    """Against the integral of the incomplete beta function, computed by another library in 30 digits."""
    tail = BetaTail(alpha, beta, 7.0)
    with mpmath.workdps(30):
        for x in (0.01, 1.5, 3.5, 6.9, 7.0):
            beta_cdf = lambda u: mpmath.betainc(alpha, beta, 0, u / 7, regularized=True)  # noqa: E731
            expected = mpmath.quad(beta_cdf, mpmath.linspace(0, x, 9))
            assert abs(float(tail.W(x)) - float(expected)) < 1e-9


def test_known_values():
    np.testing.assert_allclose(NoTail().W([0, 2]), [0, 2])
    np.testing.assert_allclose(HardTail(3).W([1, 3, 5]), [0, 0, 2])
    np.testing.assert_allclose(LinearTail(4).W([2, 4, 5]), [0.5, 2, 3])
    np.testing.assert_allclose(BetaTail(1, 1, 4).W([2, 4, 5]), [0.5, 2, 3])
    # the first level is nearest the important records, so the last one is met first from below
    np.testing.assert_allclose(StepTail([1 / 2, 1 / 4, 0], 2).W([2, 3, 4, 6, 7]), [0, 0.25, 0.5, 1.5, 2.5])
    np.testing.assert_allclose(TableTail([0, 2, 2, 4], [1, 0.5, 0.25, 0.25]).W([2, 4]), [0.5, 2])
    assert [t.length for t in (NoTail(), HardTail(3), StepTail([0.5, 0], 2), TableTail([0, 5], [1, 0]))] == [0, 3, 4, 5]


def test_tabulated_function_is_close_and_valid():
    tail = TableTail.of(lambda c: 1 / (1 + c), length=9.0, pieces=2000)
    np.testing.assert_allclose(tail.W(9.0), np.log(10), rtol=1e-5)


@pytest.mark.parametrize("x", [-1.0, [1.0, -1e-9], np.nan])
def test_W_refuses_what_is_not_a_distance(x):
    with pytest.raises(ValueError, match="x must be"):
        NoTail().W(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HardTail(-1), "length must be finite"),
        (lambda: LinearTail(np.nan), "length must be finite"),
        (lambda: LinearTail(np.inf), "length must be finite"),
        (lambda: LinearTail("long"), "length must be a number"),
        (lambda: BetaTail(0, 1, 1), "alpha must be"),
        (lambda: BetaTail(1, np.nan, 1), "beta must be"),
        (lambda: BetaTail(1, 1, -2), "length must be"),
        (lambda: StepTail([], 1), "at least one"),
        (lambda: StepTail([0.2, 0.5], 1), "not rise.*0.5 at position 1"),
        (lambda: StepTail([1.5, 0.5], 1), "lie in"),
        (lambda: StepTail([np.nan], 1), "must be finite"),
        (lambda: StepTail([0.5], -1), "step must be"),
        (lambda: TableTail([0, 1], [0.5, 0.6]), "not rise"),
        (lambda: TableTail([0, 1], [0.5]), "pair up"),
        (lambda: TableTail([1, 2], [1, 0]), "start at 0"),
        (lambda: TableTail([0, 2, 1], [1, 0.5, 0]), "never fall"),
        (lambda: TableTail.of(lambda c: c / 5, length=5), "rises at c = 0.0048"),
        (lambda: TableTail.of(lambda c: 2 - c, length=1), r"leaves \[0, 1\] at c = 0, where it is 2"),
        (lambda: TableTail.of(lambda c: np.nan, length=1), "function at c = 0 must be finite"),
        (lambda: TableTail.of(lambda c: None, length=1), "function at c = 0 must be a number"),
        (lambda: LinearTail(np.ones(2)), "length must be a number"),
        (lambda: LinearTail(1e-200), "0 or at least"),
    ],
)
def test_invalid_tails_cannot_be_made(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("length", [1e-50, 1e50])
@pytest.mark.parametrize("shape", [0.01, 0.3, 50, 1e4])
def test_extreme_beta_tails_can_be_evaluated(shape, length):
    for tail in (BetaTail(shape, shape, length), BetaTail(shape, 1e4, length), BetaTail(1e4, shape, length)):
        x = np.linspace(0, 1.5, 50) * length
        np.testing.assert_allclose(tail.pieces.integral(x), tail.W(x), atol=1e-10 * length)


def test_tails_are_frozen_values():
    tail = BetaTail(2, 1, length=3)
    assert tail == BetaTail(2.0, 1.0, 3.0)
    assert hash(StepTail([0.5, 0.1], 1)) == hash(StepTail((0.5, 0.1), 1.0))
    with pytest.raises(AttributeError):
        tail.length = 9
