import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inosgm import Plan

GOOD = dict(sample_rates=[0.1, 0.5], sensitivities=[1.0, 2.0], sizes=[100, 40], noise_scale=3.0, steps=5)


@given(
    st.lists(st.tuples(st.floats(1e-9, 1), st.floats(1e-3, 1e3), st.integers(0, 10**9)), min_size=1), st.integers(1, 99)
)
def test_json_gives_the_same_plan_back(owners, steps):
    rates, sensitivities, sizes = zip(*owners, strict=True)
    plan = Plan(
        sample_rates=rates, sensitivities=sensitivities, sizes=sizes, noise_scale=0.1, steps=steps, expected_batch=7.5
    )
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert hash(again) == hash(plan)


def test_derived_numbers():
    plan = Plan(**GOOD, labels=["a", "b"])
    assert plan.expected_batch == 30
    assert plan.noise_multipliers.tolist() == [3.0, 1.5]
    assert plan.tail_length(0.5) == 0.5 * (10 * 1 + 20 * 2)
    assert plan != Plan(**GOOD)
    assert plan.step_cost[0] < plan.step_cost[1]


def test_step_cost_survives_extremes():
    plan = Plan(sample_rates=[1e-9, 1e-9], sensitivities=[1e-3, 1e3], sizes=[1, 1], noise_scale=1.0, steps=1)
    assert np.isfinite(plan.step_cost).all()
    np.testing.assert_allclose(plan.step_cost[0], np.log(1e-18 * np.expm1(1e-6)))


def test_a_plan_cannot_be_changed():
    plan = Plan(**GOOD)
    with pytest.raises(AttributeError):
        plan.steps = 100
    for name in ("sample_rates", "sensitivities", "sizes", "noise_multipliers"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(plan, name)[0] = 9
    rates = np.array([0.1, 0.5])
    copied = Plan(**{**GOOD, "sample_rates": rates})
    rates[0] = 0.9
    assert copied.sample_rates[0] == 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(sample_rates=[0.1, 1.2]), r"sample_rates must lie in \[0, 1\].*, got 1.2 at position 1"),
        (dict(sample_rates=[-0.1, 0.5]), "sample_rates must lie in"),
        (dict(sample_rates=[0.0, 0.0]), "sample_rates must let somebody take part"),
        (dict(sample_rates=[0.1, np.nan]), "sample_rates must be finite"),
        (dict(sample_rates=[[0.1, 0.2]]), "must be a list of numbers"),
        (dict(sample_rates=[], sensitivities=[], sizes=[]), "at least one owner"),
        (dict(sensitivities=[1.0, -1.0]), "sensitivities must lie in .*, got -1.0 at position 1"),
        (dict(sensitivities=[0.0, 1.0]), "sensitivities must lie in"),
        (dict(sensitivities=[np.inf, 1.0]), "sensitivities must be finite"),
        (dict(sensitivities=[1.0]), "one entry per owner: got 1 for 2"),
        (dict(sensitivities="wide"), "sensitivities must be numbers"),
        (dict(sizes=[1.5, 2]), "whole numbers"),
        (dict(sizes=[-1, 2]), "whole numbers"),
        (dict(noise_scale=0), "noise_scale must be finite and > 0"),
        (dict(noise_scale=None), "noise_scale must be a number"),
        (dict(steps=0), "steps must be a whole number >= 1"),
        (dict(steps=2.5), "steps must be a whole number"),
        (dict(expected_batch=-1), "expected_batch must be"),
        (dict(labels=["a"]), "labels must hold one entry per owner"),
        (dict(labels=["a", "a"]), "labels must differ"),
        (dict(labels=["a", 1.5]), "labels must be all text or all whole numbers, got 1.5"),
        (dict(labels=[1, "1"]), "labels must be all text or all whole numbers"),
        (dict(steps="many"), "steps must be a whole number"),
        (dict(sample_rates=0.5), "sample_rates must be a list of numbers"),
    ],
)
def test_impossible_plans(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Plan(**{**GOOD, **change})


def test_files_have_the_same_defaults():
    numbers = json.loads(Plan(**GOOD).to_json())
    del numbers["labels"], numbers["expected_batch"]
    assert Plan.from_json(json.dumps(numbers)) == Plan(**GOOD)
    assert Plan.from_json(Plan(**GOOD, labels=np.array([3, 4])).to_json()).labels == (3, 4)


def test_bad_files():
    text = Plan(**GOOD).to_json()
    for change, message in (
        ({"stepz": 3}, "stepz"),
        ({"steps": "many"}, "steps"),
        ({"sample_rates": [0.1, 7]}, "sample_rates must lie in"),
    ):
        with pytest.raises(ValueError, match=message):
            Plan.from_json(json.dumps({**json.loads(text), **change}))
    with pytest.raises(ValueError, match="not the JSON text of a plan"):
        Plan.from_json(text[:20])
