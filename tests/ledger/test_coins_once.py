"""The coins of a sum are used once: by one thread, copy and process, and by one job of a ledger."""

import copy
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interrupts import Cheap, forked, interrupted, values

from inosgm import BudgetExceeded, JobMismatch, Ledger, LinearTail, NoTail, Owners, Plan
from inosgm.ledger.cost import Cost
from inosgm.mechanism.hashed_sampling import included
from inosgm.mechanism.streaming import OrderedSum, Streaming

ROOMY = Owners(of_record=["a"] * 50 + ["b"] * 50, epsilon=1e6, delta=1e-5)
DATA = np.linspace(0, 1, 100)
PLACES = np.repeat([0, 1], 50)
SECRET = bytes(range(16))


def plan(rate=0.5, **changes):
    numbers = dict(sample_rates=[rate, rate], sensitivities=[1.0, 2.0], sizes=[50, 50], noise_scale=3.0, steps=1)
    return Plan(labels=("a", "b"), **{**numbers, **changes})


def filled(empty=None, **options):
    found = OrderedSum(plan(), **options) if empty is None else empty
    found.update(DATA, DATA, PLACES, 0)
    return found


def cost(**more):
    return Cost(labels=("a", "b"), sample_rates=[0.5, 0.5], noise_multipliers=[3.0, 1.5], **more)


def tried(function):
    """Return what a function returns, or None if the coins were used."""
    try:
        return function()
    except (RuntimeError, JobMismatch) as error:
        assert "coins" in str(error)  # noqa: PT017
        return None


@pytest.fixture(params=["none", "memory", "file"])
def ledger(request, tmp_path):
    path = tmp_path / "ledger" if request.param == "file" else None
    return None if request.param == "none" else Ledger(path, owners=ROOMY, accountant=Cheap())


class Values(Streaming):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch


# In a process


@pytest.mark.parametrize("tail", [NoTail(), LinearTail(20.0)], ids=str)
def test_eight_threads_get_one_value_of_one_batch(ledger, tail):
    for _ in range(5):
        found, gate = filled(tail=tail), threading.Barrier(8)

        def releases(_, found=found, gate=gate):
            gate.wait()
            return tried(lambda: found.release(ledger=ledger).value)

        with ThreadPoolExecutor(8) as pool:
            assert sum(value is not None for value in pool.map(releases, range(8))) == 1
    assert ledger is None or len(ledger.history()) == 5


def test_threads_that_release_a_whole_batch_each_get_the_same_sum(tmp_path):
    """Without coins every release is charged for itself; that they sort the tail at once must not change the sum.

    The noise is 1e-4: it is beyond the tolerance of 1e-2, 100 standard deviations, never.
    """
    whole, own = plan(1.0, noise_scale=1e-4), Ledger(tmp_path / "ledger", owners=ROOMY, accountant=Cheap())
    for _ in range(5):
        found, gate = OrderedSum(whole, LinearTail(20.0)), threading.Barrier(8)
        for start in range(0, 100, 5):
            found.update(DATA[start : start + 5], DATA[start : start + 5], PLACES[start : start + 5], start)
        expected = copy.deepcopy(found).exact()

        def releases(_, found=found, gate=gate):
            gate.wait()
            return found.release(ledger=own).value

        with ThreadPoolExecutor(8) as pool:
            assert np.allclose(list(pool.map(releases, range(8))), expected, rtol=0, atol=1e-2)
    assert len(own.history()) == 40


def test_copies_share_the_right_to_use_their_coins(ledger):
    empty = OrderedSum(plan())
    parts = [empty, copy.copy(empty), copy.deepcopy(empty), copy.deepcopy(copy.copy(empty))]
    for part in parts:
        filled(part)
    whole = copy.deepcopy(OrderedSum(plan()))
    assert sum(tried(lambda part=part: part.release(ledger=ledger)) is not None for part in parts) == 1
    assert filled(whole).release(ledger=ledger).step == 0  # coins of its own


def test_a_shallow_copy_shares_coins_and_nothing_else():
    empty = OrderedSum(plan(), LinearTail(20.0))
    first = copy.copy(empty)
    first.update(DATA[:50], DATA[:50], 0, 0)
    assert empty == OrderedSum.from_bytes(empty.to_bytes())
    assert not empty.counts.any()
    assert not empty._kept.all()


