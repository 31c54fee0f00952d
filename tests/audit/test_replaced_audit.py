"""Audits of mechanisms whose promise is about a record that is replaced, in batches of a fixed size."""

import numpy as np
import pytest
import torch
from torch import nn

from inosgm import INOSGM, LinearTail, NoTail, OwnerFirst, Owners, Plan, RandomOrder
from inosgm.accounting import RDP, PLDReplaceOne, epsilon
from inosgm.accounting.gaussian import gaussian_delta
from inosgm.accounting.tradeoff import sampled_gaussian_power
from inosgm.audit import audit_mechanism, mechanism_audit
from inosgm.audit.canaries import canaries_of
from inosgm.audit.claims import claims_of
from inosgm.audit.held_out import bound_of_runs
from inosgm.audit.replaced import ReplacedCanary, ReplacedDataCanary
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.sampling import FixedSizeSampler
from inosgm.methods.asc import AdaptiveShares, plan_asc
from inosgm.methods.azb import plan_chosen_group
from inosgm.planning.variants import GroupSampling
from inosgm.training import Trainer
from inosgm.training.group_losses import GroupLosses

TAIL = LinearTail(10.0)
OWNERS = [0] * 40 + [1] * 20
SURE = {"runs": 500, "confidence": 0.999}  # one false alarm in 1000 audits at most, and the seeds are fixed


