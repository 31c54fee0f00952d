"""One value for one charge: forks, copies, threads, counters that are turned back, and interruptions at any point."""

import contextlib
import copy
import fcntl
import json
import linecache
import os
import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from interrupts import PURE, WATCHED, Cheap, files_of, forked, interrupted, values
from job_tasks import specs

from inosgm import (
    INOSGM,
    BudgetExceeded,
    JobMismatch,
    Ledger,
    LinearTail,
    Owners,
    Plan,
    PlanSequence,
    Trainer,
    plan_individual,
    plan_scale,
)
from inosgm.jobs import Result, Store
from inosgm.jobs.work import PrepaidLedger, attempt
from inosgm.ledger.cost import Cost
from inosgm.ledger.journal import FileJournal, MemoryJournal
from inosgm.mechanism.record_filter import Filter
from inosgm.mechanism.streaming import OrderedSum, Streaming
from inosgm.methods.asc import AdaptiveShares, plan_asc
from inosgm.methods.ipate import NoisyVotes, weighted_teachers
from inosgm.planning.plan import AlreadySpent
from inosgm.statistics import PROCEDURES, Mean, Quantile
from inosgm.statistics.answering import ask
from inosgm.statistics.queries import Query, Stage
from inosgm.training.group_losses import GroupLosses

ROOMY = Owners(of_record=["a"] * 3 + ["b"] * 3, epsilon=1e6, delta=1e-5)
DATA = np.array([[0.5], [-0.9], [0.3], [1.5], [0.2], [-0.1]])
LABELS = np.array(["a"] * 3 + ["b"] * 3)


