import math

import numpy as np
import pytest
import torch
from torch import nn

from inosgm import (
    INOSGM,
    Ascending,
    AutomaticClipping,
    ClipToShare,
    Descending,
    HardTail,
    LinearTail,
    NoTail,
    OwnerFirst,
    Plan,
    RandomOrder,
    ScaleClipped,
    certify,
    importance_weights,
)
from inosgm.audit import canaries, held_out, mechanism_audit
from inosgm.audit.canaries import DataCanary, SyntheticCanary, canaries_of
from inosgm.audit.mechanism_audit import audit_mechanism
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.noise import streams
from inosgm.mechanism.sampling import PoissonSampler
from inosgm.training import Trainer
from inosgm.training.gradient_mechanism import GradientMechanism

TAIL = LinearTail(10.0)
OWNERS = [0] * 60 + [1] * 60


class Rows(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def plan_of(rates=(1.0, 1.0), sensitivities=(1.0, 1.0), noise_scale=1.0, steps=1, **more):
    return Plan(
        sample_rates=rates, sensitivities=sensitivities, sizes=[60, 60], noise_scale=noise_scale, steps=steps, **more
    )


class HalfTheNoise(Rows):
    def _noisy(self, total, noise):
        return total + (super()._noisy(total, noise) - total) / 2


class TwiceTheRate(Rows):
    def _sampler_of(self, plan):
        return PoissonSampler(2 * plan.sample_rates, self._owners)


class AnotherPlan(Rows):
    """Follows one plan, and reports another."""

    plan = plan_of(noise_scale=2.0)


class Weighted(Rows):
    """Sums that are weighted in its own way."""

    def _sum(self, batch):
        contributions, scores = batch.measured()
        sensitivities = self.plan.sensitivities[batch.owners]
        rho = self.weights(np.asarray(scores), sensitivities)
        return contributions.weighted_sum(self._clipping.factors(contributions.norms(), sensitivities, rho))


class UnstableTies(Weighted):
    def weights(self, scores, sensitivities):
        ranking = torch.argsort(torch.from_numpy(scores), descending=True).numpy()
        rho = np.empty(scores.size)
        rho[ranking] = importance_weights(-np.arange(scores.size), sensitivities[ranking], self._tail)
        return rho


class RoundedGrid(Weighted):
    def weights(self, scores, sensitivities):
        lowest_first = np.argsort(-scores, kind="stable")[::-1]
        spans, grid = sensitivities[lowest_first], self._tail.length / 10
        above = np.cumsum(spans)
        upper, lower = (np.round(x / grid) * grid for x in (above, above - spans))
        rho = np.empty(scores.size)
        rho[lowest_first] = (self._tail.W(upper) - self._tail.W(np.maximum(lower, 0))) / spans
        return rho


class RealisedLength(Weighted):
    def weights(self, scores, sensitivities):
        return importance_weights(scores, sensitivities, HardTail(0.5 * float(sensitivities.sum())))


class Unclipped(Rows):
    def _sum(self, batch):
        return batch.measured()[0].weighted_sum(np.ones(len(batch.positions)))


class LouderLater(Rows):
    """Keeps its promise at the first step only."""

    def _sum(self, batch):
        return super()._sum(batch) * (10.0 if batch.step else 1.0)


class SilentFirst(Rows):
    """Says nothing at the first step, and too much later."""

    def _sum(self, batch):
        return super()._sum(batch) * (10.0 if batch.step else 0.0)


class QuietEnd(Rows):
    """Adds no noise to the second half of what it releases."""

    def _noisy(self, total, noise):
        noisy = super()._noisy(total, noise)
        noisy[len(noisy) // 2 :] = total[len(noisy) // 2 :]
        return noisy


class ScoresOfTheBatch(Rows):
    """Its own scores depend on who else is in the batch."""

    def scores(self, batch):
        return batch[:, 0] * (-1.0) ** len(batch)


class TestRealOnes:
    def test_one_gaussian_release_is_bounded_within_three_percent(self):
        audit = audit_mechanism(Rows(plan_of(), OWNERS), 0, runs=100_000)
        assert audit.claim.spent == pytest.approx(4.377, abs=1e-3)
        assert 0.97 * 4.377 < audit.epsilon < 4.377
        assert 0.97 < audit.sensitivity < 1 == audit.promised
        assert not audit.contradicts

    @pytest.mark.parametrize("order", [Descending(), Ascending(), RandomOrder(3), OwnerFirst()], ids=repr)
    def test_canaries_reach_what_is_promised_in_every_order(self, order):
        mechanism = Rows(plan_of(sensitivities=(0.5, 1.0)), OWNERS, tail=TAIL, order=order)
        for place, promised in enumerate((0.5, 1.0)):
            moves = {canary.name: canary.moves for canary in canaries_of(SyntheticCanary, Inspection(mechanism), place)}
            assert moves["top-ranked"] == pytest.approx(promised)
            # what the record itself would have in the tail, if it contributed: W(C) of C
            assert moves["displacement"] == pytest.approx(promised - float(TAIL.W(promised)))
            assert max(moves.values()) == pytest.approx(promised)
            assert ("small among large" in moves) == (place == 0)

    @pytest.mark.parametrize(
        ("tail", "clipping"), [(HardTail(7.3), ScaleClipped()), (TAIL, ClipToShare()), (TAIL, AutomaticClipping())]
    )
    def test_tails_and_clippings(self, tail, clipping):
        audit = audit_mechanism(Rows(plan_of(), OWNERS, tail=tail, clipping=clipping), 1, runs=2000)
        assert 3.3 < audit.epsilon < 4.377
        assert max(row.moves for row in audit.rows) == pytest.approx(1, rel=1e-5)
        assert not audit.contradicts

    def test_without_a_tail_nobody_is_displaced(self):
        audit = audit_mechanism(Rows(plan_of(), OWNERS, tail=NoTail()), 0, runs=200)
        (still,) = [row for row in audit.rows if row.bound is None]
        assert (still.canary, still.moves) == ("displacement", 0)

    @pytest.mark.parametrize(("rate", "steps"), [(0.2, 1), (0.2, 30), (1.0, 9)])
    def test_sampled_and_composed_runs(self, rate, steps):
        mechanism = Rows(plan_of(rates=(rate, 0.1), noise_scale=1.5, steps=steps), OWNERS, tail=TAIL)
        audit = audit_mechanism(mechanism, 0, runs=4000, seed=1)
        assert not audit.contradicts
        assert (0.4 if steps == 1 else 0.75) * audit.claim.spent < audit.epsilon < audit.claim.spent
        assert mechanism.released == 0

    def test_an_order_that_changes_with_the_step(self):
        mechanism = Rows(plan_of(noise_scale=2.0, steps=4), OWNERS, tail=TAIL, order=RandomOrder(1))
        assert not audit_mechanism(mechanism, 0, runs=1000).contradicts

    @pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.3, 1), (0.3, 5)])
    def test_refuted_no_more_often_than_stated(self, rate, steps):
        """Each of 30 audits with one canary errs with 5 % at most; more than 6 have a probability of 0.1 % at most."""
        mechanism = Rows(plan_of(rates=(rate, rate), steps=steps), OWNERS, tail=TAIL)
        claim = mechanism_audit.claims_of(mechanism.plan)[0]
        top = canaries_of(SyntheticCanary, Inspection(mechanism), 0)[:1]
        ((without, with_record),) = mechanism_audit._statistics(
            Inspection(mechanism), top, 0, claim, 30 * 500, 5, [0], None
        )
        audits = zip(np.split(without, 30), np.split(with_record, 30), strict=True)
        assert sum(held_out.bound_of_runs(*worlds, claim, 0.05).contradicts for worlds in audits) <= 6

    def test_the_same_seed_says_the_same(self):
        mechanism = Rows(plan_of(rates=(0.5, 0.5)), OWNERS, tail=TAIL)
        first, again, other = (audit_mechanism(mechanism, 0, runs=300, seed=seed) for seed in (1, 1, 2))
        assert first == again != other