class Rows(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def plan_of(rates=(1.0, 1.0), sensitivities=(1.0, 1.0), noise_scale=2.0, steps=1, **more):
    numbers = {"sample_rates": rates, "sensitivities": sensitivities, "noise_scale": noise_scale, "steps": steps}
    return Plan(**numbers, sizes=[40, 20], variant=GroupSampling(sampling="without_replacement"), **more)


def group_owners():
    return Owners(of_record=["a"] * 60 + ["b"] * 12, epsilon={"a": 3.0, "b": 2.0}, delta=1e-5)


def test_the_power_of_one_step_is_that_of_its_curve():
    """The greatest power at a level is the least of H(x) + x level, H as in tests/accounting/test_replace_one.py."""
    levels = np.array([1e-4, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99])
    for rate, multiplier in [(0.02, 0.7), (0.3, 1.0), (0.9, 2.0)]:
        losses = np.linspace(0, 12, 40_000)
        above = rate * gaussian_delta(np.asarray(1 / multiplier), np.log1p(np.expm1(losses) / rate))
        x = np.exp(np.concatenate([-losses, losses]))
        curve = np.concatenate([-np.expm1(-losses) + np.exp(-losses) * above, above])
        exact = (curve + x * levels[:, None]).min(axis=1)
        found = sampled_gaussian_power(rate, multiplier, 1, "replaced")(levels)
        assert (found >= exact - 1e-7).all()
        np.testing.assert_allclose(found, exact, rtol=2e-3)


@pytest.mark.parametrize("order", [RandomOrder(3), OwnerFirst()], ids=repr)
def test_a_record_and_its_opposite_are_twice_the_sensitivity_apart(order):
    mechanism = Rows(plan_of(sensitivities=(0.5, 1.0)), OWNERS, tail=TAIL, order=order)
    for place, promised in enumerate((0.5, 1.0)):
        moves = {canary.name: canary.moves for canary in canaries_of(ReplacedCanary, Inspection(mechanism), place)}
        assert moves["top-ranked"] == pytest.approx(2 * promised)
        assert max(moves.values()) == pytest.approx(2 * promised)
    still = Rows(plan_of(), OWNERS, tail=NoTail(), order=order)
    assert {round(canary.moves, 9) for canary in canaries_of(ReplacedCanary, Inspection(still), 0)} == {1.0, 2.0}


def test_last_and_empty_against_first_and_opposite_moves_both():
    """The record displaces all others but for its own part of the tail, W(C), and its opposite counts in full."""
    (found,) = [
        c
        for c in canaries_of(ReplacedCanary, Inspection(Rows(plan_of(), OWNERS, tail=TAIL)), 0)
        if c.name == "displacement"
    ]
    assert found.moves == pytest.approx(2 - float(TAIL.W(1.0)))


def test_full_batches_are_bounded_within_three_percent():
    audit = audit_mechanism(Rows(plan_of(), OWNERS, tail=TAIL), 0, runs=50_000)
    assert audit.claim.unit == "replace-one"
    assert audit.claim.spent == pytest.approx(4.377, abs=1e-3)  # mu = 2 C / noise = 1
    assert 0.97 * 4.377 < audit.epsilon < 4.377
    assert 0.97 < audit.sensitivity < 1 == audit.promised
    assert not audit.contradicts
    assert "of a record that is replaced" in audit.table()


def test_refuted_no_more_often_than_stated():
    """Each of 5 audits of a canary errs with 5 % at most; more than 2 have a probability of 0.12 % at most."""
    mechanism = Rows(plan_of(rates=(0.3, 0.3), noise_scale=1.2, steps=2), OWNERS, tail=TAIL)
    claim = claims_of(mechanism.plan)[0]
    both = mechanism_audit._canaries(Inspection(mechanism), 0, claim)[:2]
    assert both[1].name == "top-ranked, others alike"
    for found in mechanism_audit._statistics(Inspection(mechanism), both, 0, claim, 5 * 200, 5, [0], None):
        audits = np.split(found, 5, axis=1)
        assert sum(bound_of_runs(*worlds, claim, 0.05).contradicts for worlds in audits) <= 2


def trainer(plan):
    torch.manual_seed(1)
    model = nn.Linear(4, 3)
    of_record = np.repeat(np.array(plan.labels), plan.sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tail = LinearTail(plan.tail_length(0.4))
    steering = None if plan.choices is None else AdaptiveShares(plan, every=2, temperature=1.0)
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, owners=of_record, tail=tail, steering=steering)


@pytest.fixture(scope="module")
def asc():
    asked = {"steps": 4, "expected_batch": 18, "clip_norm": 1.0, "every": 2}
    return plan_asc(group_owners(), **asked, sampling="without_replacement")


def test_what_is_chosen_from_a_menu_keeps_its_promise(asc):
    """Two audits, and menus hold rates that are no whole numbers of records: these are rounded down."""
    made = trainer(asc)
    for row in (2, asc.choices.count - 1):
        made.mechanism._apply_choice(asc.with_choice(asc.choices.sample_rates[row], asc.choices.sensitivities[row]))
        full = Inspection(made).plan.sample_rates[1] == 1
        audit = audit_mechanism(made, "b", runs=20_000 if full else 400, confidence=0.999)
        assert not audit.contradicts
        assert max(one.moves for one in audit.rows) == pytest.approx(2 * audit.promised, rel=1e-5)
        if full:
            alone = epsilon(1.0, audit.claim.noise_multiplier, asc.steps, 1e-5, PLDReplaceOne())
            assert 0.9 * alone < audit.epsilon < alone <= audit.claim.spent <= 2


def test_a_chosen_group_keeps_its_promise():
    asked = {"steps": 4, "expected_batch": 18, "clip_norm": 1.0, "every": 2, "accountant": RDP()}
    plan = plan_chosen_group(group_owners(), **asked, sampling="without_replacement")
    made = Rows(plan, group_owners(), tail=LinearTail(plan.tail_length(0.4)))
    for chosen, label in enumerate(plan.labels):
        made._apply_choice(
            plan.with_choice(np.where(np.arange(2) == chosen, plan.sample_rates, 0.0), plan.sensitivities)
        )
        assert not audit_mechanism(made, label, **SURE).contradicts


class PublishedReading(Rows):
    """Takes its noise for twice as much: as if a replaced record moved a sum by C only."""

    plan = plan_of(rates=(0.5, 0.5), sensitivities=(0.5, 0.5), noise_scale=1.0, steps=2)


class RoundedUp(Rows):
    """Draws the next whole number of records."""

    def _sampler_of(self, plan):
        return FixedSizeSampler(np.ceil(plan.sample_rates * plan.sizes).astype(np.int64), self._owners)


def test_fractions_of_a_record_are_not_drawn():
    mechanism = Rows(plan_of(rates=(0.99 / 40, 1.9 / 20)), OWNERS)
    assert Inspection(mechanism).draw(np.random.default_rng(0)).size == 1
    assert Rows(plan_of(rates=(0.01, 0.01)), OWNERS).release(np.ones((60, 1))).value.shape == (1,)  # of an empty batch


class Unclipped(Rows):
    def _sum(self, batch):
        return batch.measured()[0].weighted_sum(np.ones(len(batch.positions)))


@pytest.mark.parametrize(
    "mechanism",
    [
        PublishedReading(plan_of(rates=(0.5, 0.5), noise_scale=1.0, steps=2), OWNERS),
        RoundedUp(plan_of(rates=(0.5, 0.051), noise_scale=0.3, steps=6), OWNERS),
        Unclipped(plan_of(), OWNERS),
    ],
    ids=lambda one: type(one).__name__,
)
def test_broken_ones_are_contradicted(mechanism):
    audit = audit_mechanism(mechanism, 1, **SURE)
    assert audit.contradicts
    assert audit.epsilon > audit.claim.spent


class TooSmall(GroupLosses):
    """Says that losses up to zeta move its sums by half as much as they do."""

    plan = plan_of(sensitivities=(0.5, 0.5), noise_scale=4.0, steps=3)


def test_losses_are_attacked_with_records_that_have_the_least_and_the_greatest():
    losses = np.tile([0.3, 0.0, 1.7, 3.0], 15)
    honest, broken = (
        kind(
            plan_of(noise_scale=4.0, steps=3),  # zeta = 2
            np.array(OWNERS),
            lambda data, positions: data[positions],
            key=None,
            ledger=None,
            released=0,
            note="",
        )
        for kind in (GroupLosses, TooSmall)
    )
    found = audit_mechanism(honest, 0, data=losses, **SURE)
    assert not found.contradicts
    assert found.rows[-1].canary == ReplacedDataCanary.name
    assert found.rows[-1].moves == pytest.approx(2)
    found = audit_mechanism(broken, 0, data=losses, **SURE)
    assert found.rows[-1].bound.contradicts
