"""Costs that are several: menus, units, and charges of all or none."""

import importlib.util
import json
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_tasks import Walk, specs

from inosgm.accounting import ACCOUNTANTS
from inosgm.experiments.expense import expenses
from inosgm.jobs import Result, SerialExecutor, Store
from inosgm.jobs._seals import seal
from inosgm.jobs.work import PrepaidLedger
from inosgm.ledger.affordable import require_affordable
from inosgm.ledger.cost import Cost
from inosgm.ledger.ledger import BudgetExceeded, JobMismatch, Ledger
from inosgm.mechanism.noise import name_of_noise
from inosgm.methods.asc import plan_asc
from inosgm.owners import Owners
from inosgm.planning.sequence import PlanSequence

WORKER = Path(__file__).parents[1] / "support" / "ledger_worker.py"
_spec = importlib.util.spec_from_file_location("ledger_worker", WORKER)
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)
Unsampled, cost = worker.Unsampled, worker.cost

OWNERS = Owners(of_record=["a", "b"], epsilon={"a": 1.0, "b": 3.0}, delta=1e-5)
ROOMY = Owners(of_record=["a", "b"], epsilon=1000.0, delta=1e-5)


class Worst(Unsampled):
    """Blind to sampling: of a menu of Gaussians the one with the least noise dominates the others."""

    def epsilon_of(self, segments, delta):
        return super().epsilon_of([(1.0, np.min(multiplier), steps) for _, multiplier, steps in segments], delta)


class Replacing(Worst):
    unit = "replace-one"


def menu(labels=("a", "b"), rates=(0.1, 0.5, 0.0), multipliers=(10.0, 20.0, 1.0), **more):
    n = len(labels)
    return Cost(labels=labels, sample_rates=[rates] * n, noise_multipliers=[multipliers] * n, **more)


@pytest.fixture(params=["memory", "file"])
def make(request, tmp_path):
    def ledger(owners=OWNERS, accountant=None):
        path = None if request.param == "memory" else tmp_path / "ledger.jsonl"
        return Ledger(path, owners=owners, accountant=accountant or Worst())

    return ledger


# Menus


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_rates": [[0.5, 0.1], [0.0, 0.0]]}, "sample_rates must have an entry > 0 in every menu"),
        ({"sample_rates": [[0.5, 0.1], [-0.1, 1.0]]}, "sample_rates must be >= 0 in every menu"),
        ({"sample_rates": [[0.5, 0.1], [0.1, 1.1]]}, "sample_rates must be <= 1 in every menu"),
        ({"sample_rates": [[0.5, 0.1], [0.1, float("nan")]]}, "sample_rates must be finite"),
        ({"noise_multipliers": [[1.0, 1.0], [1.0, 0.0]]}, "noise_multipliers must be > 0"),
        ({"noise_multipliers": [[1.0], [1.0]]}, r"as many entries for each owner, got shapes \(2, 2\) and \(2,\)"),
        ({"sample_rates": [[0.5, 0.1]]}, "one entry per owner, got 2, 1 and 2"),
        ({"sample_rates": np.empty((2, 0))}, "sample_rates must have an entry in every menu"),
        ({"sample_rates": np.ones((2, 1, 1))}, "sample_rates must be a list of numbers"),
        ({"unit": "add"}, "unit must be add/remove or replace-one, got 'add'"),
    ],
)
def test_an_impossible_menu_is_never_made(change, message):
    good = {"labels": ("a", "b"), "sample_rates": [[0.5, 0.0], [1.0, 0.2]], "noise_multipliers": [[1, 2], [3, 4]]}
    Cost(**good)
    with pytest.raises(ValueError, match=message):
        Cost(**{**good, **change})


def test_a_menu_of_one_entry_is_that_entry(make):
    plain = Cost(labels=("a",), sample_rates=[0.5], noise_multipliers=[2.0], job="j")
    alone = Cost(labels=("a",), sample_rates=[[0.5]], noise_multipliers=[[2.0]], job="j")
    assert plain.same_step(alone)
    ledger = make(ROOMY)
    ledger.charge(plain)
    ledger.charge(alone)
    assert len(ledger.history()) == 1
    padded = Cost(labels=("a",), sample_rates=[[0.5, 0.5, 0]], noise_multipliers=[[2.0, 2.0, 1]])
    ledger.charge(padded)  # what is there twice, or costs nothing, changes nothing
    assert ledger.segments("a") == ((0.5, 2.0, 2),)


