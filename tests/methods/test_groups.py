"""ASC and aZB: plans for groups, what steers them, and attacks on both."""

import json

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from inosgm import Owners, Plan, certify
from inosgm.accounting import ACCOUNTANTS, PLD, RDP
from inosgm.audit import audit_mechanism
from inosgm.ledger.ledger import Ledger
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.sampling import FixedSizeSampler
from inosgm.mechanism.tails import LinearTail
from inosgm.methods.asc import AdaptiveShares, capped, first_counts, plan_asc, rounded
from inosgm.methods.azb import ChosenGroup, plan_chosen_group
from inosgm.planning.choices import Choices
from inosgm.training import Trainer
from inosgm.training.group_losses import GroupLosses

SIZES = {"a": 400, "b": 300, "c": 40}


def owners(epsilon=1.0):
    labels = [label for label, size in SIZES.items() for _ in range(size)]
    return Owners(of_record=labels, epsilon=epsilon, delta=1e-5)


ASKED = {"steps": 60, "expected_batch": 60, "clip_norm": 1.0, "every": 10}


@pytest.fixture(scope="module")
def asc():
    return plan_asc(owners({"a": 2.0, "b": 1.0, "c": 1.0}), **ASKED)


def data(plan, seed=0):
    generator = torch.Generator().manual_seed(seed)
    total = int(plan.sizes.sum())
    return torch.randn(total, 4, generator=generator), torch.arange(total) % 3


def trainer(plan, steering, of_record=None, **options):
    torch.manual_seed(1)
    model = nn.Linear(4, 3)
    of_record = np.repeat(np.array(plan.labels), plan.sizes) if of_record is None else of_record
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, owners=of_record, steering=steering, **options)


def test_whatever_is_chosen_from_a_menu_no_budget_is_exceeded_by_an_independent_accountant(asc):
    """Constant choices and a random sequence of a few, composed by dp_accounting."""
    rows = np.random.default_rng(0).choice(asc.choices.count, 4, replace=False).repeat(asc.steps // 4)
    losses = asc.side_releases[0]
    for group in range(3):
        worst = 0.0
        for made in (rows, np.full(asc.steps, 0), np.full(asc.steps, asc.choices.count - 1)):
            accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
            for row in np.unique(made):
                rate = asc.choices.sample_rates[row, group]
                step = dp_accounting.GaussianDpEvent(asc.noise_scale / asc.choices.sensitivities[row, group])
                sampled = step if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, step)
                accountant.compose(sampled, int((made == row).sum()))
            multiplier = losses.noise_scale / losses.sensitivities[group]
            accountant.compose(dp_accounting.GaussianDpEvent(multiplier), losses.steps)
            worst = max(worst, accountant.get_epsilon(1e-5))
        assert 0.6 * asc.epsilon[group] < worst <= asc.epsilon[group]
    assert (asc.spent() <= asc.epsilon).all()
    assert (asc.spent() >= 0.98 * asc.epsilon).all()


def test_rates_that_rise_have_sensitivities_that_fall_and_none_is_above_what_a_group_has(asc):
    assert (np.diff(asc.choices.sample_rates, axis=0) >= 0).all()
    assert (np.diff(asc.choices.sensitivities, axis=0) <= 1e-12).all()
    assert asc.choices.sample_rates.max() <= 1
    assert asc.sample_rates @ asc.sizes == pytest.approx(60)
    assert asc.sensitivities @ asc.sizes / asc.sizes.sum() == pytest.approx(1.0)


def test_losses_that_are_not_paid_for_and_shares_off_the_menu_are_refused(asc):
    with pytest.raises(ValueError, match="releases losses 59 times, once in 1 steps, and the plan pays for 5"):
        trainer(asc, AdaptiveShares(asc, every=1, temperature=1.0))
    with pytest.raises(ValueError, match=r"does not pay for a rate of .* for 'b'"):
        asc.with_choice(asc.sample_rates * [1, 1.5, 1], asc.sensitivities)
    with pytest.raises(ValueError, match="does not pay for"):
        asc.with_choice(asc.sample_rates, asc.sensitivities * 1.01)
    assert asc.with_choice(asc.sample_rates * [0, 0.5, 1], asc.sensitivities).sample_rates[0] == 0


class Greedy(AdaptiveShares):
    """Asks for more than the plan pays for."""

    def shares(self, plan, coins):
        rates, bounds = super().shares(plan, coins)
        return np.minimum(rates * 2, 1), bounds