class Rows(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def plan(steps=1, **changes):
    numbers = dict(sample_rates=[1.0, 1.0], sensitivities=[1.0, 2.0], sizes=[3, 3], noise_scale=3.0, labels=("a", "b"))
    return Plan(steps=steps, **{**numbers, **changes})


def cost(**more):
    return Cost(labels=("a", "b"), sample_rates=[1, 1], noise_multipliers=[5, 5], **more)


def charged(ledger):
    """Return every (job, step) that a ledger was charged for, as often as it was charged."""
    return [
        (charge.job, step) for charge in ledger.history() for start, stop in charge.spans for step in range(start, stop)
    ]


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(None if request.param == "memory" else tmp_path / "ledger", owners=ROOMY, accountant=Cheap())


# Forks


@pytest.mark.parametrize("place", ["none", "memory", "file"])
@pytest.mark.parametrize(("command", "steps"), [("pool", 1), ("in_advance", 2)])
def test_a_pool_that_forks_gets_one_value_for_one_charge(tmp_path, command, steps, place):
    found, paid = forked(command, tmp_path / "ledger" if place == "file" else place)
    assert len(found) == 5
    assert len(values(found[:4])) == 0
    assert len(values(found)) == 1
    assert paid in (None, steps)
    assert all("in the process that made it" in one["about"] for one in found if "error" in one)


def test_with_a_key_the_forks_of_a_pool_repeat_one_value(tmp_path):
    found, paid = forked("pool", tmp_path / "ledger", 7)
    assert len(values(found)) == 5
    assert len(set(values(found))) == paid == 1


@pytest.mark.parametrize("place", ["none", "file"])
def test_one_process_comes_out_of_a_release_that_forks(tmp_path, place):
    (child, parent), _ = forked("inside", tmp_path / "ledger" if place == "file" else place)
    assert "in the process that made it" in child["about"]
    assert "value" in parent


def test_the_ledger_itself_takes_a_charge_without_a_key_from_one_of_five_processes(tmp_path):
    found, paid = forked("charges", tmp_path / "ledger")
    assert len(values(found)) == paid == 1
    assert [one["error"] for one in found if "error" in one] == ["JobMismatch"] * 4


def test_a_process_that_forks_off_within_a_charge_does_not_write(tmp_path):
    (child, parent), paid = forked("forked_books", tmp_path / "ledger")
    assert "forked off" in child["about"]
    assert "value" in parent
    assert paid == 1


def test_a_lock_of_the_ledger_ends_with_its_holder_also_for_who_has_forked_off(tmp_path):
    """The child inherits the locked file and lives on: neither it nor the parent waits for the other for ever."""
    found, paid = forked("lock_inherited", tmp_path / "ledger")
    assert values(found) == [1.0, 1.0]
    assert paid == 2


# The ledger


def test_a_step_that_cannot_be_repeated_is_charged_once(ledger):
    first = cost(steps=3)
    assert not first.repeatable
    ledger.charge(first.at(0, 2))
    before = ledger.head()
    for again in (first.at(0, 1), first.at(1, 1), first, first.at(1, 5)):
        with pytest.raises(JobMismatch, match=r"step [01] of job .* was charged before, and the job is not repeatable"):
            ledger.charge(again)
    with pytest.raises(JobMismatch, match="step 2 of job"):
        ledger.charge(first.at(2, 1), first.at(2, 1))
    assert ledger.head() == before
    ledger.charge(first.at(2, 1))
    assert [step for _, step in charged(ledger)] == [0, 1, 2]


def test_a_step_that_cannot_be_repeated_is_refused_after_reopening(tmp_path):
    once = cost()
    Ledger(tmp_path / "ledger", owners=ROOMY, accountant=Cheap()).charge(once)
    with pytest.raises(JobMismatch, match="not repeatable"):
        Ledger(tmp_path / "ledger", accountant=Cheap()).charge(once)


def test_what_is_undone_without_a_key_is_not_charged_again(ledger):
    once, named = cost(steps=4), cost(steps=4, job="named")
    ledger.charge(once)
    ledger.charge(named)
    for job in (once.job, "named"):
        ledger.undo(job, 1)
    with pytest.raises(JobMismatch, match="step 2 of job"):
        ledger.charge(once.at(2, 1))
    ledger.charge(named.at(2, 1))  # has a name, so whoever gave it decides the noise
    ledger.charge(once.at(4, 1))


def test_costs_say_whether_they_can_be_repeated():
    assert cost(job="named").repeatable
    assert not cost().repeatable
    assert cost(repeatable=True).repeatable
    assert not cost(job="named", repeatable=False).repeatable
    assert not cost(job="named").of_new_job().repeatable
    assert not cost().at(3, 2).repeatable
    assert plan().cost(job="named").repeatable
    assert not Rows(plan(), LABELS).release(DATA).cost.repeatable
    assert Rows(plan(), LABELS, key=1).release(DATA).cost.repeatable
    assert all(one.repeatable for one in PlanSequence((plan(),)).costs(job="course"))
    assert type(cost().job) is str
    with pytest.raises(TypeError, match="repeatable must be True or False"):
        cost(repeatable="yes")


def test_keyed_retries_stay_free(ledger):
    found = [Rows(plan(), LABELS, key=3, ledger=ledger).release(DATA).value[0] for _ in range(3)]
    assert len(set(found)) == len(charged(ledger)) == 1


def test_jobs_of_a_store_may_be_charged_again(tmp_path, ledger):
    store, (spec,) = Store(tmp_path / "store"), specs(1)
    job = store.add(spec)
    for _ in range(2):
        store.charge(job, (cost(steps=2),), ledger)
    assert len(charged(ledger)) == 2
    assert all(one.repeatable for one in store.charged(job))


def test_an_old_ledger_means_what_it_meant():
    path = Path(__file__).parents[1] / "support" / "ledger_of_before.jsonl"
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert not any("coins" in row for row in rows)
    charge = Ledger(path).history()[0]
    assert charge.steps
    assert Ledger(path).job_with_coins("anything") is None


# Jobs of a store


def test_an_attempt_at_a_job_releases_with_noise_that_the_next_attempt_repeats(tmp_path):
    class Asks:
        def __init__(self, key):
            self.key = key

        def run(self, spec, attempt):
            mechanism = Rows(plan(), LABELS, key=attempt.key if self.key else None, ledger=attempt.ledger)
            return Result(values={"value": mechanism.release(DATA).value[0]})

    store, (spec,) = Store(tmp_path / "store"), specs(1)
    job = store.add(spec)
    store.charge(job, (plan().cost(job=job),))
    assert attempt(store, Asks(key=False), job, 1, bool).about == "JobMismatch"
    assert "key=attempt.key" in store.failure(job, 1).traceback
    assert attempt(store, Asks(key=True), job, 2, bool).status == "done"


def test_threads_of_an_attempt_share_what_was_paid(monkeypatch):
    """Sixteen keys ask at once for the only cost: one of them gets it."""
    monkeypatch.setattr(Cost, "same_step", lambda self, other: time.sleep(0) or True)  # lets another thread go on
    for _ in range(20):
        paid, gate = PrepaidLedger((cost(job="job"),)), threading.Barrier(16)

        def asks(key, paid=paid, gate=gate):
            gate.wait()
            try:
                paid.charge(cost(job=f"key {key}"))
            except JobMismatch:
                return 0
            return 1

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(asks, range(16))) == 1


