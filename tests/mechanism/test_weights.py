from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from cases import batches, tails
from hypothesis import given
from hypothesis import strategies as st

from inosgm import (
    Ascending,
    BetaTail,
    ClipToShare,
    Descending,
    HardTail,
    LinearTail,
    NoTail,
    OwnerFirst,
    RandomOrder,
    ScaleClipped,
    StepTail,
    TableTail,
    importance_weights,
    ordered_sum,
)
from inosgm.mechanism.tails import tail_weights

orders = st.sampled_from([Descending(), Ascending(), OwnerFirst(), RandomOrder(3)])


def reference_weights(scores, sensitivities, cumulative):
    """rho straight from the definition: exact thresholds, W in 50 digits, one record at a time."""
    ranking = sorted(range(len(scores)), key=lambda k: (np.isnan(scores[k]), -scores[k], k))
    rho, below = [None] * len(scores), Fraction(0)
    for k in reversed(ranking):
        c = Fraction(float(sensitivities[k]))
        rho[k] = float((cumulative(below + c) - cumulative(below)) / exact(c))
        below += c
    return np.array(rho)


def exact(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def beta_cumulative(alpha, beta, length):
    def cumulative(x):
        x = exact(x)
        y = min(x / length, mpmath.mpf(1))
        if y in (0, 1):
            first, second = y, y
        else:
            first = mpmath.betainc(alpha, beta, 0, y, regularized=True)
            second = mpmath.betainc(alpha + 1, beta, 0, y, regularized=True)
        return length * (y * first - mpmath.mpf(alpha) / (alpha + beta) * second) + max(x - length, 0)

    return cumulative


def step_cumulative(levels, step):
    """Levels from the least important end upwards, exactly."""

    def cumulative(x):
        total, begin = Fraction(0), Fraction(0)
        for level in reversed(levels):
            total += Fraction(level) * min(max(x - begin, 0), Fraction(step))
            begin += Fraction(step)
        return exact(total + max(x - begin, 0))

    return cumulative


@pytest.mark.parametrize("spread", [0, 3], ids=["alike", "six orders of magnitude"])
@pytest.mark.parametrize(("alpha", "beta"), [(a, b) for a in (0.3, 1, 4, 50) for b in (0.3, 1, 4, 50)])
def test_beta_weights_against_fifty_digits(alpha, beta, spread):
    generator = np.random.default_rng(1)
    scores = np.round(generator.normal(size=60), 1)
    sensitivities = 10.0 ** generator.uniform(-spread, spread, 60)
    length = 0.6 * float(sensitivities.sum())
    with mpmath.workdps(50):
        expected = reference_weights(scores, sensitivities, beta_cumulative(alpha, beta, length))
    found = importance_weights(scores, sensitivities, BetaTail(alpha, beta, length))
    assert np.abs(found - expected).max() < 1e-9


@pytest.mark.parametrize(
    ("tail", "cumulative"),
    [
        (NoTail(), step_cumulative([], 0.0)),
        (HardTail(2000.3), step_cumulative([0.0], 2000.3)),
        (StepTail([0.5, 0.25, 0.0], 700.7), step_cumulative([0.5, 0.25, 0.0], 700.7)),
        (TableTail([0.0, 500.0, 500.0, 1500.0], [0.7, 0.7, 0.2, 0.2]), step_cumulative([0.7, 0.2, 0.2], 500.0)),
        (LinearTail(2000.3), beta_cumulative(1, 1, 2000.3)),
    ],
)
def test_other_weights_against_fifty_digits(tail, cumulative):
    """A thousand records: float64 sums alone would be off by more than 1e-9 of the smallest sensitivity."""
    generator = np.random.default_rng(2)
    scores, sensitivities = generator.normal(size=1000), 10.0 ** generator.uniform(-3, 3, 1000)
    with mpmath.workdps(50):
        expected = reference_weights(scores, sensitivities, cumulative)
    assert np.abs(importance_weights(scores, sensitivities, tail) - expected).max() < 1e-9


@given(batches(), tails, orders)
def test_invariants(batch, tail, order):
    scores, sensitivities = batch
    ids, owners = np.arange(scores.size), np.arange(scores.size) % 3
    rho = importance_weights(scores, sensitivities, tail, order=order, ids=ids, owners=owners)
    assert np.all((rho >= 0) & (rho <= 1 + 1e-12))
    ranking = order.ranking(scores, ids, owners.astype(float))
    assert np.all(np.diff(rho[ranking]) <= 1e-9)
    total = sensitivities.sum()
    np.testing.assert_allclose(rho @ sensitivities, tail.W(total), rtol=1e-9, atol=1e-10)
    in_torch = importance_weights(
        torch.from_numpy(scores), torch.from_numpy(sensitivities), tail, order=order, ids=ids, owners=owners
    )
    np.testing.assert_allclose(in_torch.numpy(), rho, atol=1e-12)


@given(batches(), tails, orders, st.randoms(use_true_random=False))
def test_permuting_records_permutes_weights(batch, tail, order, random):
    scores, sensitivities = batch
    ids, owners = np.arange(scores.size) * 7 + 1, np.arange(scores.size) % 3
    shuffle = np.array(random.sample(range(scores.size), scores.size), dtype=int)
    rho = importance_weights(scores, sensitivities, tail, order=order, ids=ids, owners=owners)
    shuffled = importance_weights(
        scores[shuffle], sensitivities[shuffle], tail, order=order, ids=ids[shuffle], owners=owners[shuffle]
    )
    np.testing.assert_array_equal(shuffled, rho[shuffle])


@given(batches(min_size=1), tails, orders, st.data())
def test_sensitivity(batch, tail, order, data):
    """The worst vectors lie on one line with the signs of the changes; their sum is the L1 norm of the changes."""
    scores, sensitivities = batch
    ids, owners = np.arange(scores.size), np.arange(scores.size) % 3
    added = data.draw(st.integers(0, scores.size - 1))
    others = np.delete(ids, added)
    share = sensitivities * importance_weights(scores, sensitivities, tail, order=order, ids=ids, owners=owners)
    without = sensitivities[others] * importance_weights(
        scores[others], sensitivities[others], tail, order=order, ids=others, owners=owners[others]
    )
    change = np.abs(share[others] - without).sum() + share[added]
    assert change <= sensitivities[added] * (1 + 1e-6)


@pytest.mark.parametrize("of", [np.asarray, torch.from_numpy])
def test_long_sums_do_not_lose_the_end_of_the_tail(of):
    """A million sums of 0.1 drift by 1e-6, ten times what the added record may move; the end of the tail must not."""
    n, small = 1_000_000, 1e-7
    sensitivities = np.append(np.full(n, 0.1), small)
    scores = np.append(np.ones(n), 0.0)
    tail = HardTail(float(np.nextafter(np.cumsum(np.append(small, np.full(n, 0.1)))[n - 1], 0)))
    share = of(sensitivities) * importance_weights(of(scores), of(sensitivities), tail)
    without = of(sensitivities[:-1]) * importance_weights(of(scores[:-1]), of(sensitivities[:-1]), tail)
    assert float(abs(share[:-1] - without).sum() + share[-1]) <= small * (1 + 1e-6)


@pytest.mark.parametrize("sensitivity", [1.0, 0.3, 7e-5])
@pytest.mark.parametrize("tail", [LinearTail(40.3), HardTail(7.1), BetaTail(2, 3, 25.0), StepTail([0.7, 0.2], 3.3)])
def test_weights_that_are_kept_for_one_sensitivity_are_those_of_the_sums(tail, sensitivity):
    for records in (1, 2, 41, 300, 90):
        scores = np.random.default_rng(records).normal(size=records)
        bounds = np.full(records, sensitivity)
        lowest = np.argsort(-scores, stable=True)[::-1]
        expected = np.ones(records)
        spent = tail_weights(np, bounds, tail)
        expected[lowest[: spent.size]] = spent
        assert importance_weights(scores, bounds, tail).tobytes() == expected.tobytes()
    long = LinearTail(1e9)
    assert long.equal_weights(1.0) is None
    assert importance_weights([2.0, 1.0], 1.0, long)[::-1].tolist() == tail_weights(np, np.ones(2), long).tolist()


@pytest.mark.parametrize("clipping", [ScaleClipped(), ClipToShare()])
def test_factors_of_numpy_arrays_are_those_of_tensors(clipping):
    norms = np.array([0.0, 0.5, 1.0, 2.0, np.nan, np.inf, 1e200, 1e150, 0.0])
    bounds = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    rho = np.linspace(0.1, 1, norms.size)
    expected = clipping.factors(*map(torch.from_numpy, (norms, bounds, rho)))
    assert clipping.factors(norms, bounds, rho).tobytes() == expected.numpy().tobytes()


def test_the_bound_is_tight():
    """A record of no weight that lifts others out of the tail costs its whole sensitivity."""
    above = importance_weights([2.0, 1.0], 1.0, HardTail(1.0))
    alone = importance_weights([2.0], 1.0, HardTail(1.0))
    assert (above.tolist(), alone.tolist()) == ([1.0, 0.0], [0.0])


def test_edge_cases():
    assert importance_weights([], [], LinearTail(3)).shape == (0,)
    assert importance_weights(torch.zeros(0), 1.0, BetaTail(2, 2, 3)).shape == (0,)
    np.testing.assert_allclose(importance_weights([5.0], [1.0], LinearTail(1)), [0.5])
    np.testing.assert_allclose(importance_weights([0.0] * 4, 1.0, HardTail(2)), [1, 1, 0, 0])  # small ids first
    np.testing.assert_allclose(importance_weights([1.0, 2.0], 1.0, LinearTail(10)), [0.05, 0.15])  # Gamma < length
    np.testing.assert_allclose(importance_weights([1.0, 2.0], 1.0, BetaTail(2, 3, 0)), [1, 1])
    np.testing.assert_allclose(importance_weights([1.0, 2.0, 3.0], [0.0, 1.0, 0.0], LinearTail(2)), [0, 0.25, 0.5])
    np.testing.assert_allclose(importance_weights(np.array([1, 3, 2], dtype=np.uint8), 1, HardTail(2)), [0, 1, 0])
    assert importance_weights([np.nan, 1.0, np.inf], 1.0, HardTail(1)).tolist() == [0, 1, 1]
    assert importance_weights(torch.tensor([1.0, 2.0], requires_grad=True), 1.0, LinearTail(1)).tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(scores=[[1.0]], sensitivities=1.0), "scores must be one"),
        (dict(scores=[1.0, 2.0], sensitivities=[1.0]), "sensitivities must be one number per record"),
        (dict(scores=[1.0], sensitivities=[-1.0]), "sensitivities must be 0 or lie in"),
        (dict(scores=[1.0], sensitivities=np.array([np.nan])), "sensitivities must be 0 or lie in"),
        (dict(scores=[1.0], sensitivities=1e160), "sensitivities must be 0 or lie in"),
        (dict(scores=[1.0], sensitivities=torch.tensor([np.inf])), "sensitivities must be 0"),
        (dict(scores=["high"], sensitivities=1.0), "scores must be numbers"),
        (dict(scores=np.array(["high"]), sensitivities=1.0), "scores must be numbers"),
        (dict(scores=None, sensitivities=1.0), "scores must be"),
        (dict(scores=[1.0, 2.0], sensitivities=1.0, ids=[1]), "ids must be one"),
        (dict(scores=[1.0, 2.0], sensitivities=1.0, ids=[0.5, 1.0]), "ids must be one distinct whole"),
        (dict(scores=[1.0, 2.0], sensitivities=1.0, ids=[4, 4]), "ids must differ"),
        (dict(scores=[1.0, 2.0], sensitivities=1.0, order=RandomOrder(0)), "RandomOrder needs ids"),
        (dict(scores=[1.0, 2.0], sensitivities=1.0, order=OwnerFirst()), "OwnerFirst needs owners"),
        (dict(scores=[1.0], sensitivities=1.0, tail=lambda u: 1), "tail must be of type Tail"),
        (dict(scores=[1.0], sensitivities=1.0, order=np.argsort), "order must be of type Order"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        importance_weights(**{"tail": LinearTail(1), **arguments})


@given(batches(), tails)
def test_ordered_sum_is_the_weighted_sum(batch, tail):
    scores, sensitivities = batch
    contributions = np.outer(sensitivities, [0.6, -0.8])
    rho = importance_weights(scores, sensitivities, tail)
    np.testing.assert_allclose(ordered_sum(contributions, scores, sensitivities, tail), rho @ contributions)
