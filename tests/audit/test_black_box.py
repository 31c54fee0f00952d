"""Audits of any callable: what keeps its claim passes, and known mistakes are caught, at a stated false-alarm rate."""

import math

import numpy as np
import pytest
import torch

from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.audit import GaussianSteps, audit_callable

DELTA = 1e-5
ONE = GaussianSteps(noise_multiplier=1.0)
CLAIM = {"epsilon": float(gaussian_epsilon(1.0, DELTA)), "delta": DELTA}


def noisy(seed, noise=1.0, width=3, scale=1.0):
    """Return a callable that adds noise to the sum of rows."""
    generator = np.random.default_rng(seed)
    return lambda rows: scale * np.sum(rows, axis=0) + noise * generator.normal(size=width)


ROWS = np.zeros((4, 3))
MORE = np.vstack([ROWS, [[0.6, 0.8, 0.0]]])


def test_a_sum_that_keeps_its_claim_is_contradicted_as_rarely_as_stated():
    """40 audits at a false-alarm rate of 5 %: more than 7 alarms have a probability below 1e-3 if the rate is kept."""
    audits = [audit_callable(noisy(seed), ROWS, MORE, steps=ONE, runs=300, **CLAIM) for seed in range(40)]
    assert sum(audit.contradicts for audit in audits) <= 7
    assert np.median([audit.moved for audit in audits]) == pytest.approx(0.95, abs=0.15)  # 1 but for the direction


def test_the_bound_comes_close_with_many_runs():
    found = audit_callable(noisy(1), ROWS, MORE, steps=ONE, runs=20_000, **CLAIM)
    assert not found.contradicts
    assert 0.9 * CLAIM["epsilon"] < found.bound.epsilon <= CLAIM["epsilon"]
    assert found.bound.plain < found.bound.epsilon


@pytest.mark.parametrize("steps", [ONE, None])
@pytest.mark.parametrize("mistake", [{"noise": 0.1}, {"scale": 10.0}, {"noise": 0.0}])
def test_too_little_noise_is_caught_with_and_without_knowing_the_steps(mistake, steps):
    found = audit_callable(noisy(2, **mistake), ROWS, MORE, steps=steps, runs=2000, **CLAIM | {"epsilon": 1.0})
    assert found.contradicts
    assert "REFUTED" in found.table()


def test_a_rate_that_is_too_high_is_caught():
    generator = np.random.default_rng(3)

    def release(rows, rate):
        return np.sum(rows[generator.random(len(rows)) < rate]) + 0.5 * generator.normal()

    steps = GaussianSteps(noise_multiplier=0.5, sample_rate=0.1)
    data = {"without": np.zeros(3), "with_record": np.array([0.0, 0.0, 0.0, 1.0])}
    claim = {"epsilon": 5.0, "delta": DELTA, "steps": steps, "runs": 3000}
    assert not audit_callable(lambda rows: release(rows, 0.1), **data, **claim).contradicts
    assert audit_callable(lambda rows: release(rows, 0.5), **data, **claim).contradicts


def test_fixed_batches_accounted_as_poisson_are_caught():
    """The record takes the place of another that pulls the other way: the sum moves by twice the sensitivity."""
    generator = np.random.default_rng(4)

    def release(rows):
        return np.sum(generator.permutation(rows)[:10]) + generator.normal()

    without = -np.ones(20)
    claim = {"epsilon": 3.534, "delta": DELTA, "steps": GaussianSteps(noise_multiplier=1.0, sample_rate=0.5)}
    assert audit_callable(release, without, np.append(without, 1.0), runs=2000, **claim).contradicts


def test_a_replaced_record_may_move_the_sum_by_twice_the_sensitivity():
    claim = {"epsilon": float(gaussian_epsilon(2.0, DELTA)), "delta": DELTA, "steps": ONE, "runs": 2000}
    one, other = np.array([[-1.0, 0.0, 0.0]]), np.array([[1.0, 0.0, 0.0]])
    assert not audit_callable(noisy(5), one, other, replaced=True, **claim).contradicts
    assert audit_callable(noisy(5), one, other, **claim).contradicts


def test_outputs_may_be_trees_of_tensors():
    generator = torch.Generator().manual_seed(0)

    def release(rows):
        total = torch.as_tensor(rows).sum(0) + torch.randn(3, generator=generator)
        return {"weight": total[:2], "bias": [total[2]]}

    found = audit_callable(release, ROWS, MORE, steps=ONE, runs=1000, **CLAIM)
    assert not found.contradicts
    assert found.bound.epsilon > 1


def test_a_callable_without_any_difference_shows_nothing():
    found = audit_callable(lambda rows: 7.0, ROWS, MORE, steps=ONE, runs=200, **CLAIM)
    assert (found.moved, found.bound.epsilon, found.contradicts) == (0.0, 0.0, False)


def test_progress_and_turns():
    seen, calls = [], []

    def release(rows):
        calls.append(len(rows))
        return float(len(calls) % 7)

    audit_callable(release, [1], [1, 2], runs=200, progress=lambda *done: seen.append(done), **CLAIM)
    assert calls == [1, 2] * 200
    assert (seen[0], seen[-1]) == ((2, 400), (400, 400))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 100}, "runs must be a whole number >= 200"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"delta": 2.0}, "delta must be"),
        ({"confidence": 1.0}, "confidence must be below 1"),
    ],
)
def test_bad_numbers_are_refused_before_a_call(options, message):
    def never(rows):
        raise AssertionError("called")

    with pytest.raises(ValueError, match=message):
        audit_callable(never, ROWS, MORE, **CLAIM | options)


def test_bad_outputs_are_refused():
    with pytest.raises(ValueError, match="finite numbers, got NaN or an infinity in run 0"):
        audit_callable(lambda rows: math.nan, ROWS, MORE, **CLAIM)
    with pytest.raises(ValueError, match="4 at first, 5 in run 0"):
        audit_callable(lambda rows: np.zeros(len(rows)), ROWS, MORE, **CLAIM)
    for wrong in ({"noise_multiplier": 0}, {"sample_rate": 0}, {"sample_rate": 1.5}, {"steps": 0}):
        with pytest.raises(ValueError, match="must be"):
            GaussianSteps(**{"noise_multiplier": 1.0} | wrong)