class TestBrokenOnes:
    @pytest.mark.parametrize(
        ("mechanism", "canary"),
        [
            (HalfTheNoise(plan_of(), OWNERS, tail=TAIL), "top-ranked"),
            (AnotherPlan(plan_of(), OWNERS, tail=TAIL), "top-ranked"),
            (UnstableTies(plan_of(), OWNERS, tail=TAIL), "tied, middle id"),
            (RealisedLength(plan_of(), OWNERS, tail=TAIL), "top-ranked"),
            (Unclipped(plan_of(), OWNERS, tail=TAIL), "top-ranked"),
            (RoundedGrid(plan_of(sensitivities=(0.1, 1.0)), OWNERS, tail=TAIL), "displacement"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_is_contradicted(self, mechanism, canary):
        audit = audit_mechanism(mechanism, 0, runs=3000)
        assert audit.contradicts
        (row,) = [row for row in audit.rows if row.canary == canary]
        assert row.bound.contradicts
        assert audit.epsilon > audit.claim.spent
        assert audit.sensitivity > 1.2 * audit.promised

    def test_half_the_noise_looks_like_twice_the_sensitivity(self):
        audit = audit_mechanism(HalfTheNoise(plan_of(), OWNERS, tail=TAIL), 0, runs=20_000)
        assert 1.9 < audit.sensitivity < 2
        assert audit.epsilon == pytest.approx(10.0, rel=0.06)

    @pytest.mark.parametrize("steps", [1, 25])
    def test_twice_the_rate_is_contradicted(self, steps):
        audit = audit_mechanism(TwiceTheRate(plan_of(rates=(0.2, 0.2), steps=steps), OWNERS), 0, runs=8000)
        assert audit.contradicts
        honest = mechanism_audit.claims_of(plan_of(rates=(0.4, 0.4), steps=steps))[0]
        assert audit.claim.spent < audit.epsilon < honest.spent

    @pytest.mark.parametrize("kind", [LouderLater, SilentFirst])
    def test_later_steps_are_looked_at(self, kind):
        assert audit_mechanism(kind(plan_of(noise_scale=5.0, steps=4), OWNERS), 0, runs=2000).contradicts
        assert audit_mechanism(kind(plan_of(noise_scale=20.0, steps=60), OWNERS), 0, runs=500).contradicts

    @pytest.mark.parametrize("seed", range(3))
    def test_held_out_runs_are_like_the_others(self, seed):
        mechanism = QuietEnd(plan_of(noise_scale=10.0), OWNERS, tail=TAIL)
        assert audit_mechanism(mechanism, 0, runs=5000, seed=seed).contradicts

    def test_scores_of_the_batch_are_found_in_data(self):
        data = np.random.default_rng(0).normal(size=(120, 1)) * np.linspace(1, 30, 120)[:, None]
        honest, broken = (
            audit_mechanism(kind(plan_of(), OWNERS, tail=TAIL), 0, runs=3000, data=data)
            for kind in (Rows, ScoresOfTheBatch)
        )
        assert not honest.contradicts
        assert [row.canary for row in broken.rows if row.bound and row.bound.contradicts] == [DataCanary.name]


class TestTrainers:
    def parts(self):
        generator = torch.Generator().manual_seed(0)
        x, y = torch.randn(120, 3, generator=generator), torch.arange(120) % 2
        model = nn.Linear(3, 2)
        return x, y, (model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))

    def test_a_trainer(self, monkeypatch):
        monkeypatch.setattr(canaries, "EVALUATIONS", 60)
        x, y, parts = self.parts()
        plan = plan_of(rates=(0.5, 0.5), sensitivities=(0.5, 1.0), steps=4)
        trainer = Trainer(plan, *parts, owners=OWNERS, tail=lambda plan: LinearTail(plan.tail_length(0.4)), key=1)
        before = parts[0].weight.clone()
        audit = audit_mechanism(trainer, 1, runs=2000, data=(x, y))
        assert not audit.contradicts
        assert 0.6 * audit.claim.spent < audit.epsilon < audit.claim.spent
        assert audit.rows[-1].canary == DataCanary.name
        assert 0 < audit.rows[-1].moves <= 1.001
        assert trainer.released == 0
        assert torch.equal(parts[0].weight, before)

    @pytest.mark.parametrize("key", [1, None])
    def test_dropout_is_not_taken_for_a_leak(self, key, monkeypatch):
        monkeypatch.setattr(canaries, "EVALUATIONS", 60)
        x, y, _ = self.parts()
        model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
        parts = (model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))
        trainer = Trainer(plan_of(noise_scale=2.0), *parts, owners=OWNERS, tail=LinearTail(20.0), key=key)
        model.train()
        assert certify(trainer, (x, y), evaluations=60).holds(1e-4)
        assert not audit_mechanism(trainer, 0, runs=500, data=(x, y)).contradicts
        assert model.training

    def test_a_broken_trainer(self):
        class Quiet(GradientMechanism):
            def _noisy(self, total, noise):
                return [a + (b - a) / 2 for a, b in zip(total, super()._noisy(total, noise), strict=True)]

        _, _, parts = self.parts()
        broken = type("Broken", (Trainer,), {"mechanism_type": Quiet})
        assert audit_mechanism(broken(plan_of(), *parts, owners=OWNERS), 0, runs=2000).contradicts


def test_an_audit_goes_the_way_of_a_release():
    data = np.random.default_rng(0).normal(size=(120, 1))
    mechanism = Rows(plan_of(rates=(0.5, 0.5)), OWNERS, tail=TAIL, key=3)
    coins, noise = streams(3, 0)
    inspection = Inspection(mechanism)
    (total,) = inspection.sums(data, [inspection.draw(coins)])
    assert mechanism.release(data).value == inspection.add_noise(total, noise)


def test_what_is_said():
    seen = []
    plan = plan_of(rates=(0.5, 0.5), steps=3, epsilon=[9.0, 9.0], delta=[1e-5, 1e-6], accountant="pld")
    audit = audit_mechanism(
        Rows(plan, OWNERS), 1, runs=200, progress=lambda done, total: seen.append((done, total)), confidence=0.9
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert (audit.owner, audit.claim.delta, audit.claim.granted) == (1, 1e-6, 9.0)
    assert all(row.bound is None or row.bound.confidence == pytest.approx(1 - 0.1 / 4) for row in audit.rows)
    title, header, *rows = audit.table().splitlines()
    assert title.startswith("owner 1: sensitivity 1 and epsilon")
    assert "200 runs, confidence 0.9" in title
    assert header.split("  ")[0] == "canary"
    assert len(rows) == 5
    assert rows[1].split()[0] == "displacement"


def test_more_confidence_than_counts_can_give_refutes_nothing():
    audit = audit_mechanism(Unclipped(plan_of(), OWNERS), 0, runs=200, confidence=1 - 1e-12)
    assert (audit.epsilon, audit.contradicts) == (0, False)


def test_what_cannot_be_is_refused():
    mechanism = Rows(plan_of(), OWNERS)
    with pytest.raises(ValueError, match=r"label of the plan .* got 'nobody'"):
        audit_mechanism(mechanism, "nobody")
    with pytest.raises(ValueError, match="runs must be"):
        audit_mechanism(mechanism, 0, runs=10)
    with pytest.raises(TypeError, match="mechanism must be"):
        audit_mechanism(np.sum, 0)
    empty = Plan(sample_rates=[1, 1], sensitivities=[1, 1], sizes=[60, 0], noise_scale=1, steps=1)
    with pytest.raises(ValueError, match="1 has none"):
        audit_mechanism(Rows(empty, [0] * 60), 1)


def test_a_plan_without_noise_is_not_contradicted():
    plan = Plan(sample_rates=[0.5], sensitivities=[1e30], sizes=[60], noise_scale=1e-30, steps=2)
    audit = audit_mechanism(Rows(plan, [0] * 60), 0, runs=200)
    assert math.isinf(audit.claim.spent)
    assert not audit.contradicts
    assert audit.epsilon > 3
