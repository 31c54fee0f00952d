"""Plans spend every budget and exceed none; wishes that cannot be are refused by name; budgets may change."""

import pickle

import numpy as np
import pytest

from inosgm.accounting import PLD, RDP, Segment, composed_epsilon, epsilon, noise_multiplier
from inosgm.owners import Owners
from inosgm.planning.planners import AlreadySpent, Plan, plan_blend, plan_sample, plan_scale, plan_uniform


def grants(epsilon, records=60000, delta=1e-5, labels=None, sizes=None):
    """Owners with equally many records each, if sizes does not say otherwise."""
    count = len(epsilon)
    names = range(count) if labels is None else labels
    assert list(names) == sorted(names)
    sizes = [records // count] * count if sizes is None else sizes
    table = {
        "owner": list(names),
        "epsilon": list(epsilon),
        "delta": list(np.broadcast_to(delta, count)),
        "records": sizes,
    }
    return Owners.from_table(table)


def blend(owners, **how):
    return plan_blend(owners, weight=0.4, **how)


MNIST = {"steps": 400, "expected_batch": 512, "clip_norm": 0.2}
METHODS = [plan_sample, plan_scale, blend]
ACCOUNTANTS = [PLD(), RDP()]


def exact(plan, rows):
    """Epsilon of some owners, one by one."""
    accountant = {"pld": PLD(), "rdp": RDP()}[plan.accountant]
    return epsilon(plan.sample_rates[rows], plan.noise_multipliers[rows], plan.steps, plan.delta[rows], accountant)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "budgets", [[1.0], [1.0, 2.0, 3.0], [0.5, 1.0, 2.0, 3.0, 4.0, 8.0], np.linspace(1, 3, 90)], ids=len
)
def test_every_budget_is_spent_and_none_exceeded(method, budgets, accountant):
    owners = grants(budgets)
    plan = method(owners, **MNIST, accountant=accountant)
    rows = np.unique(np.linspace(0, len(budgets) - 1, 12).astype(int))
    for spent in (plan.spent()[rows], exact(plan, rows)):
        assert (spent <= owners.epsilon[rows]).all()
        assert (spent >= 0.995 * owners.epsilon[rows]).all()
    assert plan.sample_rates @ owners.sizes == pytest.approx(512 * owners.sizes.sum() / owners.sizes.sum(), rel=1e-12)
    assert plan.sensitivities @ owners.sizes / owners.sizes.sum() == pytest.approx(0.2, rel=1e-12)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_budgets_from_a_twentieth_to_fifty_fit_in_one_plan(accountant):
    owners = grants(np.geomspace(0.05, 50, 9))
    plan = plan_scale(owners, steps=1000, expected_batch=512, clip_norm=1.0, accountant=accountant)
    spent = exact(plan, np.arange(9))
    assert (spent <= owners.epsilon).all()
    assert (spent >= 0.995 * owners.epsilon).all()


@pytest.mark.long  # 3,000 steps at an epsilon of 50 have a long distribution of losses
def test_budgets_from_a_twentieth_to_fifty_fit_in_one_plan_of_rates():
    owners = grants([0.05, 1.0, 50.0])
    plan = plan_sample(owners, steps=3000, expected_batch=512, clip_norm=1.0)
    spent = exact(plan, np.arange(3))
    assert (spent <= owners.epsilon).all()
    assert (spent >= 0.995 * owners.epsilon).all()


def test_sample_has_one_sensitivity_and_scale_has_one_rate():
    owners = grants([1.0, 2.0, 3.0])
    sample, scale = plan_sample(owners, **MNIST), plan_scale(owners, **MNIST)
    assert set(sample.sensitivities) == {0.2}
    assert (np.diff(sample.sample_rates) > 0).all()
    assert set(scale.sample_rates) == {512 / 60000}
    assert (np.diff(scale.sensitivities) > 0).all()