def test_steering_that_asks_for_more_stops_before_anything_is_drawn_or_charged(asc):
    ledger = Ledger(owners=owners({"a": 2.0, "b": 1.0, "c": 1.0}))
    made = trainer(asc, Greedy(asc, every=10, temperature=1.0), ledger=ledger)
    with pytest.raises(ValueError, match="choice must be one of the plan's"):
        made.step(*data(asc))
    assert not ledger.history()


@pytest.mark.parametrize("kind", ["asc", "azb"])
@pytest.mark.parametrize("sampling", ["poisson", "without_replacement"])
def test_a_run_that_is_steered_goes_on_bit_for_bit(kind, sampling, tmp_path):
    planner, steering = {"asc": (plan_asc, AdaptiveShares), "azb": (plan_chosen_group, ChosenGroup)}[kind]
    plan = planner(owners(), **{**ASKED, "steps": 12, "every": 3}, sampling=sampling, accountant=RDP())

    def fit(folder, **options):
        made = trainer(plan, steering(plan, every=3, temperature=1.0), key=5)
        made.fit(*data(plan), run=folder, checkpoint_every=2, progress=False, **options)
        return made

    whole, part = fit(tmp_path / "whole"), fit(tmp_path / "part", steps=7)
    again = fit(tmp_path / "part")
    assert torch.equal(whole.model.weight, again.model.weight)
    assert (
        json.dumps(whole._steering.state()) == json.dumps(again._steering.state()) != json.dumps(part._steering.state())
    )
    ledger = Ledger(
        tmp_path / "part" / "ledger", accountant=None if sampling == "poisson" else ACCOUNTANTS[plan.accountant]
    )
    charged = [charge.steps for charge in ledger.history()]
    assert sum(charged) == 12 + 3
    assert max(ledger.spent().values()) <= 1


def test_batches_without_replacement_have_fixed_sizes_and_every_record_is_as_likely():
    """False alarm below 1e-4: 40,000 draws, each count within 4.5 standard deviations (20 records)."""
    of_record = np.repeat([0, 1], [12, 8])
    sampler, generator = FixedSizeSampler(np.array([3, 4]), of_record), np.random.default_rng(0)
    counts = np.zeros(20)
    for _ in range(40_000):
        drawn = sampler.draw(generator)
        assert drawn.size == 7
        counts[drawn] += 1
    share = np.where(of_record == 0, 3 / 12, 4 / 8)
    assert (np.abs(counts - 40_000 * share) < 4.5 * np.sqrt(40_000 * share * (1 - share))).all()
    with pytest.raises(ValueError, match="at most the records"):
        FixedSizeSampler(np.array([13, 0]), of_record)


def test_where_a_record_is_replaced_sizes_must_be_those_of_the_plan():
    plan = plan_chosen_group(owners(), **ASKED, sampling="without_replacement", accountant=RDP())
    labels = np.repeat(np.array(plan.labels), plan.sizes)
    with pytest.raises(ValueError, match="owners must be those of the plan"):
        trainer(plan, None, of_record=labels[1:])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=2, max_size=12), st.floats(0.01, 1.0), st.integers(0, 2**32))
def test_shares_of_a_batch_sum_up_and_are_whole_where_they_must_be(sizes, fraction, seed):
    generator, sizes = np.random.default_rng(seed), np.array(sizes, dtype=float)
    batch = max(1, int(fraction * sizes.sum()))
    wanted = generator.exponential(size=sizes.size) + 1e-9
    for found in (capped(wanted, sizes, batch), rounded(batch * wanted / wanted.sum(), sizes, batch, generator)):
        assert found.sum() == pytest.approx(batch)
        assert (found >= 0).all()
        assert (found <= sizes + 1e-9).all()
    assert (found == np.rint(found)).all()
    assert first_counts(batch, sizes, whole=False).sum() == pytest.approx(batch)


def test_halves_are_rounded_to_even_and_the_rest_is_given_at_random():
    found = [rounded(np.array([0.5, 1.5, 2.5, 3.5]), np.full(4, 9.0), 8, np.random.default_rng(i)) for i in range(50)]
    assert all((row == [0, 2, 2, 4]).all() for row in found)
    found = np.array([rounded(np.full(4, 2.5), np.full(4, 9.0), 10, np.random.default_rng(i)) for i in range(50)])
    assert set(found.ravel().tolist()) == {2.0, 3.0, 4.0}
    assert (found.sum(axis=1) == 10).all()
    assert (rounded(np.array([0.0, 0.6, 0.6]), np.full(3, 9.0), 1, np.random.default_rng(0)) >= 0).all()