def test_menus_are_charged_as_they_are(make, tmp_path):
    ledger = make(ROOMY)
    other = menu(("b", "a"), steps=5, job="other")
    ledger.charge(menu(steps=3), cost(("a",), multiplier=7.0), other)
    chosen = ((0.1, 0.5), (10.0, 20.0), 8)
    assert ledger.segments("a") == ((1.0, 7.0, 1), chosen)
    assert ledger.segments("b") == (chosen,)
    assert ledger.spent()["b"] == Unsampled().epsilon_of([(1, 10.0, 8)], 1e-5)
    (first, second) = ledger.past(ROOMY)
    assert first.sample_rate.tolist() == [[0.1, 0.5, 0.0]] * 2
    assert second.sample_rate.tolist() == [1.0, 0.0]
    trial = ledger.rehearsal()
    assert {label: trial.segments(label) for label in "ab"} == {label: ledger.segments(label) for label in "ab"}
    told = json.loads(ledger.to_json())
    assert told["owners"][1]["history"] == [[[0.1, 0.5], [10.0, 20.0], 8]]
    with pytest.raises(
        ValueError, match=r"no event for what owner '[ab]' was charged: 8 steps, each chosen from a menu"
    ):
        ledger.events()
    if ledger._path is not None:
        again = Ledger(ledger._path, accountant=Worst())
        assert again.segments("a") == ledger.segments("a")
        again.charge(other)  # a retry
        assert again.head() == ledger.head()
        with pytest.raises(JobMismatch):
            again.charge(replace(other, sample_rates=[[0.1, 0.6, 0.0]] * 2))


@pytest.mark.parametrize(("name", "sampling"), [("rdp", "poisson"), ("pld", "without_replacement")])
def test_a_ledger_and_a_plan_agree_on_menus_and_what_is_beside(name, sampling):
    owners = Owners(of_record=["a"] * 300 + ["b"] * 100, epsilon={"a": 3.0, "b": 1.0}, delta=1e-5)
    size = {"steps": 50, "expected_batch": 40, "clip_norm": 1.0, "every": 10}
    plan = plan_asc(owners, **size, accountant=ACCOUNTANTS[name], sampling=sampling)
    costs = PlanSequence((plan,)).costs(job="job")
    ledger = Ledger(owners=owners, accountant=ACCOUNTANTS[plan.accountant])
    ledger.charge(*(replace(one, job=f"job/{place}") for place, one in enumerate(costs)))
    np.testing.assert_allclose(list(ledger.spent().values()), plan.spent(), rtol=1e-9)
    assert ledger.rehearsal().spent() == ledger.spent()
    with pytest.raises(BudgetExceeded):
        ledger.charge(replace(costs[0], job="once more"))


@given(
    rates=st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=12, max_size=12),
    multipliers=st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=12, max_size=12),
    order=st.permutations(range(4)),
)
@settings(max_examples=60, deadline=None)
def test_a_ledger_tells_menus_apart_and_joins_equal_ones(rates, multipliers, order):
    rates, multipliers = np.reshape(rates, (4, 3)), np.reshape(multipliers, (4, 3))
    rates[:, 0] = 1.0
    owners = Owners(of_record=list("abcd"), epsilon=1000.0, delta=1e-5)
    ledger = Ledger(owners=owners, accountant=Worst())
    whole = Cost(labels=tuple("abcd"), sample_rates=rates, noise_multipliers=multipliers, steps=2)
    ledger.charge(whole)
    shuffled = [tuple("abcd"[place] for place in order), rates[order], multipliers[order]]
    ledger.charge(Cost(labels=shuffled[0], sample_rates=shuffled[1], noise_multipliers=shuffled[2], steps=3))
    assert len(ledger._accounts.tables) == 1
    for place, label in enumerate("abcd"):
        pairs = {pair for pair in zip(rates[place], multipliers[place], strict=True) if pair[0]}
        ((rate, multiplier, steps),) = ledger.segments(label)
        assert steps == 5
        assert set(zip(np.atleast_1d(rate), np.atleast_1d(multiplier), strict=True)) == pairs


