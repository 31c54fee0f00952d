import math

import dp_accounting
import numpy as np
import pytest
from cases import tails
from dp_accounting.rdp import RdpAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from inosgm import (
    INOSGM,
    AutomaticClipping,
    HardTail,
    Ledger,
    LinearTail,
    NoTail,
    Owners,
    Plan,
    RandomOrder,
    certify,
    plan_individual,
    plan_sample,
    plan_scale,
)
from inosgm.accounting import PLD, RDP, Segment
from inosgm.audit.bounds import Counts, bound_by_counts
from inosgm.audit.claims import Claim
from inosgm.audit.mechanism_audit import audit_mechanism
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.mechanism import clipped_ordered_sum, realised_ordered_sum
from inosgm.mechanism.record_filter import LEAST, Filter
from inosgm.mechanism.streaming import Streaming
from inosgm.planning.variants import IndividualAccounting

OWNERS = Owners(of_record=["strict"] * 30 + ["open"] * 50, epsilon={"strict": 0.5, "open": 2.0}, delta=1e-5)


class Rows(INOSGM):
    """Rows of a table; the last column is the score."""

    def contributions(self, batch):
        return batch[:, :-1]

    def scores(self, batch):
        return batch[:, -1]


def made(**more):
    return plan_individual(OWNERS, **{"steps": 40, "clip_norm": 1.0, **more})


# ---- the plan: what an allowance is worth, by independent accountants


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-5), (3.0, 1e-6), (20.0, 1e-5)])
def test_an_allowance_is_worth_the_epsilon_that_is_granted(epsilon, delta):
    owners = Owners(of_record=["a"] * 10, epsilon=epsilon, delta=delta)
    gaussian, renyi = (
        float(plan_individual(owners, steps=7, clip_norm=2.0, accountant=accountant).squared_norm_budget[0])
        for accountant in (PLD(), RDP())
    )

    def delta_of(mu):  # Dong, Roth and Su 2022, Corollary 1
        return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)

    assert delta_of(math.sqrt(gaussian)) <= delta < delta_of(math.sqrt(gaussian) * 1.005)
    orders = [1 + 10**x for x in np.linspace(-2, 3.5, 400)]
    known = RdpAccountant(orders).compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(renyi))).get_epsilon(delta)
    assert 0.99 * epsilon < known <= 1.001 * epsilon  # orders between those of the list are a little better
    assert renyi < gaussian


def test_the_noise_is_what_lasting_says():
    full = plan_scale(OWNERS, steps=40, expected_batch=80, clip_norm=1.5)
    for lasting in (1.0, 0.9, 0.1):
        plan = made(clip_norm=1.5, full_norm_fraction=lasting)
        assert plan.noise_scale == pytest.approx(full.noise_scale * math.sqrt(lasting))
        assert plan.sensitivities == pytest.approx(full.sensitivities)
        lasts = (
            plan.squared_norm_budget * plan.noise_multipliers**2 / plan.steps
        )  # steps of full norm, as a share of all
        assert lasts == pytest.approx(lasting, rel=1e-9)
        assert plan.tail_length(0.5) == pytest.approx(0.5 * lasting * 80 * 1.5)
        assert (plan.spent() <= OWNERS.epsilon).all()
        assert (plan.spent() >= 0.995 * OWNERS.epsilon).all()
    assert Plan.from_json(plan.to_json()) == plan
    assert np.array_equal(plan.spent(1), plan.spent(40))  # whoever has made a step may have spent everything
    assert (plan.spent(0) == 0).all()


def test_what_was_done_before_is_left_out_of_the_allowance():
    past = [Segment(0.1, 12.0, 20)]
    plan = made(past=past)
    assert (plan.squared_norm_budget < made().squared_norm_budget).all()
    assert (plan.spent() <= OWNERS.epsilon).all()
    assert (plan.spent() >= 0.995 * OWNERS.epsilon).all()


def test_wrong_arguments_are_named():
    for lasting in (0, 1.1, math.nan):
        with pytest.raises(ValueError, match="full_norm_fraction"):
            made(full_norm_fraction=lasting)
    with pytest.raises(ValueError, match="squared_norm_budget"):
        Plan(
            sample_rates=[0.5],
            sensitivities=[1],
            sizes=[1],
            noise_scale=1,
            steps=1,
            variant=IndividualAccounting([1.0]),
        )
    with pytest.raises(ValueError, match="cannot be revised"):
        made().revise(3, OWNERS)
    with pytest.raises(TypeError, match="pay for itself"):
        type("Streamed", (Streaming, Rows), {})(made(), OWNERS)


# ---- the mechanism: no record moves a sum by more than it pays, and none pays more than its allowance