def test_who_is_weak_pays_more_than_it_grants_and_says_so():
    plan = plan_chosen_group(owners(), **ASKED, weak=True, accountant=PLD())
    whole = plan_chosen_group(owners(), **ASKED, accountant=PLD())
    assert plan.spent()[0] <= 1
    assert plan.spent()[2] > 2
    assert (whole.spent() <= 1).all()
    accountant = pld.PLDAccountant()
    step = dp_accounting.GaussianDpEvent(plan.noise_scale / plan.sensitivities[2])
    accountant.compose(
        step if plan.sample_rates[2] == 1 else dp_accounting.PoissonSampledDpEvent(1.0, step), plan.steps
    )
    losses = plan.side_releases[0]
    accountant.compose(dp_accounting.GaussianDpEvent(losses.noise_scale / losses.sensitivities[2]), losses.steps)
    assert plan.spent()[2] == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


def test_the_mechanism_of_each_choice_is_what_the_menu_says_and_attacks_do_not_refute_it(asc):
    """Confidence .95 for each of two audits; and a plan that is sampled four times as often as it says is refuted."""
    with pytest.raises(ValueError, match="steering must be given for a plan with choices"):
        trainer(asc, None)
    made = trainer(
        asc, AdaptiveShares(asc, every=10, temperature=1.0), tail=lambda plan: LinearTail(plan.tail_length(0.4))
    )
    for row in (0, asc.choices.count - 1):
        made.mechanism._apply_choice(asc.with_choice(asc.choices.sample_rates[row], asc.choices.sensitivities[row]))
        assert not audit_mechanism(made, "c", runs=400).contradicts
    assert certify(made, evaluations=300).holds()
    lie = Plan(
        sample_rates=asc.sample_rates / 4,
        sensitivities=asc.sensitivities,
        sizes=asc.sizes,
        noise_scale=asc.noise_scale / 3,
        steps=asc.steps,
        labels=asc.labels,
        epsilon=asc.epsilon,
        delta=asc.delta,
        accountant="pld",
    )
    broken = trainer(lie, None)
    broken.mechanism._sampler = made.mechanism._sampler_of(asc)
    assert audit_mechanism(broken, "c", runs=2000).contradicts


def test_a_menu_is_part_of_a_plan_in_a_file(asc):
    again = Plan.from_json(asc.to_json())
    assert again == asc
    assert again.choices == asc.choices
    assert again.side_releases == asc.side_releases
    with pytest.raises(ValueError, match="tables of one row per choice"):
        Choices(sample_rates=[[0.1, 0.2]], sensitivities=[[1.0]])


def test_released_means_lie_where_means_can_lie_however_small_a_group_is(asc):
    losses = asc.side_releases[0]
    owners_of = np.repeat(np.arange(3), asc.sizes)
    made = GroupLosses(losses, owners_of, lambda data, rows: data[rows], key=1, ledger=None, released=0, note="")
    values = np.full(asc.sizes.sum(), 0.25)
    found = np.array([made.means(made.release(values).value) for _ in range(losses.steps)])
    assert found.min() >= 0
    assert found.max() <= 1
    assert np.ptp(found[:, 2]) > np.ptp(found[:, 0]) > 0
    exact = made.means(*Inspection(made).sums(values, [np.arange(values.size)]))
    assert exact == pytest.approx([0.25] * 3)


def test_groups_with_higher_losses_get_more_of_the_batch(asc):
    steering, coins = AdaptiveShares(asc, every=10, temperature=1.0), np.random.default_rng(0)
    before, bounds = steering.shares(asc, coins)
    steering.learn(np.array([0.1, 0.1, 0.9]), coins)
    after, fewer = steering.shares(asc, coins)
    assert after[2] > before[2]
    assert fewer[2] < bounds[2]
    assert after[0] < before[0]
    chosen = ChosenGroup(asc, every=10, temperature=3.0)
    chosen.learn(np.array([0.1, 0.1, 0.9]), coins)
    groups = [np.flatnonzero(chosen.shares(asc, coins)[0])[0] for _ in range(300)]
    assert np.bincount(groups, minlength=3)[2] > 200
