"""IPATE: who learns from what, what a record can move, what that costs, and teachers and students as jobs."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from ipate_worker import config, undisturbed
from scipy.optimize import brentq
from scipy.stats import norm

from inosgm import AutomaticClipping, Ledger, Owners, Plan, audit_mechanism
from inosgm import experiments as runs
from inosgm.accounting import RDP
from inosgm.audit import mechanism_audit
from inosgm.audit.canaries import Canary
from inosgm.audit.claims import claims_of
from inosgm.audit.held_out import bound_of_runs
from inosgm.experiments import components
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.task import TrainingTask, spec_of
from inosgm.jobs import Store
from inosgm.mechanism.inspection import Inspection
from inosgm.methods.ipate import NoisyVotes, Teachers, ids_of, partition_records, upsampled_teachers, weighted_teachers
from inosgm.methods.ipate.learning import Learning

TESTS = Path(__file__).parents[1] / "support"
OWNERS = Owners(of_record=["strict"] * 50 + ["usual"] * 30 + ["open"] * 20, epsilon=[8.0, 1.0, 3.0], delta=1e-5)
FORMS = (weighted_teachers, upsampled_teachers)
CLASSES = 3
RECORDS = np.random.default_rng(0).normal(size=(100, 3))


def by_content(teachers, owners, records, seed):
    """Share records out as a teacher's job does."""
    return partition_records(teachers, owners, ids_of(records, owners), seed=seed)


def by_position(teachers, owners, records, seed):
    """Share records out by where they stand, which changes when somebody before them leaves."""
    return partition_records(teachers, owners, np.arange(len(records)), seed=seed)


def shuffled(teachers, owners, records, seed):
    """Cut shuffled records into stretches of one size."""
    return np.array_split(np.random.default_rng(seed).permutation(len(records)), teachers.count)


def those_that_change(partition, teachers, gone, seed=0):
    """Return the teachers that learn from other records when one is taken away."""
    everyone, owner = np.arange(OWNERS.n_records), OWNERS.of_record
    rest = np.delete(everyone, gone)
    with_record = [set(some.tolist()) for some in partition(teachers, owner, RECORDS, seed)]
    without = [set(rest[some].tolist()) for some in partition(teachers, owner[rest], RECORDS[rest], seed)]
    return {place for place, (one, other) in enumerate(zip(with_record, without, strict=True)) if one != other}


@pytest.mark.parametrize("form", FORMS)
def test_a_record_changes_nothing_but_its_own_teachers(form):
    teachers = form(OWNERS, count=12, queries=5)

    @given(gone=st.integers(0, OWNERS.n_records - 1), seed=st.integers(0, 2**32))
    def attacked(gone, seed):
        changed = those_that_change(by_content, teachers, gone, seed)
        owner = OWNERS.of_record[gone]
        assert len(changed) == teachers.copies[owner]
        assert all(0 <= place - teachers.first[owner] < teachers.among[owner] for place in changed)

    attacked()
    for wrong in (by_position, shuffled):
        assert max(len(those_that_change(wrong, teachers, gone)) for gone in range(5)) > teachers.copies.max()


def test_records_are_spread_evenly_over_teachers():
    owners = Owners(of_record=["a"] * 30_000 + ["b"] * 10_000, epsilon={"a": 1.0, "b": 4.0}, delta=1e-5)
    teachers = upsampled_teachers(owners, count=7, queries=1)
    assert teachers.copies.tolist() == [1, 3]
    ids = np.arange(40_000)
    sizes = np.array([some.size for some in partition_records(teachers, owners.of_record, ids, seed=3)])
    assert sizes.sum() == 60_000
    # a sum of independent coins each: 6 standard deviations are exceeded with probability below 2e-8
    deviation = math.sqrt(30_000 / 7 * 6 / 7 + 10_000 * 3 / 7 * 4 / 7)
    assert np.abs(sizes - 60_000 / 7).max() < 6 * deviation
    weighted = weighted_teachers(owners, count=8, queries=1)
    assert weighted.among.tolist() == [6, 2]
    for some, weight in zip(partition_records(weighted, owners.of_record, ids, seed=3), weighted.weights, strict=True):
        assert np.unique(owners.of_record[some]).size == 1
        assert weight == weighted.weights[weighted.first[owners.of_record[some[0]]]]