# Units


def test_a_ledger_has_one_unit(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(path, owners=OWNERS, accountant=Replacing())
    assert ledger.unit == pickle.loads(pickle.dumps(ledger)).unit == json.loads(ledger.to_json())["unit"]
    assert ledger.unit == "replace-one"
    assert ledger.report().startswith("unit replace-one: epsilons are about one record that is replaced")
    head = ledger.head()
    with pytest.raises(ValueError, match=r"unit of the ledger: add/remove \(about one record that is added or removed"):
        ledger.charge(cost(unit="replace-one"), cost())
    assert ledger.head() == head
    with pytest.raises(ValueError, match=r"accountant must count in the unit of .*must not be added; open it with"):
        Ledger(path, accountant=Worst())
    ledger.charge(cost(unit="replace-one"))
    opened = Ledger(path)  # nobody says how to count: in the unit of the file, where a record moves a sum twice as far
    assert opened.spent()["a"] == pytest.approx(Unsampled().epsilon_of([(1, 5.0, 1)], 1e-5), rel=1e-3)
    assert ledger.rehearsal().unit == "replace-one"
    assert ledger.rehearsal().spent() == ledger.spent()
    with pytest.raises(ValueError, match="no events for a ledger of the unit replace-one"):
        ledger.events()
    with pytest.raises(ValueError, match="got 'bits'"):
        Ledger(owners=OWNERS, accountant=type("Odd", (Worst,), {"unit": "bits"})())


def test_expenses_of_two_units_are_not_added():
    one, other = cost(steps=2), cost(steps=2, unit="replace-one")
    with pytest.raises(ValueError, match="the costs of a run must be in one unit"):
        expenses(ROOMY, {(one, other): 1}, ACCOUNTANTS["pld"])
    found = expenses(ROOMY, {(one,): 3, (other,): 2}, ACCOUNTANTS["pld"])
    assert [(part.unit, part.runs) for part in found] == [("add/remove", 3), ("replace-one", 2)]
    assert (found[1].one > 1.5 * found[0].one).all()  # the same noise, and a change twice as large
    assert found[1].heads == ("one run (replace-one)", "all 2 runs (replace-one)")
    assert found[1].table().endswith("the same noise has about twice the epsilon")


OLD = Path(__file__).parents[1] / "support" / "ledger_of_before.jsonl"
"""Written by the version before costs had units: two grants, two jobs, a bind."""


def test_a_file_of_before_is_read_and_continued(tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(OLD.read_bytes())
    ledger = Ledger(path, accountant=Worst())
    assert ledger.unit == "add/remove"
    assert ledger.segments("a") == ((0.5, 10.0, 4), (1.0, 20.0, 2))
    assert ledger.segments("b") == ((0.25, 5.0, 4),)
    head = ledger.head()
    ledger.charge(
        Cost(labels=("b", "a"), sample_rates=[0.25, 0.5], noise_multipliers=[5, 10], steps=4, job="j", fingerprint="f")
    )
    assert ledger.head() == head  # the retry of a job of before
    with pytest.raises(ValueError, match="unit"):
        Ledger(path, accountant=Replacing())
    ledger.charge(menu(steps=2))
    assert Ledger(path, accountant=Worst()).segments("b") == ((0.25, 5.0, 4), ((0.1, 0.5), (10.0, 20.0), 2))


# All or none


def test_what_one_cost_is_refused_for_refuses_all(make):
    ledger = make()
    cheap, dear = cost(multiplier=100.0, job="cheap"), cost(multiplier=1.0, job="dear")
    ledger.charge(cost(("b",), multiplier=50.0, job="known", fingerprint="data"))
    head = ledger.head()
    for other, problem in (
        (dear, BudgetExceeded),
        (cost(("a", "c"), job="of somebody"), ValueError),
        (cost(unit="replace-one"), ValueError),
        (cost(("b",), multiplier=50.0, job="known", fingerprint="other data"), JobMismatch),
        (cost(multiplier=90.0, job="cheap"), JobMismatch),  # one name for two costs of the same charge
        ({"epsilon": 0.5}, TypeError),
    ):
        with pytest.raises(problem):
            ledger.charge(cheap, other)
        assert ledger.head() == head
    ledger.charge()
    assert ledger.head() == head
    ledger.charge(cheap, cheap, cheap.at(1, 2), cheap.at(0, 2))  # steps that are named twice are charged once
    assert [(charge.job, charge.spans) for charge in ledger.history()[1:]] == [
        ("cheap", ((0, 1),)),
        ("cheap", ((1, 3),)),
    ]


def test_two_that_fit_alone_and_not_together_are_refused(make):
    ledger = make(Owners(of_record=["a"], epsilon=Unsampled().epsilon_of([(1, 10.0, 3)], 1e-5), delta=1e-5))
    one, other = cost(("a",), steps=2, job="one"), menu(("a",), steps=2, job="other")
    with pytest.raises(BudgetExceeded):
        ledger.charge(one, other)
    ledger.charge(one, other.at(0, 1))
    assert len(ledger.history()) == 2


@given(
    charges=st.lists(
        st.lists(
            st.tuples(st.sampled_from("jklm"), st.integers(0, 3), st.integers(1, 3), st.sampled_from(["a", "b", "ab"])),
            min_size=1,
            max_size=3,
        ),
        max_size=5,
    ),
    granted=st.integers(1, 12),
)
@settings(max_examples=100, deadline=None)
def test_a_charge_is_of_all_or_none(charges, granted):
    """Against sets of (job, step): every step of a job costs one unit of epsilon, to whom the job names first."""

    class Counting:
        def epsilon_of(self, segments, delta):
            return sum(steps for _, _, steps in segments)

    ledger = Ledger(owners=Owners(of_record=["a", "b"], epsilon=granted, delta=0.5), accountant=Counting())
    paid, payers = set(), {}
    for charge in charges:
        named = {}
        for job, _, _, who in charge:
            named.setdefault(job, set()).add(who)
        steps = {(job, step) for job, first, count, _ in charge for step in range(first, first + count)}
        fits = all(len(who) == 1 and {payers.get(job, *who)} == who for job, who in named.items())
        whose = {**payers, **{job: next(iter(who)) for job, who in named.items()}}
        after = {label: sum(label in whose[job] for job, _ in paid | steps) for label in "ab"}
        head = ledger.head()
        costs = [cost(tuple(who), multiplier=1.0, job=job, step=first, steps=n) for job, first, n, who in charge]
        if fits and max(after.values()) <= granted:
            ledger.charge(*costs)
            paid, payers = paid | steps, whose
        else:
            with pytest.raises((BudgetExceeded, JobMismatch)):
                ledger.charge(*costs)
            assert ledger.head() == head
        assert ledger.spent() == {label: sum(label in payers[job] for job, _ in paid) for label in "ab"}


def test_killed_between_the_rows_of_a_charge_and_tried_again(tmp_path):
    path = tmp_path / "ledger"
    Ledger(path, owners=ROOMY, accountant=Unsampled())
    for rows in (1, 2):
        command = [sys.executable, str(WORKER), "die_between_rows", str(path)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == -signal.SIGKILL
        assert found.stdout == ""  # nobody was told that anything may be released
        assert len(Ledger(path, accountant=Unsampled()).history()) == rows
    ledger = Ledger(path, accountant=Unsampled())
    for _ in range(2):
        ledger.charge(*worker.stages())
        assert [charge.job for charge in ledger.history()] == ["noise", "noise/1", "noise/2"]
        assert ledger.spent()["a"] == Unsampled().epsilon_of([(1, 10.0, 6)], 1e-5)


def test_what_is_published_is_no_cost():
    for thing in (0.5, {"a": 0.5}, "cost", None):
        with pytest.raises(TypeError, match=r"inosgm\.methods\.pdp_published are not costs and are never accepted"):
            Ledger(owners=ROOMY).charge(thing)


# Jobs


class Staged(Walk):
    """Two stages, and something beside."""

    def cost(self, spec):
        first = super().cost(spec)[0]
        return first, replace(first, steps=3, job=f"{spec.id}/1"), menu(self.labels, steps=4, job=f"{spec.id}/2")

    def run(self, spec, attempt):
        first, second, beside = self.cost(spec)
        attempt.ledger.charge(first.at(0, 5), beside.at(3, 1))
        attempt.ledger.charge(second)
        for wrong in (beside.at(3, 2), replace(beside, unit="replace-one"), menu(("b", "a"), job="n")):
            with pytest.raises(JobMismatch):
                attempt.ledger.charge(wrong)
        return Result()


def test_the_row_of_a_job_holds_all_of_its_costs(tmp_path):
    store, ledger = Store(tmp_path / "store"), Ledger(owners=ROOMY, accountant=Worst())
    (spec,) = specs(1)
    store.add(spec, key=7)
    (job,) = SerialExecutor().run(Staged(), [spec], store, ledger=ledger, progress=False).done
    noise = name_of_noise(7)
    assert [charge.job for charge in ledger.history()] == [noise, f"{noise}/1", f"{noise}/2"]
    assert {charge.fingerprint for charge in ledger.history()} == {job}
    charged, asked = store.charged(job), Staged().cost(spec)
    assert store.charges().keys() == {job}
    assert all(one.same_step(other) for one, other in zip(charged, asked, strict=True))
    assert [(one.step, one.steps) for one in charged] == [(0, 10), (0, 3), (0, 4)]
    require_affordable(ledger, [tuple(replace(one, job=job) for one in asked)])  # is paid for


def test_jobs_are_charged_with_tuples_of_costs(tmp_path):
    store = Store(tmp_path / "store")
    job = store.add(specs(1)[0])
    for wrong, problem in ((cost(), TypeError), ((0.5,), TypeError), ((), ValueError)):
        with pytest.raises(problem, match="costs must"):
            store.charge(job, wrong)
    assert not store.charges()
    with pytest.raises(JobMismatch, match="was not charged"):
        PrepaidLedger(None).charge(cost())


def test_a_unit_is_part_of_what_a_job_was_charged_with(tmp_path):
    store = Store(tmp_path / "store")
    job = store.add(specs(1)[0])
    store.charge(job, (cost(unit="replace-one"),))
    assert store.charged(job)[0].unit == "replace-one"
    with pytest.raises(JobMismatch):
        store.charge(job, (cost(),))


def test_a_row_of_before_is_read(tmp_path):
    store = Store(tmp_path / "store")
    job = store.add(specs(1)[0], key=7)
    store.charge(job, (cost(steps=3),))
    file = tmp_path / "store" / "ledger" / f"{job}.json"
    row = store._sealed(f"ledger/{job}.json")
    (entry,) = row.pop("costs")
    table = tmp_path / "store" / "costs" / f"{entry['cost']}.json"
    known = store._sealed(f"costs/{entry['cost']}.json")
    del known["unit"]
    file.write_bytes(seal({**row, **entry}))
    table.write_bytes(seal(known))
    ((charged,),) = store.charges().values()
    assert charged.same_step(cost())
    assert charged.steps == 3
    store.charge(job, (cost(steps=3),))  # the same once more
    with pytest.raises(JobMismatch):
        store.charge(job, (cost(steps=4),))


def test_a_job_that_was_charged_in_part_still_asks_for_the_rest():
    """A ledger that was killed between the rows of a job: what is left must be affordable, and no more than that."""
    asked = [cost(("a",), steps=4, job="job"), cost(("a",), steps=2, job="job")]
    enough = Unsampled().epsilon_of([(1, 10.0, 6)], 1e-5)
    for granted, fits in ((enough, True), (enough * 0.99, False)):
        ledger = Ledger(owners=Owners(of_record=["a"], epsilon=granted, delta=1e-5), accountant=Worst())
        ledger.charge(replace(asked[0], job="noise", fingerprint="job"))
        if fits:
            require_affordable(ledger, [tuple(asked)])
        else:
            with pytest.raises(BudgetExceeded):
                require_affordable(ledger, [tuple(asked)])