def test_an_attempt_adds_the_noise_of_a_key_to_one_sum(tmp_path):
    """Two mechanisms with the key of a job and the plan that was charged: their difference would hold no noise."""

    class Twice:
        def run(self, spec, attempt):
            for data in (DATA, 0 * DATA):
                Rows(plan(), LABELS, key=attempt.key, ledger=attempt.ledger).release(data)
            return Result()

    store, (spec,) = Store(tmp_path / "store"), specs(1)
    job = store.add(spec)
    store.charge(job, (plan().cost(job=job),))
    assert attempt(store, Twice(), job, 1, bool).about == "JobMismatch"
    assert "its noise must not be added to two sums" in store.failure(job, 1).traceback


@pytest.mark.parametrize("again", [(0, 1), (4, 2), (0, 10), (9, 1)])
def test_an_attempt_pays_for_a_step_once(again):
    paid, asked = PrepaidLedger((cost(job="job", steps=10),)), cost(job="a key", steps=10)
    paid.charge(asked.at(0, 5))
    paid.charge(asked.at(5, 5))
    with pytest.raises(JobMismatch, match="was released before in this attempt"):
        paid.charge(asked.at(*again))


def test_an_attempt_pays_for_all_costs_or_for_none():
    paid, asked = PrepaidLedger((cost(job="job", steps=2),)), cost(job="a key", steps=2)
    with pytest.raises(JobMismatch, match="with another cost"):
        paid.charge(asked, cost(job="another key"))
    with pytest.raises(JobMismatch, match="was released before in this attempt"):
        paid.charge(asked.at(0, 1), asked.at(0, 1))
    paid.charge(asked)


def test_an_attempt_pays_only_in_its_own_process():
    paid = PrepaidLedger((cost(job="job"),))
    paid._process = None  # as a child of a fork sees it
    with pytest.raises(RuntimeError, match="in the process that makes its attempt"):
        paid.charge(cost(job="a key"))


# Calls from within


class Nested:
    """An accountant that calls a function once, as a signal handler or a finalizer may while a charge is worked out."""

    def __init__(self):
        self.call, self.error = lambda: None, None

    def epsilon_of(self, segments, delta):
        call, self.call = self.call, lambda: None
        try:
            call()
        except RuntimeError as error:
            self.error = error
        return 0.4 * sum(steps for *_, steps in segments)


@pytest.mark.parametrize("place", ["memory", "file"])
@pytest.mark.parametrize("ask", ["charge", "spent", "undo"])
def test_a_ledger_that_is_asked_from_within_a_charge_refuses(tmp_path, place, ask):
    """Two charges of .4, each of which found .5 to spend; and no thread waits for itself for ever."""
    accountant, path = Nested(), None if place == "memory" else tmp_path / "ledger"
    own = Ledger(path, owners=Owners(of_record=["a", "b"], epsilon=0.5, delta=1e-5), accountant=accountant)
    calls = {
        "charge": lambda: own.charge(cost()),
        "spent": own.spent,
        "undo": lambda: own.undo("j", 0),
    }
    accountant.call = calls[ask]
    own.charge(cost(job="j"))
    assert "from within itself" in str(accountant.error)
    assert charged(own) == [("j", 0)]
    with pytest.raises(BudgetExceeded):
        own.charge(cost())
    assert own.spent() == {"a": 0.4, "b": 0.4}


