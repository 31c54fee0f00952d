"""One model on several ranks: real processes that speak gloo, against one process alone."""

import numpy as np
import pytest
import torch
from group_parts import LABELS, OWNERS, PLAN, Adapted, Killed, X, Y, exact_plan, fit, network, parameters_of, trainer
from torch import nn
from worker_group import run_group

from inosgm import (
    AdaptiveShares,
    BudgetExceeded,
    HardTail,
    Ledger,
    PlanSequence,
    RandomOrder,
    certify,
    plan_asc,
    plan_thresholds,
)
from inosgm._internal.keys import Purpose, SecretKey
from inosgm.training import Trainer, Workers
from inosgm.training.group_gradients import GroupGradients, RankBatch
from inosgm.training.padding import MOST_LOOKED_AT

ROUNDING = 2e-6
"""Largest difference between parameters after a few steps: some roundings of float32, each amplified by momentum."""


def together(ranks, function):
    """Run a function of each rank's number in a group; raise what a rank raised."""
    results = run_group(ranks, function)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long), 3])
def test_ranks_train_the_model_that_one_process_trains(ranks):
    cases = {
        "a tail": ({}, network),
        "micro-batches": ({"max_physical_batch": 7}, network),
        "a frozen base": ({"max_physical_batch": 9}, lambda seed: torch.manual_seed(seed) and Adapted()),
        "a secret order": ({"order": RandomOrder(3)}, network),
        "a hard tail": ({"tail": HardTail(5.0)}, network),
        "without a key": ({"plan": exact_plan(), "key": None}, network),
    }

    def member(rank):
        workers = Workers()
        return [fit(trainer(model=model(rank), workers=workers, **more)) for more, model in cases.values()]

    alone = [fit(trainer(model=model(0), **more)) for more, model in cases.values()]
    for trained in together(ranks, member):  # models of other ranks begin with other parameters, and take rank 0's
        for name, mine, expected in zip(cases, trained, alone, strict=True):
            assert np.abs(mine - expected).max() < ROUNDING, name
            assert np.abs(mine).max() > 0.1


class Staged(nn.Module):
    """A network that gives other logits in each stage."""

    def __init__(self):
        super().__init__()
        self.network, self.stage = network(), 0

    def turn_to(self, stage):
        self.stage = stage

    def forward(self, x):
        return self.network(x) * (1 + self.stage)


class Pairs(torch.utils.data.Dataset):
    """The records one by one, with a random shift if asked for."""

    def __init__(self, order=None, shift=0.0, generator=None):
        self.order, self.shift, self.generator = np.arange(80) if order is None else order, shift, generator

    def __len__(self):
        return len(self.order)

    def __getitem__(self, position):
        shift = self.shift * torch.randn(6, generator=self.generator).numpy()
        return X[self.order[position]] + shift.astype(np.float32), Y[self.order[position]]


def per_record(model, batch):
    """The losses of a whole batch."""
    x, y = batch
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def steered(**more):
    plan = plan_asc(OWNERS, steps=5, expected_batch=30, clip_norm=0.5, every=2)
    steering = AdaptiveShares(plan, every=2, temperature=0.7)
    return trainer(plan, steering=steering, **more), steering


def test_steering_stages_loading_ahead_and_losses_of_ones_own_are_those_of_one_process():
    stages = PlanSequence(plan_thresholds(OWNERS, rounds=2, steps=4, expected_batch=30, clip_norm=0.5))

    def trained(workers):
        asc, steering = steered(workers=workers)
        staged = trainer(stages, Staged(), workers)
        ahead = trainer(workers=workers, max_physical_batch=5, num_workers=1)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        whole = Trainer(PLAN, model, None, optimizer, losses=per_record, owners=LABELS, key=3, workers=workers)
        for made in (asc, staged, whole):
            fit(made)
        ahead.fit(Pairs(shift=0.1), progress=False)  # drawn for each record, by torch
        return [parameters_of(made.model) for made in (asc, staged, ahead, whole)], steering.state()

    alone, state = trained(Workers(shards=2))
    results = together(2, lambda rank: trained(Workers()))
    for models, _ in results:
        assert [model.tobytes() for model in models] == [model.tobytes() for model in alone]
    assert repr(results[0][1]) == repr(state)