def worlds(rows, added, allowance, tail, steps, **more):
    """Yield by how much a record moves each of some sums, and what it pays for it."""
    rows = np.asarray(rows, dtype=float)
    plan = Plan(
        sample_rates=[1],
        sensitivities=[1],
        sizes=[len(rows)],
        noise_scale=1,
        steps=steps,
        variant=IndividualAccounting([allowance]),
    )
    every = np.arange(len(rows))
    with_record, without = (Rows(plan, np.zeros(len(rows), int), tail=tail, key=1, **more) for _ in range(2))
    filters = [Inspection(mechanism).filter() for mechanism in (with_record, without)]
    for step in range(steps):
        (more,) = Inspection(with_record).sums(rows, [every], step, [filters[0]])
        (less,) = Inspection(without).sums(rows, [np.delete(every, added)], step, [filters[1]])
        sums, pays = (more, less), filters[0].asked(added)
        for records in filters:
            records.settle()
        yield float(np.linalg.norm(sums[0] - sums[1])), pays
    others = np.delete(every, added)
    assert np.array_equal(filters[0].spent[others], filters[1].spent[others])
    assert (filters[0].spent <= allowance).all()


numbers = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 1e-9, 5.0]), st.floats(-2, 2))
scores = st.one_of(st.sampled_from([0.0, 1.0, math.nan, math.inf]), st.floats(-3, 3))
tables = st.lists(st.tuples(numbers, numbers, scores), min_size=2, max_size=24)


@settings(max_examples=120, deadline=None)
@given(tables, st.data(), st.floats(0.05, 4.0), tails)
@example([(0.0, 0.0, -1.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, 1.0)], None, 1.5, HardTail(2.0))
def test_no_record_moves_a_sum_by_more_than_it_pays(rows, data, allowance, tail):
    added = 0 if data is None else data.draw(st.integers(0, len(rows) - 1))
    total = 0.0
    for moved, pays in worlds(rows, added, allowance, tail, 4):
        assert moved <= pays * (1 + 1e-9) + 1e-12
        assert pays <= 1.0
        total += pays**2
    assert total <= allowance * (1 + 1e-12)