def exact(teachers, taught, vote):
    """Return the matrix of votes, before noise, of teachers that learned from some sets of records."""
    votes = np.array([vote(frozenset(some)) for some in taught])
    mechanism = NoisyVotes(teachers, CLASSES)
    everyone = np.arange(teachers.count)
    return Inspection(mechanism).sums((everyone, votes), [everyone])[0].reshape(teachers.queries, CLASSES)


@pytest.mark.parametrize("form", FORMS)
def test_no_teacher_lets_a_record_move_the_votes_by_more_than_its_owner_pays(form):
    teachers = form(OWNERS, count=12, queries=4)
    everyone, owner = np.arange(OWNERS.n_records), OWNERS.of_record
    sensitivities = teachers.plan.sensitivities
    for gone in (0, 49, 50, 79, 80, 99):
        rest = np.delete(everyone, gone)
        taught = [some.tolist() for some in partition_records(teachers, owner, everyone, seed=1)]
        without = [rest[some].tolist() for some in partition_records(teachers, owner[rest], rest, seed=1)]

        def betrays(seen, gone=gone):
            return np.full(4, int(gone in seen))

        def erratic(seen):
            return np.random.default_rng(sorted(seen)).integers(0, CLASSES, 4)

        bound = sensitivities[owner[gone]]
        moved = {vote: exact(teachers, taught, vote) - exact(teachers, without, vote) for vote in (betrays, erratic)}
        assert np.linalg.norm(moved[betrays]) == pytest.approx(bound, rel=1e-12)  # tight: nothing less would do
        assert np.linalg.norm(moved[erratic]) <= bound * (1 + 1e-12)


def epsilon_of(multiplier, delta):
    """Return the epsilon of one Gaussian release, in closed form (Balle and Wang, 2018)."""

    def excess(epsilon):
        a, b = 0.5 / multiplier, epsilon * multiplier
        return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) - delta

    return brentq(excess, 0, 60)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("accountant", [None, RDP()])
def test_every_budget_is_kept_under_independent_accountants(form, accountant):
    plan = form(OWNERS, count=20, queries=33, accountant=accountant).plan
    for multiplier, granted, delta in zip(plan.noise_multipliers, OWNERS.epsilon, OWNERS.delta, strict=True):
        library = pld.from_gaussian_mechanism(multiplier, use_connect_dots=True)
        spent = library.get_epsilon_for_delta(delta)
        closed = epsilon_of(multiplier, delta)
        assert closed <= granted
        assert spent == pytest.approx(closed, rel=1e-3)
        if form is weighted_teachers and accountant is None:
            assert closed >= 0.995 * granted
    assert epsilon_of(plan.noise_multipliers.max(), 1e-5) >= (0.9 if accountant else 0.995) * 1.0  # of the strictest


def test_what_was_done_before_counts():
    past = [Plan(sample_rates=[1] * 3, sensitivities=[1] * 3, sizes=[1] * 3, noise_scale=6, steps=1).segment()]
    plain, later = (form(OWNERS, count=9, queries=3, past=p).plan for form in FORMS[:1] for p in ((), past))
    assert (later.noise_multipliers > plain.noise_multipliers).all()
    for before, after, granted in zip([6.0] * 3, later.noise_multipliers, OWNERS.epsilon, strict=True):
        together = (before**-2 + after**-2) ** -0.5  # two Gaussians are one
        assert 0.995 * granted <= epsilon_of(together, 1e-5) <= granted


def test_fewer_teachers_than_budgets_are_refused_where_each_learns_from_one():
    with pytest.raises(ValueError, match="at least the number of distinct budgets, 3, got 2"):
        weighted_teachers(OWNERS, count=2, queries=5)
    assert upsampled_teachers(OWNERS, count=2, queries=5).copies.max() == 2  # no more copies than teachers