def test_a_rank_that_holds_other_records_is_refused_before_anything_is_charged():
    turned = np.arange(80)[::-1]

    def member(rank):
        told = []
        own = torch.Generator().manual_seed(rank)
        for data in (Pairs(turned if rank else None), Pairs(shift=0.1), Pairs(shift=0.1, generator=own)):
            made = trainer(exact_plan(), workers=Workers())
            try:
                made.fit(data, progress=False)
            except (ValueError, RuntimeError) as refusal:
                told.append((str(refusal), made.released))
            else:
                told.append(("", made.released))
        return told

    leader, follower = together(2, member)
    assert "rank 1" in leader[0][0]
    assert "same records in the same order" in follower[0][0]
    assert leader[0][1] == 0
    # a data set that draws is compared with the same random numbers, and not at all if they are its own
    assert leader[1:] == [("", 3), ("", 3)]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_run_has_the_same_bits_on_any_number_of_ranks_and_random_numbers_do_not_follow_the_rank(ranks):
    """Of four ranks, the last one has no shard, and takes part in every step."""

    def trained(seed=0):
        made = [
            trainer(model=network(seed, dropout=0.4), workers=Workers(shards=3), max_physical_batch=most)
            for most in (None, 5)
        ]
        return np.concatenate([fit(some) for some in made])

    alone = trained()
    for result in together(ranks, trained):
        assert result.tobytes() == alone.tobytes()


class SharedMask(nn.Module):
    """A linear layer whose inputs get one random mask for all records."""

    def __init__(self):
        super().__init__()
        self.layer, self.drop = nn.Linear(6, 3), nn.Dropout(0.5)

    def forward(self, x):
        return self.layer(x * self.drop(torch.ones_like(x[0])))


def test_random_numbers_that_records_share_are_drawn_once_for_all_shards(monkeypatch):
    made = trainer(exact_plan(steps=1), SharedMask(), workers=Workers(shards=3))
    masked = []

    def measured(self, original=RankBatch.measured):
        sums = [batch.weighted_sum(np.ones(size)) for batch, size in zip(self._batches, self._sizes, strict=True)]
        masked.extend((sum_[0].abs().sum(0) == 0).tolist() for sum_ in sums)
        return original(self)

    monkeypatch.setattr(RankBatch, "measured", measured)
    made.fit(X, Y, progress=False)
    assert masked == [masked[0]] * 3
    assert 0 < sum(masked[0]) < 6


def test_a_batch_in_shards_keeps_its_sensitivity():
    assert certify(trainer(exact_plan(), workers=Workers(shards=3)), (X, Y), evaluations=150).holds()


def test_steps_without_records_release_noise_on_all_ranks():
    plan = exact_plan(sample_rates=[1e-12, 1e-12], noise_scale=1.0)

    def member(rank):
        made = trainer(plan, workers=Workers())
        before = parameters_of(made.model)
        return fit(made) - before

    first, second = together(2, member)
    assert (first == second).all()
    assert np.abs(first).min() > 0


def test_rank_0_alone_charges_and_a_refusal_comes_before_any_record_is_touched():

    class Refusing:
        def charge(self, cost):
            raise BudgetExceeded("strict", 2.0, 2.0, 2.1)

    def member(rank):
        touched = []
        monkey = pytest.MonkeyPatch()
        monkey.setattr(GroupGradients, "of_shard", lambda *_: touched.append(1))
        made = trainer(workers=Workers(), ledger=Refusing())
        before = parameters_of(made.model)
        with pytest.raises((BudgetExceeded, RuntimeError)) as refusal:
            fit(made)
        return type(refusal.value).__name__, touched, bool((parameters_of(made.model) == before).all())

    assert run_group(2, member) == [("BudgetExceeded", [], True), ("LeaderFailed", [], True)]


def test_what_a_rank_that_follows_is_told_holds_neither_key_nor_noise_nor_the_records_of_others():
    def member(rank):
        workers, heard = Workers(), []
        original = workers.hear
        workers.hear = lambda: heard.append(original()) or heard[-1]
        made = trainer(exact_plan(steps=1), workers=workers)
        fit(made)
        return heard

    _, heard = together(2, member)
    told = dict(heard)
    assert list(told) == ["begin", "state", "check", "measure", "sum", "parameters", "end"]
    secret, shards = told["measure"]
    assert secret == Purpose.WORKERS_KEY.key("11 0") != 11
    assert [shard.positions.tolist() for shard in shards] == [list(range(40, 80))]
    weights, _ = told["sum"]
    assert weights.size == 40


def test_a_step_by_one_rank_of_a_group_is_refused():
    def member(rank):
        made = trainer(workers=Workers())
        for attempt in (
            lambda: made.step(X, Y),
            lambda: made.mechanism.release((X, Y)),
            lambda: certify(made, (X, Y)),
            lambda: made.revise(OWNERS),
        ):
            with pytest.raises(RuntimeError, match=r"one process|by itself"):
                attempt()
        made.check(X, Y)  # which releases nothing
        return made.released

    assert run_group(2, member) == [0, 0]