def test_a_sum_that_copies_were_merged_into_shares_it_too(ledger):
    empty = OrderedSum(plan())
    first, second = copy.deepcopy(empty), copy.deepcopy(empty)
    first.update(DATA[:50], DATA[:50], 0, 0)
    second.update(DATA[50:], DATA[50:], 1, 50)
    merged = [copy.deepcopy(empty), copy.deepcopy(empty), empty]
    for total in merged:
        total.merge(first)
        total.merge(OrderedSum.from_bytes(second.to_bytes()))
    assert sum(tried(lambda total=total: total.release(ledger=ledger)) is not None for total in merged) == 1


def test_what_was_filled_elsewhere_is_released_by_the_sum_that_it_is_a_part_of(ledger):
    """Copies that were pickled are filled in other processes, and come back."""
    empty = OrderedSum(plan())
    part = pickle.loads(pickle.dumps(empty))
    part.update(DATA, DATA, PLACES, 0)
    back = pickle.loads(pickle.dumps(part))
    with pytest.raises(RuntimeError, match="release that"):
        back.release(ledger=ledger)
    back.merge(empty)  # in whichever direction
    empty.merge(part)
    assert empty.release(ledger=ledger).step == 0
    for other in (empty, part, back):
        assert tried(lambda other=other: other.release(ledger=ledger)) is None


def test_parts_of_a_mechanism_and_sums_from_bytes_are_not_released_by_themselves(ledger):
    mechanism = Values(plan(), ledger=ledger)
    part = mechanism.part(DATA, PLACES, 0)
    read = OrderedSum.from_bytes(part.to_bytes())
    for other in (part, copy.deepcopy(part), pickle.loads(pickle.dumps(part)), read):
        with pytest.raises(RuntimeError, match="made by a Streaming mechanism, read from bytes"):
            other.release(ledger=ledger)
    with pytest.raises(RuntimeError, match="made by a Streaming mechanism"):
        filled(pickle.loads(pickle.dumps(mechanism.partial()))).release(ledger=ledger)
    assert mechanism.release(read).step == 0
    with pytest.raises(RuntimeError, match="all 1 steps"):
        mechanism.release(part)


def test_parts_that_threads_make_at_once_have_the_same_coins():
    for _ in range(20):
        mechanism, gate = Values(plan()), threading.Barrier(8)

        def signature(_, mechanism=mechanism, gate=gate):
            gate.wait()
            return mechanism.partial().signature

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(signature, range(8)))) == 1


@pytest.mark.parametrize(
    "made",
    [
        lambda: filled(secret=SECRET),
        lambda: filled(pickle.loads(pickle.dumps(OrderedSum(plan())))),
        lambda: filled(copy.deepcopy(pickle.loads(pickle.dumps(OrderedSum(plan()))))),
    ],
    ids=["secret", "pickled", "copied"],
)
def test_coins_that_others_may_have_need_a_ledger(made, tmp_path):
    class Book:
        def charge(self, cost):
            pytest.fail("charged to a ledger that does not remember coins")

    for forgetful in (
        None,
        Book(),
        Ledger(owners=ROOMY, accountant=Cheap()),
    ):  # nobody else sees the last
        with pytest.raises(RuntimeError, match=r"Release it with ledger=Ledger\(path\)"):
            made().release(ledger=forgetful)
    path = tmp_path / "ledger"
    first, own = made(), Ledger(path, owners=ROOMY, accountant=Cheap())
    assert first.release(ledger=own).step == 0
    with pytest.raises(RuntimeError, match="coins of this sum may be used once"):
        first.release(ledger=Ledger(path, accountant=Cheap()))


def test_two_sums_with_one_secret_are_one_release_for_a_ledger(tmp_path):
    path = tmp_path / "ledger"
    Ledger(path, owners=ROOMY, accountant=Cheap())
    found = [
        tried(lambda: filled(secret=SECRET).release(ledger=Ledger(path, accountant=Cheap()))) is not None
        for _ in range(3)
    ]
    assert found == [True, False, False]
    other = OrderedSum(plan(0.25), LinearTail(3.0), secret=SECRET)  # the same coins at other rates are not independent
    other.update(DATA, DATA, PLACES, 0)
    with pytest.raises(JobMismatch, match="were used by job"):
        other.release(ledger=Ledger(path, accountant=Cheap()))
    assert len(Ledger(path, accountant=Cheap()).history()) == 1