def test_scale_follows_the_harmonic_formula():
    owners = grants([1.0, 2.0, 3.0], sizes=[20400, 25800, 13800])
    plan = plan_scale(owners, steps=2146, expected_batch=1024, clip_norm=0.9, accountant=RDP())
    multipliers = noise_multiplier(owners.epsilon, 1e-5, 1024 / 60000, 2146, RDP())
    harmonic = 60000 / (owners.sizes / multipliers).sum()
    assert plan.noise_scale == pytest.approx(0.9 * harmonic, rel=1e-3)
    np.testing.assert_allclose(plan.sensitivities, 0.9 * harmonic / multipliers, rtol=1e-3)


def test_sample_reproduces_table_7():
    owners = grants([1.0, 2.0, 3.0], sizes=[17000, 21500, 11500])
    plan = plan_sample(owners, steps=1465, expected_batch=1024, clip_norm=0.4, accountant=RDP())
    assert plan.noise_scale / 0.4 == pytest.approx(1.965, rel=0.02)
    np.testing.assert_allclose(plan.sample_rates, [0.012, 0.022, 0.031], atol=6e-4)


def test_a_blend_lies_between():
    owners = grants([1.0, 3.0])
    sample, scale = plan_sample(owners, **MNIST), plan_scale(owners, **MNIST)
    middle = blend(owners, **MNIST)
    ratio = [np.log(p.sample_rates[1] / p.sample_rates[0]) for p in (scale, middle, sample)]
    assert ratio[0] == 0 < ratio[1] < ratio[2]
    for weight, end in ((0.0, scale), (1.0, sample)):
        same = plan_blend(owners, weight=weight, **MNIST)
        np.testing.assert_array_equal(same.sample_rates, end.sample_rates)
        np.testing.assert_array_equal(same.sensitivities, end.sensitivities)
        assert same.noise_scale == end.noise_scale


def test_uniform_is_as_strict_as_the_strictest():
    owners = grants([2.0, 0.5, 8.0])
    plan = plan_uniform(owners, **MNIST)
    assert set(plan.sensitivities) == {0.2}
    assert len(set(plan.sample_rates)) == 1
    spent = plan.spent()
    assert 0.995 * 0.5 <= spent[0] <= 0.5
    assert len(set(spent)) == 1


def test_every_owner_has_its_delta():
    owners = grants([1.0, 1.0], delta=[1e-3, 1e-9])
    plan = plan_scale(owners, **MNIST)
    assert plan.sensitivities[0] > plan.sensitivities[1]
    spent = epsilon(plan.sample_rates, plan.noise_multipliers, plan.steps, owners.delta)
    assert (spent <= 1).all()
    assert (spent >= 0.995).all()


def test_spent_rises_with_the_steps_and_starts_at_nothing():
    plan = plan_sample(grants([1.0, 3.0]), **MNIST)
    path = np.array([plan.spent(step) for step in (0, 1, 100, 400)])
    assert (path[0] == 0).all()
    assert (np.diff(path, axis=0) > 0).all()
    with pytest.raises(ValueError, match="at most the 400 steps"):
        plan.spent(401)


@pytest.mark.parametrize("method", [plan_scale, plan_uniform, plan_sample, blend])
def test_more_than_all_records_cannot_be_expected(method):
    with pytest.raises(ValueError, match="expected_batch must be at most the number of records, 60000, got 70000"):
        method(grants([1.0, 2.0]), steps=10, expected_batch=70000, clip_norm=1.0)


def test_a_rate_above_one_is_refused_with_what_to_change():
    owners = grants([0.3, 50.0], records=2000, labels=("bashful", "daring"))
    wish = {"steps": 20, "clip_norm": 1.0}
    with pytest.raises(
        ValueError, match=r"owner 'daring' \(epsilon 50, .* exceed 1 .* Lower expected_batch to (\d+)"
    ) as raised:
        plan_sample(owners, expected_batch=1500, **wish)
    limit = int(str(raised.value).split("expected_batch to ")[1].split()[0])
    plan = plan_sample(owners, expected_batch=limit, **wish)  # the advice is good
    assert plan.sample_rates.max() > 0.98
    with pytest.raises(ValueError, match="exceed 1"):
        plan_sample(owners, expected_batch=limit * 1.05, **wish)