class Broken(torch.utils.data.Dataset):
    """Records of which some cannot be read on this rank."""

    def __init__(self, length=80, bad=()):
        self.length, self.bad = length, bad

    def __len__(self):
        return self.length

    def __getitem__(self, position):
        if position in self.bad:
            raise OSError("a disk failed")
        return X[position], Y[position]


UNTRIED = np.setdiff1d(np.arange(60, 80), np.linspace(0, 79, MOST_LOOKED_AT).astype(np.int64)).tolist()
"""Records that are read in steps, and not before anything is charged."""


@pytest.mark.parametrize(
    ("data", "error", "charged"),
    [({"length": 79}, "same 80 records on every rank", 0), ({"bad": UNTRIED}, "a disk failed", 1)],
)
def test_a_rank_that_fails_ends_the_step_on_all_ranks(data, error, charged):
    class Counting:
        charges = 0

        def charge(self, cost):
            self.charges += 1

    def member(rank):
        ledger = Counting()
        made = trainer(exact_plan(), workers=Workers(), ledger=ledger)
        before = parameters_of(made.model)
        with pytest.raises((RuntimeError, ValueError, OSError)) as failed:
            made.fit(Broken(**data) if rank == 2 else Broken(), progress=False)
        return str(failed.value), bool((parameters_of(made.model) == before).all()), ledger.charges

    told = run_group(3, member)
    assert error in told[2][0]
    assert "rank 2" in told[0][0]
    assert "rank 0" in told[1][0]
    assert all(unchanged for _, unchanged, _ in told)
    assert [charges for *_, charges in told] == [charged, 0, 0]


def killed_and_resumed(run, groups, fetched):
    """Train in a directory with groups of so many ranks, in each of which one dies, and with the last to the end."""

    def member(rank, ranks, dying, fetched):
        made = trainer(model=network(dropout=0.3), workers=Workers(shards=3), key=None)
        data = Killed(fetched if rank == dying else 0)
        try:
            made.fit(data, run=run, checkpoint_every=2, progress=False)
        except RuntimeError:
            return "ended"
        return parameters_of(made.model)

    for (ranks, dying), count in zip(groups[:-1], fetched, strict=True):
        assert not any(isinstance(result, np.ndarray) for result in run_group(ranks, member, ranks, dying, count))
    return run_group(groups[-1], member, groups[-1], None, 0)


def test_a_group_of_which_a_rank_was_killed_resumes_with_more_or_fewer_and_is_charged_once(tmp_path):
    run = tmp_path / "run"

    def undisturbed(key):
        made = trainer(model=network(dropout=0.3), workers=Workers(shards=3), key=key)
        made.fit(Killed(0), progress=False)
        return parameters_of(made.model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inosgm._internal.keys.secrets.randbits", lambda bits: 5)
        results = killed_and_resumed(run, [(2, 1), (3, 0), 2], [3 * MOST_LOOKED_AT + 15, 4 * MOST_LOOKED_AT])
    expected = undisturbed(SecretKey(5))
    for result in results:
        assert result.tobytes() == expected.tobytes()
    ledger = Ledger(run / "ledger")
    spent = ledger.spent()
    granted = dict(zip(PLAN.labels, PLAN.spent(PLAN.steps).tolist(), strict=True))
    assert {label: pytest.approx(value) for label, value in granted.items()} == dict(spent)
    assert (run / "shards").read_text() == "3"
    assert not (run / "key").exists()


def test_after_a_kill_the_same_noise_on_another_sum_is_refused_before_any_rank_sees_it(tmp_path):
    run = tmp_path / "run"

    def begin(rank):
        made = trainer(workers=Workers(), key=None)
        made.fit(Killed(3 * MOST_LOOKED_AT + 10 if rank == 1 else 0), run=run, checkpoint_every=6, progress=False)

    run_group(2, begin)

    def again(rank):
        made = trainer(workers=Workers(), key=None)
        before = parameters_of(made.model)
        with pytest.raises((ValueError, RuntimeError)) as refusal:
            made.fit(X * 1.01, Y, run=run, progress=False)
        return str(refusal.value), bool((parameters_of(made.model) == before).all())

    (why, unchanged), (_, seen) = run_group(2, again)
    assert "sum" in why or "noise" in why
    assert unchanged
    assert seen