# Copies


def trainer(**options):
    x, y = torch.linspace(-1, 1, 200)[:, None] @ torch.ones(1, 2), torch.arange(200) % 2
    owners = Owners(of_record=["a", "b"] * 100, epsilon={"a": 2.0, "b": 5.0}, delta=1e-5)
    followed = plan_scale(owners, steps=10, expected_batch=50, clip_norm=1.0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = Trainer(followed, model, torch.nn.CrossEntropyLoss(), optimizer, owners=owners, **options)
    return made, owners, (x, y)


def teachers():
    owners = Owners(of_record=["a"] * 60 + ["b"] * 30, epsilon={"a": 8.0, "b": 9.0}, delta=1e-5)
    return weighted_teachers(owners, count=30, queries=2)


class Values(Streaming):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch


def counting(tmp_path):
    """Return an object of every class that keeps count."""
    own = Ledger(tmp_path / "ledger", owners=ROOMY)
    return {
        "INOSGM": Rows(plan(), LABELS),
        "keyed": Rows(plan(), LABELS, key=1),
        "Streaming": Values(plan(), LABELS),
        "Statistic": Mean(plan(), bounds=(0, 1)),
        "Trainer": trainer()[0],
        "GroupLosses": GroupLosses(plan(), np.repeat([0, 1], 3), len, key=None, ledger=None, released=0, note=""),
        "NoisyVotes": NoisyVotes(teachers(), 3),
        "Filter": Filter(np.ones(2), np.ones(2), noise_scale=1.0),
        "Paid": PrepaidLedger(None),
        "MemoryJournal": MemoryJournal(),
        "FileJournal": FileJournal(str(tmp_path / "ledger")),
        "Ledger in memory": Ledger(owners=ROOMY),
        "count": Rows(plan(), LABELS)._count,
        "journal": own._journal,
    }


def test_whatever_keeps_count_is_not_copied(tmp_path):
    for thing in counting(tmp_path).values():
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps, cloudpickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied"):
                duplicate(thing)


def test_copies_of_a_ledger_in_a_file_share_its_count(tmp_path):
    own, once = Ledger(tmp_path / "ledger", owners=ROOMY, accountant=Cheap()), cost()
    own.charge(once)
    for duplicate in (copy.copy, copy.deepcopy, lambda thing: pickle.loads(cloudpickle.dumps(thing))):
        with pytest.raises(JobMismatch, match="not repeatable"):
            duplicate(own).charge(once)


def test_a_ledger_in_a_file_stays_where_it_is(tmp_path, monkeypatch):
    """A process that changes its directory must not charge another ledger of the same name, nor must its copies."""
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        made = Ledger("ledger", owners=ROOMY, accountant=Cheap())
        if folder == "one":
            own = made
    own.charge(cost(job="1"))
    for number, duplicate in enumerate((copy.copy, lambda thing: pickle.loads(pickle.dumps(thing))), start=2):
        duplicate(own).charge(cost(job=str(number)))
    assert [charge.job for charge in own.history()] == ["1", "2", "3"]
    assert not made.history()


@pytest.mark.parametrize("name", ["__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__"])
def test_subclasses_do_not_learn_to_copy(name):
    for bases in ((Rows,), (type("Mixin", (), {name: lambda self, *_: self}), Rows)):
        with pytest.raises(TypeError, match=f"must not define {name}"):
            type("Copied", bases, {name: lambda self, *_: self} if len(bases) == 1 else {})


def test_objects_with_the_same_attributes_share_the_steps(ledger):
    """However a second object came to be: what it shares with the first includes the count."""
    mechanism = Rows(plan(4), LABELS, ledger=ledger, charge_steps=4)
    twin = object.__new__(Rows)
    twin.__dict__.update(mechanism.__dict__)
    steps = [one.release(DATA).step for one in (mechanism, twin, twin, mechanism)]
    assert steps == [0, 1, 2, 3]
    assert len(charged(ledger)) == 4
    for one in (mechanism, twin):
        with pytest.raises(RuntimeError, match="all 4 steps"):
            one.release(DATA)


def test_states_that_leave_out_the_lock_cannot_be_pickled_either():
    class Stateful(Rows):
        def __getstate__(self):
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    mechanism = Stateful(plan(), LABELS)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(mechanism)
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(mechanism.__getstate__())


# Counters


def test_a_statistic_is_not_turned_back(ledger):
    statistic = Mean(plan(), LABELS, bounds=(-1, 1), ledger=ledger)
    statistic.release(DATA[:, 0])
    for observed in ([], [np.zeros(2)]):
        with pytest.raises(RuntimeError, match="after needs a new statistic"):
            statistic.after(observed)
    with pytest.raises(RuntimeError, match="all 1 steps"):
        statistic.release(DATA[:, 0])
    assert len(charged(ledger)) == 1


def test_after_takes_a_new_statistic_and_at_most_all_rounds():
    rounds = {"bounds": (0.0, 1.0), "level": 0.5, "rounds": 3}
    value = Quantile(plan(3), LABELS, key=1, **rounds).release(DATA[:, 0]).value
    statistic = Quantile(plan(3), LABELS, **rounds).after([value])
    assert statistic.released == 1
    with pytest.raises(RuntimeError, match="after needs a new statistic"):
        statistic.after([value, value])
    with pytest.raises(ValueError, match="at most 3 rounds, got 4"):
        Quantile(plan(3), LABELS, **rounds).after([value] * 4)


def test_after_turns_nothing_back_that_another_thread_has_released(ledger):
    """A thread comes in after the check: it must find the rounds taken, and its release must not be forgotten."""

    class Interleaved(Quantile):
        def learned(self, value):
            if not steps:
                with ThreadPoolExecutor(1) as pool:
                    steps.append(pool.submit(self.release, DATA[:, 0]).result().step)

    steps, zero = [], np.zeros(2)
    statistic = Interleaved(plan(3), LABELS, bounds=(0.0, 1.0), level=0.5, rounds=3, ledger=ledger).after([zero, zero])
    with pytest.raises(RuntimeError, match="all 3 steps"):
        statistic.release(DATA[:, 0])
    assert steps == [2]
    assert [step for _, step in charged(ledger)] == [2]


def test_a_trainer_without_a_key_pays_for_steps_again_that_a_failed_revision_has_undone(tmp_path):
    _, owners, _ = trainer()
    own = Ledger(tmp_path / "ledger", owners=owners, adaptive=False)
    made, owners, data = trainer(charge_steps=10, ledger=own)
    for _ in range(3):
        made.step(*data)
    strict = Owners(of_record=["a", "b"] * 100, epsilon={"a": 0.01, "b": 5.0}, delta=1e-5)
    with pytest.raises(AlreadySpent):
        made.revise(strict)
    assert sum(segment[2] for segment in own.segments("a")) == 3
    made.step(*data)
    found = charged(own)
    assert sum(segment[2] for segment in own.segments("a")) == 10
    assert len(set(found)) == len(found)  # no step of a job is charged twice
    assert made.released == 4


def test_steering_releases_no_losses_in_a_process_that_has_forked_off():
    owners = Owners(of_record=["a", "b"] * 100, epsilon=5.0, delta=1e-5)
    followed = plan_asc(owners, steps=6, expected_batch=50, clip_norm=1.0, every=2, loss_bound=1.0)
    model = torch.nn.Linear(2, 2)
    made = Trainer(
        followed, model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1), owners=owners,
        steering=AdaptiveShares(followed, every=2, temperature=1.0),
    )  # fmt: skip
    data = torch.ones(200, 2), torch.arange(200) % 2
    for _ in range(2):
        made.step(*data)
    made.mechanism._count._process = None  # as a child of a fork sees it
    with pytest.raises(RuntimeError, match="in the process that made it"):
        made.step(*data)
    assert made.mechanism._losses is None