def test_a_charge_that_is_refused_frees_the_coins(tmp_path):
    own = Ledger(tmp_path / "ledger", owners=ROOMY.granting(1e-9), accountant=Cheap())
    found = filled()
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            found.release(ledger=own)
    assert own.job_with_coins(found._coins) is None
    own.grant(ROOMY)
    assert found.release(ledger=own).step == 0
    with pytest.raises(RuntimeError, match="used once"):
        found.release(ledger=own)


def test_records_that_do_not_fit_the_plan_free_the_coins(ledger):
    found = OrderedSum(plan())
    found.update(DATA[:50], DATA[:50], 0, 0)
    with pytest.raises(ValueError, match="owners must be those of the plan"):
        found.release(ledger=ledger)
    found.update(DATA[50:], DATA[50:], 1, 50)
    assert found.release(ledger=ledger).step == 0


def test_a_release_that_fails_after_the_charge_has_used_the_coins(ledger, monkeypatch):
    found = filled()
    monkeypatch.setattr("inosgm.mechanism.noise.DiscreteNoise.add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        found.release(ledger=ledger)
    monkeypatch.undo()
    assert tried(lambda: found.release(ledger=ledger)) is None


# Keys


def test_with_a_key_the_same_sum_is_a_free_retry(ledger):
    found = filled()
    first = found.release(key=1, ledger=ledger).value
    assert found.release(key=1, ledger=ledger).value == first
    with pytest.raises(RuntimeError, match="used once"):
        found.release(key=2, ledger=ledger)
    with pytest.raises(RuntimeError, match="used once"):
        found.release(ledger=ledger)
    drawn = included(found._secret, 100, found._limits, np.zeros(100, dtype=int))
    found.update([1.0], [0.0], 0, 100 + int(np.argmax(drawn)))  # one record more is another sum, which fits the plan
    with pytest.raises(RuntimeError, match="used once"):
        found.release(key=1, ledger=ledger)
    assert ledger is None or len(ledger.history()) == 1


def test_a_ledger_knows_keys_and_coins_of_sums(tmp_path):
    path = tmp_path / "ledger"

    def releases(secret, key):
        own = Ledger(path, owners=None if path.exists() else ROOMY, accountant=Cheap())
        return filled(secret=secret).release(key=key, ledger=own).value

    first = releases(SECRET, 1)
    assert releases(SECRET, 1) == first
    with pytest.raises(JobMismatch, match="were used by job"):
        releases(SECRET, 2)
    with pytest.raises(JobMismatch, match="other coins"):
        releases(SECRET[::-1], 1)
    with pytest.raises(JobMismatch, match="other coins"):
        Values(plan(), PLACES_LABELS, key=1, ledger=Ledger(path, accountant=Cheap())).release(DATA)
    assert releases(SECRET[::-1], 2) != first
    assert len(Ledger(path, accountant=Cheap()).history()) == 2


PLACES_LABELS = np.array(["a", "b"])[PLACES]


def test_a_retry_of_before_ledgers_knew_coins_is_free_and_claims_them(tmp_path):
    """The row of an older version has no coins: the step stays paid, and the coins are written down with the retry."""
    own = Ledger(tmp_path / "ledger", owners=ROOMY, accountant=Cheap())
    found = filled(secret=SECRET)
    old = replace(found.plan.cost(job="key"), note="")
    own.charge(old)
    spent = own.spent()
    own.charge(old.with_coins(found._coins))
    assert own.spent() == spent
    assert sum(charge.steps for charge in own.history()) == 1
    assert own.job_with_coins(found._coins) == "key"
    rows = len(own.history())
    own.charge(old.with_coins(found._coins))
    assert len(own.history()) == rows
    with pytest.raises(JobMismatch, match="were used by job 'key'"):
        own.charge(replace(old, job="other").with_coins(found._coins))


# The ledger


def test_coins_belong_to_one_step_of_one_job(tmp_path):
    own = Ledger(tmp_path / "ledger", owners=ROOMY, accountant=Cheap())
    own.charge(cost(job="j", coins="c"))
    head = own.head()
    for reopened in (own, Ledger(tmp_path / "ledger", accountant=Cheap())):
        for other in (cost(coins="c"), cost(job="k", coins="c"), cost(job="j", coins="c", step=1)):
            with pytest.raises(JobMismatch, match="were used by job 'j'"):
                reopened.charge(other)
        for other in (cost(job="j", coins="d"), cost(job="j"), cost(job="j", steps=3)):
            with pytest.raises(JobMismatch, match="step 0 of job 'j' was charged before for a batch of other coins"):
                reopened.charge(other)
        with pytest.raises(JobMismatch, match="were used by job 'l'"):
            reopened.charge(cost(job="l", coins="e"), cost(job="m", coins="e"))
        reopened.charge(cost(job="j", coins="c"))
        assert reopened.head() == head
    own.undo("j", 0)
    with pytest.raises(JobMismatch, match="were used by job 'j'"):
        own.charge(cost(job="k", coins="c"))
    own.charge(cost(job="j", coins="c"), cost(job="j", coins="c"))
    assert [charge.steps for charge in own.history()] == [1, 1]
    with pytest.raises(ValueError, match="coins must be used for one step, got 2 steps"):
        cost(coins="c", steps=2)


# Other processes


@pytest.mark.parametrize("place", ["none", "memory", "file"])
def test_forks_get_one_value_of_one_batch(tmp_path, place):
    found, paid = forked("sums", tmp_path / "ledger" if place == "file" else place)
    assert len(values(found)) == 1
    assert paid in (None, 1)


def test_forks_with_a_given_secret_get_one_value_of_one_batch(tmp_path):
    found, paid = forked("sums", tmp_path / "ledger", "sixteen-bytes-ab")
    assert len(values(found)) == paid == 1


def test_forks_with_a_key_repeat_one_value(tmp_path):
    found, paid = forked("sums", tmp_path / "ledger", "sixteen-bytes-ab", 7)
    assert len(values(found)) == 5
    assert len(set(values(found))) == paid == 1


# Interruptions


@pytest.mark.parametrize("place", ["none", "file"])
def test_ctrl_c_at_any_line_never_leads_to_two_values_of_one_batch(tmp_path, place, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nobody pulls the plug here, and it would take minutes
    made, noisy = [], Streaming._noisy

    def watched(self, total, noise):
        made.append(self._cost.job)
        return noisy(self, total, noise)

    monkeypatch.setattr(Streaming, "_noisy", watched)
    number, going, freed = 0, True, 0
    while going:
        number += 1
        path, found = tmp_path / f"ledger-{number}", filled()
        own = None if place == "none" else Ledger(path, owners=ROOMY, accountant=Cheap())
        made.clear()
        _, going = interrupted(lambda found=found, own=own: found.release(ledger=own), number)
        for _ in range(2):
            try:
                found.release(ledger=own)
            except (RuntimeError, JobMismatch) as refusal:
                assert "coins" in str(refusal) or "this sum was interrupted" in str(refusal)  # noqa: PT017
            except ValueError as refusal:
                assert "open the ledger anew" in str(refusal)  # noqa: PT017
        assert len(made) <= 1
        freed += len(made)
        if own is not None:
            paid = [charge.job for charge in Ledger(path, accountant=Cheap()).history()]
            assert set(made) <= set(paid)
            Path(path).unlink()
    assert freed > 50  # where nothing was drawn the sum is not lost


@pytest.mark.parametrize("tail", [NoTail(), LinearTail(20.0)], ids=str)
@pytest.mark.parametrize("change", ["update", "merge", "exact"])
def test_a_sum_that_ctrl_c_left_half_changed_is_of_no_use(tail, change):
    """Else records of which a part was added could be added again, and count twice for one charge."""
    empty, number, going, broken = OrderedSum([1.0, 2.0], tail), 0, True, 0
    expected = {}
    for size in (50, 100):
        whole = copy.deepcopy(empty)
        whole.update(DATA[:size], DATA[:size], PLACES[:size], 0)
        expected[size] = whole.exact()
    part = copy.deepcopy(empty)
    part.update(DATA[50:], DATA[50:], 1, 50)
    while going:
        number += 1
        found = copy.deepcopy(empty)
        found.update(DATA[:50], DATA[:50], 0, 0)
        changes = {
            "update": lambda found=found: found.update(DATA[50:], DATA[50:], 1, 50),
            "merge": lambda found=found: found.merge(part),
            "exact": found.exact,
        }
        _, going = interrupted(changes[change], number)
        try:
            assert found.exact() == expected[int(found.counts.sum())]
        except RuntimeError as refusal:
            broken += 1
            for look in (found.exact, found.to_bytes, lambda found=found: copy.deepcopy(found), changes["update"]):
                with pytest.raises(RuntimeError, match="this sum was interrupted"):
                    look()
            with pytest.raises(RuntimeError, match="this sum was interrupted"):
                copy.deepcopy(empty).merge(found)
            assert "this sum was interrupted" in str(refusal)  # noqa: PT017
    assert broken > 3