def test_the_share_of_its_norm_does_not_bound_what_a_record_moves():
    """PRIVACY.md 4: with weight 0 a record pays nothing, if rho l is what it pays, and moves others all the same."""
    rows = np.array([[1.0, 0.0, -1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    (moved, pays), *_ = worlds(rows, 0, 1.5, HardTail(1.0), 1)

    class Watched(Rows):
        def contributions(self, batch):
            return np.eye(3)[: len(batch)] if len(batch) == 3 else np.zeros((len(batch), 3))

    plan = Plan(
        sample_rates=[1], sensitivities=[1], sizes=[3], noise_scale=1, steps=1, variant=IndividualAccounting([1.5])
    )
    (weights,) = Inspection(Watched(plan, [0, 0, 0], tail=HardTail(1.0))).sums(rows, [np.arange(3)])
    assert weights[0] == 0  # rho l
    assert moved == pytest.approx(1.0)
    assert pays == 1.0


@pytest.mark.parametrize(
    ("tail", "more"),
    [
        (NoTail(), {}),
        (HardTail(6.0), {}),
        (LinearTail(6.0), {"order": RandomOrder(0)}),
        (LinearTail(6.0), {"clipping": AutomaticClipping()}),
    ],
)
def test_the_certifier_measures_by_what_a_record_pays(tail, more):
    rows = np.random.default_rng(3).normal(size=(80, 3)) * np.random.default_rng(4).choice([0.01, 0.3, 3], (80, 1))
    mechanism = Rows(made(), OWNERS, tail=tail, **more)
    for data in (rows, None):
        assert 0.9 < certify(mechanism, data, evaluations=200).ratio <= 1 + 1e-6
    assert (Inspection(mechanism).filter().spent == 0).all()


def test_the_certifier_sees_a_record_that_pays_by_its_share(monkeypatch):
    def by_share(contributions, given, bounds, ids, *, least, **ways):
        total, lengths = realised_ordered_sum(contributions, given, bounds, ids, least=least, **ways)
        ranks = np.argsort(np.argsort(given, kind="stable"))
        return total, np.maximum(np.where(ranks < 5, 0.0, lengths), least)

    monkeypatch.setattr("inosgm.mechanism.mechanism.realised_ordered_sum", by_share)
    rows = np.random.default_rng(3).normal(size=(80, 3))
    assert certify(Rows(made(), OWNERS, tail=HardTail(6.0)), rows, evaluations=200).ratio > 1000


def test_the_certifier_sees_short_records_that_are_as_long_as_others_in_the_order(monkeypatch):
    """PRIVACY.md 4: with C for its length in the order a record that contributes, and pays, next to nothing moves C."""

    def by_bounds(contributions, given, bounds, ids, *, least, owners, tail, order, clipping):
        ways = {"owners": owners, "tail": tail, "order": order}
        lengths = realised_ordered_sum(contributions, given, bounds, ids, least=least, clipping=clipping, **ways)[1]
        return clipped_ordered_sum(contributions, given, bounds, ids, clipping=clipping, **ways), lengths

    monkeypatch.setattr("inosgm.audit.certifier.realised_ordered_sum", by_bounds)
    assert certify(Rows(made(), OWNERS, tail=HardTail(6.0)), evaluations=200).ratio > 100


def test_records_leave_one_by_one_and_pay_to_the_end():
    rows = np.zeros((80, 2))
    rows[:, 0] = np.linspace(0.02, 3, 80)
    plan = made(full_norm_fraction=0.3)
    mechanism = Rows(plan, OWNERS)
    there = []
    for _ in range(plan.steps):
        mechanism.release(rows)
        there.append(int((Inspection(mechanism).filter().bounds() > 0).sum()))
    assert there == sorted(there, reverse=True)
    assert there[0] > there[-1] > 0
    allowance, spent = plan.squared_norm_budget[Inspection(mechanism).owners], Inspection(mechanism).filter().spent
    left = Inspection(mechanism).filter().bounds() == 0
    assert (spent <= allowance).all()
    assert (spent[left] >= 0.999 * allowance[left]).all()
    assert spent[~left] == pytest.approx(plan.steps * (np.minimum(rows[~left, 0], 1) / plan.noise_scale) ** 2)


def test_broken_records_pay_the_least_and_are_left_out():
    rows = np.array([[math.nan, 0.0], [math.inf, 0.0], [0.0, 0.0], [0.5, 0.0]])
    plan = Plan(
        sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=1e-6, steps=2, variant=IndividualAccounting([1e13])
    )
    mechanism = Rows(plan, [0] * 4, tail=LinearTail(0.25))
    assert mechanism.release(rows).value[0] == pytest.approx(0.375, abs=1e-4)  # W(0.5) of a linear tail of 0.25
    assert np.sqrt(Inspection(mechanism).filter().spent) * 1e-6 == pytest.approx([LEAST, LEAST, LEAST, 0.5])


def test_everything_is_paid_before_the_first_release(tmp_path):
    ledger = Ledger(tmp_path / "ledger", owners=OWNERS)
    mechanism = Rows(made(), OWNERS, ledger=ledger, key=5)
    rows = np.ones((80, 2))
    for _ in range(3):
        mechanism.release(rows)
        assert [ledger.spent()[label] for label in OWNERS.labels] == pytest.approx(made().spent().tolist())
    assert [charge.spans for charge in ledger.history()] == [((0, 40),)]
    late = Ledger(owners=OWNERS)  # whoever charges by what a release says pays for all that it may have used up
    late.charge(Rows(made(full_norm_fraction=0.1), OWNERS).release(rows).cost)
    assert late.spent() == pytest.approx(ledger.spent())
    again = Rows(made(), OWNERS, ledger=ledger, key=5)
    assert again.release(rows).step == 0  # a retry is paid, and repeats
    with pytest.raises(ValueError, match="cannot be reached"):
        plan_sample(OWNERS, steps=5, expected_batch=10, clip_norm=1.0, past=ledger.past(OWNERS))


# ---- attacks


def test_the_audit_does_not_contradict_a_filter_and_does_one_that_forgets(monkeypatch):
    """False alarms: 1 in 1000 at most, and the seed is fixed."""
    plan = made(steps=12, full_norm_fraction=0.4)
    for tail in (NoTail(), LinearTail(8.0)):
        found = audit_mechanism(Rows(plan, OWNERS, tail=tail), "open", runs=3000, confidence=0.999)
        assert not found.contradicts
        assert found.epsilon > 0.8
    monkeypatch.setattr(Filter, "settle", lambda self: None)
    assert audit_mechanism(Rows(plan, OWNERS), "open", runs=3000, confidence=0.999).contradicts


def played(runs, inside, forgets, seed):
    """Return the log-likelihood ratios of runs whose canary goes on at full length while it is seen, and rests if not.

    Every run is a record of one filter: what it may contribute follows from what was released in its own run.
    """
    generator = np.random.default_rng(seed)
    records = Filter(np.ones(runs), np.ones(runs), noise_scale=1.5)
    every, ratio = np.arange(runs), np.zeros(runs)
    for _ in range(60):
        wanted = np.where(ratio >= 0, 1.0, 0.2)
        lengths = np.maximum(np.minimum(wanted, records.bounds()), 0.0)
        released = inside * lengths + 1.5 * generator.normal(size=runs)
        ratio += (released * lengths - lengths**2 / 2) / 1.5**2
        records.ask(every, lengths)
        if not forgets:
            records.settle()
    return ratio


@pytest.mark.parametrize("forgets", [False, True])
def test_a_canary_that_adapts_is_bounded_by_one_gaussian(forgets):
    """Both worlds, 20,000 runs each. False alarms: 1 in 1000 at most, and the seeds are fixed."""
    without, with_record = (played(20_000, inside, forgets, seed=inside) for inside in (0, 1))
    claim = Claim(
        owner="a", granted=None, spent=4.377, delta=1e-5, sample_rate=1.0, noise_multiplier=1.0, steps=1
    )  # mu = sqrt(allowance) = 1
    threshold = 0.5
    counts = Counts(
        true_positives=int((with_record > threshold).sum()),
        members=with_record.size,
        false_positives=int((without > threshold).sum()),
        others=without.size,
    )
    assert bound_by_counts(counts, claim, 0.999).contradicts == forgets
    if not forgets:  # at the end everything is spent, and the ratio is that of one Gaussian with mu = 1
        assert without.mean() == pytest.approx(-0.5, abs=0.05)
        assert without.std() == pytest.approx(1.0, abs=0.05)