def test_steps_that_were_undone_are_not_released_for_nothing(ledger):
    mechanism = Rows(plan(4), LABELS, ledger=ledger, charge_steps=4)
    job = mechanism.release(DATA).cost.job
    ledger.undo(job, 2)
    released = [(one.cost.job, one.step) for one in (mechanism.release(DATA) for _ in range(3))]
    assert released[0] == (job, 1)
    assert released[1][0] == released[2][0] != job
    assert set(released) <= set(charged(ledger))
    assert sum(steps for *_, steps in ledger.segments("a")) == 4


def test_steps_of_a_key_that_were_undone_are_refused(ledger):
    mechanism = Rows(plan(4), LABELS, ledger=ledger, charge_steps=4, key=1)
    ledger.undo(mechanism.release(DATA).cost.job, 1)
    with pytest.raises(ValueError, match="must be charged before its noise is used"):
        mechanism.release(DATA)


def test_an_allowance_that_was_undone_is_not_used(ledger):
    owners = Owners(of_record=LABELS, epsilon={"a": 1.0, "b": 3.0}, delta=1e-5)
    mechanism = Rows(plan_individual(owners, steps=3, clip_norm=1.0), owners, ledger=ledger)
    first = mechanism.release(DATA).cost
    ledger.undo(first.job, 2)  # one step may use up all of it, so all of it is paid for again
    other = mechanism.release(DATA).cost
    assert other.job != first.job
    assert charged(ledger)[3:] == [(other.job, step) for step in range(3)]