class ChangedVotes(Canary):
    """A record whose teachers change all their votes: these are replaced, and every batch has them."""

    name = "changed votes"

    def __init__(self, mechanism, place):
        teachers = mechanism._teachers
        everyone = np.arange(teachers.count)
        votes = np.zeros((teachers.count, teachers.queries), dtype=np.int64)
        changed = votes.copy()
        changed[teachers.first[place] : teachers.first[place] + teachers.copies[place]] = 1
        without, with_record = (
            Inspection(mechanism).sums((everyone, some), [everyone])[0] for some in (votes, changed)
        )
        self.moves = float(np.linalg.norm(with_record - without))
        start = float(without @ (with_record - without)) / self.moves
        self._sums = start, start, start + self.moves

    def worlds(self, step):
        return self._sums


def contradicts(mechanism, owner, runs=20_000, seed=0):
    """Attack the noise of a mechanism with a record whose teachers change all their votes; 99.9 % confidence."""
    place, anybody = OWNERS.labels.index(owner), int(Inspection(mechanism).owners[0])  # all are in all batches
    claim, canary = claims_of(mechanism.plan)[place], ChangedVotes(mechanism, place)
    (worlds,) = mechanism_audit._statistics(Inspection(mechanism), [canary], anybody, claim, runs, seed, [0], None)
    return bound_of_runs(*worlds, claim, 1e-3).contradicts


@pytest.mark.parametrize("form", FORMS)
def test_the_mechanism_audit_finds_nothing_but_what_is_broken(form):
    teachers = form(OWNERS, count=12, queries=4)
    forgotten = Plan(  # a vote that is replaced counted like a vote that is added: no sqrt(2)
        **{
            **{name: getattr(teachers.plan, name) for name in ("sample_rates", "sizes", "noise_scale", "steps")},
            **{name: getattr(teachers.plan, name) for name in ("labels", "epsilon", "delta", "accountant")},
            "sensitivities": teachers.plan.sensitivities / math.sqrt(2),
        }
    )
    broken = Teachers(**{**vars(teachers), "plan": forgotten})
    for owner in OWNERS.labels:
        assert not contradicts(NoisyVotes(teachers, CLASSES), owner)
        assert contradicts(NoisyVotes(broken, CLASSES), owner)
    mechanism = NoisyVotes(teachers, CLASSES)
    owner = mechanism.plan.labels[Inspection(mechanism).owners[0]]
    votes = (np.arange(12), np.tile([0, 1, 2, 0], (12, 1)))
    assert not audit_mechanism(mechanism, owner, runs=2000, data=votes).contradicts


def test_labels_are_those_that_most_vote_for():
    generous = Owners(of_record=["a"] * 90, epsilon=50.0, delta=1e-5)
    votes = NoisyVotes(weighted_teachers(generous, count=90, queries=3), 4, key=3)
    said = np.tile([3, 0, 1], (90, 1))
    said[:20] = 2
    assert votes.labels(said).tolist() == [3, 0, 1]
    with pytest.raises(RuntimeError, match="all 1 steps"):
        votes.labels(said)


def test_public_records_are_the_same_for_all_and_nobody_sees_their_classes():
    wanted = config()
    source = runs.read(wanted)
    first = components.prepared(wanted, source)
    other = components.prepared(wanted.changed({"seed": 99, "plan.method": "sample"}), source)
    np.testing.assert_array_equal(first.public, other.public)
    np.testing.assert_array_equal(first.dataset.y_test, other.dataset.y_test)
    dataset = source.dataset(wanted)
    assert len(first.public) + len(first.dataset.y_test) == len(dataset.y_test)
    assert len(first.groups) == len(first.dataset.y_test)
    held_out = {row.tobytes() for row in first.dataset.x_test}
    is_public = np.array([row.tobytes() not in held_out for row in dataset.x_test])
    assert is_public.sum() == len(first.public)
    y_test = np.where(is_public, 0, dataset.y_test)
    lying = runs.Source(datasets={"digits": type(dataset)(**{**vars(dataset), "y_test": y_test})}, tables={})
    np.testing.assert_array_equal(components.prepared(wanted, lying).dataset.y_test, first.dataset.y_test)