def test_a_budget_too_small_for_any_rate_is_refused_with_what_to_change():
    owners = grants([0.02, 8.0], labels=("bashful", "daring"))
    with pytest.raises(
        ValueError, match=r"owner 'bashful' \(epsilon 0.02, .* grants too little: .* Raise expected_batch"
    ):
        plan_sample(owners, steps=20, expected_batch=64, clip_norm=1.0, accountant=RDP())


def test_a_budget_too_large_to_spend_is_refused_with_what_to_change():
    owners = grants([1.0, 1e6], labels=("bashful", "daring"))
    with pytest.raises(ValueError, match=r"owner 'daring' .* more than can be spent: .* Raise steps"):
        plan_scale(owners, steps=1, expected_batch=64, clip_norm=1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"expected_batch": 0}, "expected_batch must be finite and > 0"),
        ({"clip_norm": -1.0}, "clip_norm must be finite and > 0"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        plan_scale(grants([1.0]), **{**MNIST, **change})
    with pytest.raises(ValueError, match="weight must be finite"):
        plan_blend(grants([1.0]), weight=1.5, **MNIST)


@pytest.mark.parametrize("method", [plan_sample, plan_scale, blend, plan_uniform])
def test_a_revised_plan_counts_what_was_spent(method):
    plan = method(grants([1.0, 2.0]), **MNIST)
    revised = plan.revise(150, grants([1.5, 1.8]))
    assert revised.steps == 250
    assert revised.method == plan.method
    whole = composed_epsilon(
        [
            Segment(plan.sample_rates, plan.noise_multipliers, 150),
            Segment(revised.sample_rates, revised.noise_multipliers, 250),
        ],
        1e-5,
    )
    assert (whole <= [1.5, 1.8]).all()
    assert whole.max() >= 0.995 * 1.5
    if method is not plan_uniform:
        assert (whole >= 0.995 * np.array([1.5, 1.8])).all()
    np.testing.assert_allclose(revised.spent(), whole, rtol=1e-9)
    np.testing.assert_array_equal(revised.spent(0), plan.spent(150))
    again = revised.revise(100, grants([2.0, 2.0]))
    assert (again.spent() <= 2).all()
    assert len(again.past) == 2


def test_an_owner_that_takes_its_budget_back_sends_the_run_back():
    plan = plan_scale(grants([1.0, 2.0], labels=("a", "b")), **MNIST)
    with pytest.raises(AlreadySpent, match=r"owner 'b' now grants epsilon 0\.7") as raised:
        plan.revise(300, grants([1.0, 0.7], labels=("a", "b")))
    last = raised.value.last_step
    assert raised.value.owner == "b"
    assert plan.spent(last)[1] <= 0.7 < plan.spent(last + 1)[1]
    revised = plan.revise(last, grants([1.0, 0.71], labels=("a", "b")))
    assert (revised.spent() <= [1.0, 0.71]).all()
    with pytest.raises(AlreadySpent) as raised:
        revised.revise(10, grants([0.2, 0.71], labels=("a", "b")))
    assert raised.value.owner == "a"
    assert plan.spent(raised.value.last_step)[0] <= 0.2  # counted from the beginning of the run


def test_what_cannot_be_revised_is_refused():
    plan = plan_scale(grants([1.0, 2.0]), **MNIST)
    with pytest.raises(ValueError, match="owners must be those of the plan"):
        plan.revise(10, grants([1.0, 2.0], labels=("a", "b")))
    with pytest.raises(ValueError, match="nothing is left"):
        plan.revise(400, grants([1.0, 2.0]))
    by_hand = Plan(sample_rates=[0.1], sensitivities=[1], sizes=[10], noise_scale=1, steps=5)
    with pytest.raises(ValueError, match="knows no budgets"):
        by_hand.spent()
    with pytest.raises(ValueError, match="knows no budgets"):
        by_hand.revise(1, grants([1.0]))


def test_plans_survive_json_with_budgets_and_past():
    plan = blend(grants([1.0, 2.0], labels=("a", "b")), **MNIST)
    for each in (plan, plan.revise(100, grants([1.0, 2.5], labels=("a", "b")))):
        assert Plan.from_json(each.to_json()) == each
    with pytest.raises(ValueError, match=r"past\.0\.rates"):
        Plan.from_json(each.to_json().replace('"past": [\n    {\n', '"past": [\n    {\n "rates": [1],\n'))
    with pytest.raises(ValueError, match="given together"):
        Plan(sample_rates=[0.1], sensitivities=[1], sizes=[10], noise_scale=1, steps=5, epsilon=[1.0])
    with pytest.raises(ValueError, match="accountant must be one of"):
        Plan.from_json(plan.to_json().replace('"pld"', '"guess"'))


def test_the_report_shows_owners_or_kinds_of_owners():
    few = plan_sample(grants([1.0, 2.0], labels=("bashful", "daring")), **MNIST).report()
    assert "bashful" in few
    assert "daring" in few
    assert len(few.splitlines()) == 4
    many = plan_scale(grants(np.repeat([1.0, 2.0, 3.0], 500)), **MNIST).report().splitlines()
    assert len(many) == 5
    assert "499 more" in many[2]
    kinds = plan_scale(grants(np.linspace(1, 3, 3000)), **MNIST).report().splitlines()
    assert len(kinds) == 43
    assert "40 of 3000" in kinds[-1]
    by_hand = Plan(sample_rates=[0.1], sensitivities=[1], sizes=[10], noise_scale=1, steps=5).report()
    assert "granted" not in by_hand


def test_ten_thousand_owners_with_budgets_of_their_own():
    owners = grants(np.linspace(1, 3, 10000))
    for method in METHODS:
        plan = method(owners, **MNIST)
        rows = np.array([0, 1, 777, 5000, 9998, 9999])
        spent = exact(plan, rows)
        assert (spent <= owners.epsilon[rows]).all()
        assert (spent >= 0.995 * owners.epsilon[rows]).all()
        assert (plan.spent() <= owners.epsilon).all()


@pytest.mark.long  # works out rates for 70 kinds of owners
def test_very_many_owners_with_several_deltas_can_be_charged():
    """More than 64 kinds are read off a table when they are charged, a little above what planning works out."""
    owners = grants(np.geomspace(0.5, 5, 70), records=1400, delta=np.where(np.arange(70) == 0, 1e-6, 1e-5))
    plan = plan_blend(owners, weight=0.5, steps=20, expected_batch=100, clip_norm=1.0)
    assert np.all(plan.spent() <= owners.epsilon)
    assert np.all(plan.spent() >= 0.995 * owners.epsilon)


def test_wrong_kinds_of_arguments_are_named():
    with pytest.raises(TypeError, match="owners must be of type Owners"):
        plan_sample({"a": 1.0}, **MNIST)
    with pytest.raises(TypeError, match="past must be of type Segment"):
        plan_sample(grants([1.0]), past=[(0.1, 1.0, 3)], **MNIST)
    with pytest.raises(TypeError, match=r"accountant must be PLD\(\) or RDP\(\)"):
        plan_sample(grants([1.0]), accountant="rdp", **MNIST)


def test_already_spent_survives_a_process_boundary():
    error = pickle.loads(pickle.dumps(AlreadySpent("a", 1.0, 2.0, 30)))
    assert (error.owner, error.granted, error.spent, error.last_step) == ("a", 1.0, 2.0, 30)
    assert "go back to step 30" in str(error)