def test_threads_release_distinct_steps_and_pay_for_each(ledger):
    mechanism = Rows(plan(40), LABELS, ledger=ledger, charge_steps=7)
    gate = threading.Barrier(8)

    def releases(_):
        gate.wait()
        return [mechanism.release(DATA).step for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        steps = [step for some in pool.map(releases, range(8)) for step in some]
    assert sorted(steps) == list(range(40))
    assert sorted(step for _, step in charged(ledger)) == list(range(40))


# Interruptions


def test_every_file_that_a_release_goes_through_is_interrupted_or_pure(tmp_path):
    """A module that is split would otherwise not be interrupted any more, and nobody would notice."""
    own = Ledger(tmp_path / "ledger", owners=ROOMY, accountant=Cheap())
    mechanism, summed = Rows(plan(2), ROOMY, ledger=own, charge_steps=2), OrderedSum(plan(), LinearTail(2.0))
    summed.update(DATA[:, 0], DATA[:, 0], np.repeat([0, 1], 3), 0)
    passed = files_of(lambda: mechanism.release(DATA)) | files_of(lambda: summed.release(ledger=own))
    assert {file for file in passed - {*PURE} if file.name != "__init__.py"} <= {*WATCHED}
    assert all(file.is_file() for file in PURE)


@pytest.mark.parametrize("charge_steps", [1, 2])
def test_ctrl_c_at_any_line_never_leads_to_two_values_for_a_charge(tmp_path, charge_steps, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nobody pulls the plug here, and it would take minutes
    number, going = 0, True
    while going:
        number += 1
        path, made = tmp_path / f"ledger-{number}", []

        class Watched(Rows):
            def _noisy(self, total, noise, made=made):
                made.append((self._cost.job, self.released - 1))
                return super()._noisy(total, noise)

        mechanism = Watched(
            plan(2), LABELS, ledger=Ledger(path, owners=ROOMY, accountant=Cheap()), charge_steps=charge_steps
        )
        _, going = interrupted(lambda mechanism=mechanism: mechanism.release(DATA), number)
        try:
            while True:
                mechanism.release(DATA)
        except RuntimeError as end:
            assert "all 2 steps" in str(end)  # noqa: PT017
        except ValueError as refusal:
            assert "open the ledger anew" in str(refusal)  # noqa: PT017
        paid = charged(Ledger(path, accountant=Cheap()))
        assert len(set(made)) == len(made)
        assert set(made) <= set(paid)
        assert len(set(paid)) == len(paid)
        os.remove(path)
    assert number > 100  # it did get interrupted at many places


@pytest.mark.parametrize("act", ["charge", "spent"])
def test_ctrl_c_at_any_line_leaves_no_lock_on_the_ledger(tmp_path, act, monkeypatch):
    """Also while somebody holds the traceback, as an interactive session does: others must not wait for that."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    assert all(file.is_file() for file in WATCHED)
    kept, number = [None], 0
    modules = {contextlib.__file__, *map(str, WATCHED)}

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename not in modules:
            return None
        code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        count += event in ("call", "line") and not code.startswith(("try:", "with ", "file, rows"))
        if count == number:
            raise KeyboardInterrupt
        return trace

    while kept:
        number, count, path, kept = number + 1, 0, tmp_path / f"ledger-{number}", []
        own = Ledger(path, owners=ROOMY, accountant=Cheap())
        call = (lambda own=own: own.charge(cost())) if act == "charge" else own.spent
        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt as error:
            kept.append(error)
        finally:
            sys.settrace(None)
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(own._journal.turn.acquire, blocking=False).result()
    assert number > 50


class Failing:
    """A ledger that writes a charge down, or not, and then fails."""

    def __init__(self, own, error, *, written):
        self.own, self.error, self.written = own, error, written

    def charge(self, cost):
        if self.error is None or self.written:
            self.own.charge(cost)
        error, self.error = self.error, None
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("written", [False, True])
def test_a_charge_that_fails_half_way_is_paid_for_anew(ledger, error, written):
    mechanism = Rows(plan(2), LABELS, ledger=Failing(ledger, error, written=written))
    with pytest.raises(type(error)) as found:
        mechanism.release(DATA)
    assert "charged anew" in found.value.__notes__[-1]
    assert mechanism.released == 0
    assert [mechanism.release(DATA).step for _ in range(2)] == [0, 1]
    assert len(charged(ledger)) == 2 + written
    assert len(set(charged(ledger))) == 2 + written


def test_a_procedure_that_is_abandoned_releases_no_round_twice(ledger):
    """The question is interrupted after each of its rounds in turn, and asked again: rounds are never shared."""
    released = []

    class Watched(Quantile):
        def _noisy(self, total, noise):
            released.append((self._cost.job, self.released - 1))
            return super()._noisy(total, noise)

    def stages(*, stop):
        for number in range(2):
            yield Stage(Watched, {"bounds": (-1.0, 1.0), "level": 0.5, "rounds": 2})
            if number == stop:
                raise KeyboardInterrupt

    query = Query("abandoned", stages, lambda stop: (2, 2), shares=(0.5, 1.0))
    for stop in range(2):
        with pytest.raises(KeyboardInterrupt):
            ask(query, DATA[:, 0], ROOMY, share=1e-3, ledger=ledger, stop=stop)
    assert len(set(released)) == len(released) == len(charged(ledger)) == 2 + 4
    assert set(released) == set(charged(ledger))
    half = PROCEDURES["trimmed-mean"].stages(bounds=(0, 1))
    next(half)
    half.close()  # a generator of stages itself neither charges nor counts
    assert len(charged(ledger)) == 6


def test_records_that_pay_for_themselves_do_not_pay_in_two_copies():
    owners = Owners(of_record=LABELS, epsilon={"a": 1.0, "b": 3.0}, delta=1e-5)
    followed = plan_individual(owners, steps=4, clip_norm=1.0)
    mechanism = Rows(followed, owners)
    twin = object.__new__(Rows)
    twin.__dict__.update(mechanism.__dict__)
    for one in (mechanism, twin, mechanism, twin):
        one.release(DATA)
    spent = mechanism._filter.spent
    assert mechanism._filter is twin._filter
    assert (spent <= followed.squared_norm_budget[mechanism._owners]).all()
    assert (spent > 0).all()