def test_configurations_that_lack_something_are_refused(tmp_path):
    said = config().model_dump()

    def refused(match, **changes):
        values = json.loads(json.dumps(said))
        for path, value in changes.items():
            section, _, key = path.partition("__")
            if key:
                values[section][key] = value
            else:
                values[section] = value
        with pytest.raises(ValueError, match=match):
            TrainingConfig.from_dict(values)

    refused("plan.teachers must be given", plan__teachers=None)
    refused("data.public must be at least plan.teachers.queries", data__public=None)
    refused("tail does not go with", tail={"kind": "linear", "fraction": 0.5})
    with pytest.raises(ValueError, match=r"data\.public: must leave some"):
        runs.train_seeds(config().changed({"data.public": 10**6}), 1, store=tmp_path)
    with pytest.raises(ValueError, match="trains teachers before its student, as jobs of a store"):
        runs.train(config())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A comparison of both forms with IDP-SGD, that nobody disturbed."""
    store = Store(tmp_path_factory.mktemp("ipate") / "store")
    ledger = str(tmp_path_factory.mktemp("ledger") / "ledger")
    wanted = config().changed({"ledger": ledger, "plan.method": "sample"})
    generous = Owners(
        of_record=components.prepared(wanted, runs.read(wanted)).owners.of_record, epsilon=500.0, delta=1e-5
    )
    Ledger(ledger, owners=generous)
    found = runs.compare(wanted, ["ipate-weight", "ipate-upsample", "idp-sgd"], store=store, seeds=1, progress=False)
    return store, found, ledger


def test_students_come_to_what_every_run_comes_to(done):
    store, found, _ = done
    assert {name: len(method.curves) for name, method in found.methods.items()} == dict.fromkeys(found.methods, 1)
    runs_by_method = {
        json.loads(spec.to_json())["configuration"]["plan"]["method"]: store.result(job)
        for job, spec in store.specs().items()
        if spec.kind == "train"
    }
    weight, upsample, sample = (runs_by_method[name] for name in ("ipate_weight", "ipate_upsample", "sample"))
    for student in (weight, upsample):
        assert student.values.keys() == sample.values.keys()
        assert student.arrays.keys() == sample.arrays.keys()
        assert student.values["log"][-1].keys() == sample.values["log"][-1].keys()
        assert student.values["curve"]["steps"] == sample.values["curve"]["steps"]
        assert student.values["evaluation"]["records"] == sample.values["evaluation"]["records"]
        assert all(row["spent"] <= row["epsilon"] for row in student.values["owners"])
        assert student.values["evaluation"]["accuracy"] > 0.6  # of ten classes, with generous budgets


def test_owners_pay_once_for_the_votes_and_nothing_for_teachers(done):
    store, _, ledger = done
    kinds = {job: spec.kind for job, spec in store.specs().items()}
    assert {kinds[job] for job in store.charges()} == {"train"}
    costs = [cost for charged in store.charges().values() for cost in charged if cost.steps == 1]
    assert len(costs) == 2
    assert all((cost.sample_rates == 1).all() for cost in costs)
    assert len(Ledger(ledger).history()) == 3


def test_votes_are_secret_and_gone_when_the_student_is_done(done):
    store, _, _ = done
    teachers = [job for job, spec in store.specs().items() if spec.kind == "teacher"]
    assert len(teachers) == 24
    for job in teachers:
        assert store.result(job).secret
        assert not store.result(job).arrays
        assert not store.result(job).values
    folder = Path(store.uri)
    kept = {path.relative_to(folder).parts[1] for path in folder.rglob("arrays.npz")}
    assert not kept & set(teachers)


def test_votes_that_a_killed_comparison_has_left_are_gone_after_the_next(tmp_path, monkeypatch):
    small = {"key": None, "plan.method": "sample", "plan.steps": 2, "plan.teachers": {"count": 3, "queries": 5}}

    def compared():
        runs.compare(config().changed(small), ["ipate-weight", "idp-sgd"], store=tmp_path, progress=False)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "forget", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            compared()
    assert len(list(tmp_path.rglob("arrays.npz"))) == 5
    compared()  # nothing is left to do, but that
    assert len(list(tmp_path.rglob("arrays.npz"))) == 2


def test_votes_are_neither_clipped_nor_ordered():
    """Clipping that lengthens them would let a record move them by more than its owner pays, by sqrt(2)."""
    with pytest.raises(TypeError, match="clipping"):
        NoisyVotes(weighted_teachers(OWNERS, count=9, queries=5), CLASSES, clipping=AutomaticClipping())


def test_jobs_that_fail_once_end_as_if_they_had_not(tmp_path, monkeypatch):
    """A teacher and the student fail at a step; the next attempt resumes from the checkpoint before it."""
    small = config().changed({"plan.teachers": {"count": 2, "queries": 60}, "plan.steps": 10})
    calls, step = [], Learning.step

    def failing(learning, number):
        calls.append(number)
        if len(calls) in (8, 28):
            raise RuntimeError("once")
        step(learning, number)

    whole = runs.train_seeds(small, 1, store=tmp_path / "whole", progress=False).store
    monkeypatch.setattr(Learning, "step", failing)
    again = runs.train_seeds(small, 1, store=tmp_path / "again", progress=False).store
    # a trial, a teacher that fails at step 7, the other one, the rest of the first, the student that fails at step 6
    assert calls == [1, *range(1, 8), *range(1, 11), *range(7, 11), *range(1, 7), *range(6, 11)]
    assert sorted(len(state.attempts) for state in again.states().values()) == [1, 2, 2]
    (one,), (other,) = ([store.results()[job] for job in store.charges()] for store in (whole, again))
    assert one.values == other.values
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name])


@pytest.mark.long
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(tmp_path):
    places = [
        ("inosgm.methods.ipate.learning:Learning.step", 30),
        ("inosgm.jobs.store:Store.commit", 5),
        ("inosgm.methods.ipate.votes:NoisyVotes.labels", 1),
        ("inosgm.methods.ipate.learning:Learning.record_evaluation", 3),
        ("inosgm.jobs.store:Store.forget", 4),
    ]
    arguments = [str(part) for place in places for part in place]
    folders = tmp_path / "killed", tmp_path / "straight"
    subprocess.run([sys.executable, TESTS / "ipate_worker.py", *folders, *arguments], check=True)
    store = Store(tmp_path / "killed")
    done_before = {job for job, state in store.states().items() if state.done}
    assert len(done_before) == 13  # twelve teachers and the student: forgetting was what the last one died of
    straight, again = Store(tmp_path / "straight"), undisturbed(tmp_path / "killed")
    (one,), (other,) = (
        [s.result(job) for job, spec in s.specs().items() if spec.kind == "train"] for s in (straight, again)
    )
    assert json.dumps(one.values, sort_keys=True) == json.dumps(other.values, sort_keys=True)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name])
    assert len(again.charges()) == 1
    assert not any(again.result(job).arrays for job, spec in again.specs().items() if spec.kind == "teacher")
    attempts = [len(state.attempts) for job, state in again.states().items() if again.specs()[job].kind == "teacher"]
    assert sorted(attempts) == [1] * 10 + [2] * 2  # who was done was not asked again


def test_a_task_survives_pickling_and_asks_nothing_for_teachers():
    import pickle

    wanted = config()
    task = pickle.loads(pickle.dumps(TrainingTask(runs.read(wanted))))
    spec = spec_of(wanted, 0, data_fingerprint="")
    before = task.before(spec)
    assert len({one.id for one in before} | {spec.id}) == 13
    assert len({one.seed for one in before}) == 12
    assert not task.cost(before[0])
    assert not task.before(spec_of(wanted.changed({"plan.method": "sample"}), 0, data_fingerprint=""))
