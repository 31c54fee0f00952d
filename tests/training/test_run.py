import json
import pickle
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event
from training_worker import HELD_OUT, LABELS, X, Y, fit, owners, trainer

from inosgm import AlreadySpent, ClipToShare, Ledger, LinearTail, Plan, plan_scale
from inosgm.ledger.ledger import JobMismatch
from inosgm.mechanism.inspection import Inspection
from inosgm.planning.sequence import PlanSequence
from inosgm.training.checkpoints import Checkpoint
from inosgm.training.run import Run

WORKER = Path(__file__).parents[1] / "support" / "training_worker.py"
POINTS = [
    ("inosgm.ledger.ledger:Ledger.charge", 1),
    ("inosgm.training.runlog:RunLog.write", 1),
    ("inosgm.ledger.ledger:Ledger.bind", 3),
    ("torch.optim:SGD.step", 4),
    ("os:replace", 2),
    ("inosgm.training.run:Run.save", 1),
    ("inosgm.ledger.ledger:Ledger.charge", 2),
    ("os:replace", 2),
    ("inosgm.training.runlog:RunLog.write", 2),
    ("inosgm.training.run:Run.forget_key", 1),
]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights(made):
    return torch.cat([value.flatten() for value in made.model.state_dict().values()])


def everything(run):
    """Return what a run has come to: its last checkpoint, its public log, and what every owner has spent."""
    with Run(run) as place:
        last = place.latest()
    content = {name: value for name, value in vars(last).items() if name != "ledger"}
    return content, (run / "log.jsonl").read_text(), Ledger(run / "ledger").spent()


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_killed_again_and_again_a_run_ends_as_if_it_had_not_been(tmp_path):
    made = fit(tmp_path / "whole")
    points = [str(part) for point in POINTS for part in point]
    command = [sys.executable, str(WORKER), str(tmp_path / "killed"), *points]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert not ended.returncode, ended.stderr
    finished = fit(tmp_path / "killed")
    assert torch.equal(weights(made), weights(finished))
    assert made.curve == finished.curve
    (checkpoint, log, spent), (again, log_again, spent_again) = map(
        everything, (tmp_path / "whole", tmp_path / "killed")
    )
    assert same(checkpoint, again)
    assert log == log_again
    assert spent == spent_again
    assert spent["strict"] <= 2.0
    charges = Ledger(tmp_path / "killed" / "ledger").history()
    assert sorted(span for charge in charges for span in charge.spans) == [(0, 5), (5, 10), (10, 15), (15, 20)]


def test_a_run_without_a_run_directory_gives_the_same_model(tmp_path):
    made = trainer(key=11)
    made.fit(X, Y, progress=False)
    assert torch.equal(weights(made), weights(fit(tmp_path / "run")))


def test_pieces_of_a_run_add_up(tmp_path):
    whole = fit(tmp_path / "whole")
    for _ in range(3):
        fit(tmp_path / "pieces", steps=7)
    assert torch.equal(weights(whole), weights(fit(tmp_path / "pieces")))


def asked_after(step):
    """Return what asks to stop after so many steps, and how often it was asked."""
    asked = []
    return lambda: asked.append(None) or len(asked) == step, asked


def test_a_run_that_was_asked_to_stop_ends_as_if_it_had_not_been(tmp_path):
    whole = fit(tmp_path / "whole")
    made = 0
    for steps in (1, 3, 1, 4, 11):  # to 1, 4 (an evaluation is due), 5 (a checkpoint is), 9, and the end
        stop, asked = asked_after(steps)
        stopped = fit(Run(tmp_path / "stopped"), stop=stop)
        made += steps
        assert (stopped.released, len(asked)) == (made, steps)
        assert stopped.curve.steps == tuple(step for step in whole.curve.steps if step <= made)
        with Run(tmp_path / "stopped") as place:
            assert place.latest().step == made
    assert torch.equal(weights(whole), weights(stopped))
    assert same(everything(tmp_path / "whole"), everything(tmp_path / "stopped"))
    assert (tmp_path / "stopped" / "curve.json").read_text() == whole.curve.to_json()


def test_a_trainer_without_a_run_stops_and_goes_on():
    made = trainer(key=11)
    made.fit(X, Y, stop=asked_after(3)[0], progress=False)
    assert made.released == 3
    made.fit(X, Y, progress=False)
    whole = trainer(key=11)
    whole.fit(X, Y, progress=False)
    assert torch.equal(weights(whole), weights(made))


def test_checking_draws_charges_and_changes_nothing():
    made = trainer(key=11, ledger=Ledger(owners=owners()))
    before = weights(made).clone()
    made.check(X, Y)
    assert (made.released, made._ledger.history()) == (0, ())
    assert torch.equal(before, weights(made))
    with pytest.raises(ValueError, match="one record per owner entry"):
        made.check(X[:7], Y[:7])


def test_a_run_makes_up_its_key_and_forgets_it(tmp_path):
    made = fit(tmp_path, key=None, steps=6)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    secret = (tmp_path / "key").read_text().removeprefix("aes ")
    assert secret not in "".join(path.read_bytes().decode("latin-1") for path in tmp_path.glob("checkpoint*"))
    again = fit(tmp_path, key=None, steps=0)
    assert torch.equal(weights(made), weights(again))
    done = fit(tmp_path, key=None)
    assert not (tmp_path / "key").exists()
    once_more = fit(tmp_path, key=None)
    assert torch.equal(weights(done), weights(once_more))
    assert once_more.released == 20
    assert once_more.curve.steps == (0, 4, 6, 8, 12, 16, 20)


def test_a_copy_of_a_run_is_not_gone_on_with(tmp_path):
    """Two runs with one key would add the same noise to sums that may differ."""
    fit(tmp_path / "run", key=None, steps=6)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with pytest.raises(ValueError, match="is a copy of a run"):
        fit(tmp_path / "copy", key=None)
    (tmp_path / "run").rename(tmp_path / "moved")
    fit(tmp_path / "moved", key=None, steps=1)
    shutil.rmtree(tmp_path / "moved")
    (tmp_path / "copy" / "place").unlink()  # the original is gone
    fit(tmp_path / "copy", key=None)
    assert not (tmp_path / "copy" / "key").exists()
    assert not (tmp_path / "copy" / "place").exists()


def test_another_key_or_plan_or_data_is_refused(tmp_path):
    fit(tmp_path, steps=6)
    with pytest.raises(ValueError, match="key must be the one"):
        fit(tmp_path, key=12)
    made = trainer(key=11)
    made._course = PlanSequence((plan_scale(owners(), steps=20, expected_batch=31, clip_norm=0.5),))
    with pytest.raises(ValueError, match="another plan"):
        made.fit(X, Y, run=tmp_path, progress=False)
    made = trainer(key=11)
    made.fit(X, Y, run=tmp_path, steps=2, checkpoint_every=5, progress=False)
    with Run(tmp_path) as place:
        place.drop_after(6)
    with pytest.raises(JobMismatch, match="another sum"):
        trainer(key=11).fit(X + 1, Y, run=tmp_path, progress=False)


def test_a_run_goes_on_with_what_it_was_begun_with(tmp_path):
    fit(tmp_path, steps=6)
    for change, message in (
        (dict(tail=lambda plan: LinearTail(plan.tail_length(0.3))), "tail must be that of the run"),
        (dict(clipping=ClipToShare()), "clipping must be that of the run.*ScaleClipped.*, got ClipToShare"),
        (dict(optimizer=lambda parameters: torch.optim.Adam(parameters)), "optimizer must be .*SGD.*, got Adam"),
        (dict(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01)), "lr=0.5.*, got SGD.*lr=0.01"),
    ):
        with pytest.raises(ValueError, match=message):
            trainer(key=11, **change).fit(X, Y, run=tmp_path, progress=False)


def test_one_process_at_a_time(tmp_path):
    with Run(tmp_path), pytest.raises(BlockingIOError, match="another process trains in"):
        fit(tmp_path)


def test_a_run_needs_budgets_or_a_ledger(tmp_path):
    plan = Plan(
        sample_rates=[0.5, 0.5], sensitivities=[1, 1], sizes=np.unique(LABELS, return_counts=True)[1], noise_scale=1,
        steps=3, labels=["open", "strict"],
    )  # fmt: skip
    made = trainer()
    bare = type(made)(plan, made.model, made._gradients.loss, made.optimizer, owners=LABELS)
    with pytest.raises(ValueError, match="a run needs a ledger"):
        bare.fit(X, Y, run=tmp_path, progress=False)


def test_checkpoints_hold_no_code(tmp_path):
    fit(tmp_path, steps=1)
    path = next(tmp_path.glob("checkpoint-0-1.pt"))
    assert Checkpoint.from_file(path).step == 1

    class Evil:
        def __reduce__(self):
            return print, ("ran",)

    torch.save({"model": Evil()}, path)
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        fit(tmp_path)


def test_more_budget_is_used_by_what_remains(tmp_path):
    fit(tmp_path, steps=10)
    made = trainer(key=11)
    more = owners(strict=4.0)
    plan = made.revise(more, run=tmp_path)
    assert plan.steps == 10
    again = trainer(key=11)
    again.fit(X, Y, held_out=HELD_OUT, run=tmp_path, checkpoint_every=5, progress=False)
    assert again.steps_done == 20
    spent = Ledger(tmp_path / "ledger").spent()
    assert 2.0 < spent["strict"] <= 4.0
    assert 5.5 < spent["open"] <= 6.0
    assert again.curve.steps[-1] == 20


def test_a_revised_run_is_resumed_too(tmp_path):
    for name in ("one", "two"):
        fit(tmp_path / name, steps=10)
        trainer(key=11).revise(owners(strict=4.0), run=tmp_path / name)
    whole = fit(tmp_path / "one")
    fit(tmp_path / "two", steps=3)
    assert torch.equal(weights(whole), weights(fit(tmp_path / "two")))


def test_less_budget_takes_the_run_back_to_the_step_that_the_plan_names(tmp_path):
    made = fit(tmp_path)
    less = owners(strict=1.2)
    with pytest.raises(AlreadySpent) as refusal:
        made.plan.revise(19, less)
    target = refusal.value.last_step
    assert 5 < target < 19
    at_target = trainer(key=11)
    at_target.fit(X, Y, steps=target, progress=False)

    back = trainer(key=11)
    (tmp_path / "model.pt").write_text("made of the last checkpoint")
    plan = back.revise(less, X, Y, run=tmp_path)
    assert back.steps_done == target
    assert plan.steps == 20 - target
    assert torch.equal(weights(back), weights(at_target))
    assert all(json.loads(line)["step"] <= target for line in (tmp_path / "log.jsonl").read_text().splitlines())
    assert not (tmp_path / "model.pt").exists()
    assert max(steps_in(tmp_path / "tensorboard")) <= target
    back.fit(X, Y, run=tmp_path, progress=False)
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.spent()["strict"] <= 1.2
    assert json.loads(ledger.to_json())["undone"]
    assert ledger.spent()["open"] <= 6.0


def steps_in(directory):
    """Read the steps of all event files, record by record: length, checksum, event, checksum."""
    for path in directory.iterdir():
        content = path.read_bytes()
        while content:
            size = int.from_bytes(content[:8], "little")
            yield Event.FromString(content[12 : 12 + size]).step
            content = content[16 + size :]


def test_a_killed_run_pays_for_what_it_made_whatever_happens_to_budgets(tmp_path):
    """Results of steps after the last checkpoint may have been seen, so a revision must not make them free."""
    for data in ((), (X, Y)):
        run = tmp_path / str(len(data))
        fit(run, steps=10)
        fit(run, steps=3)
        with Run(run) as place:
            place.drop_after(10)  # as if killed at step 13
        spent = Ledger(run / "ledger").spent()
        made = trainer(key=11)
        plan = made.revise(owners(), *data, run=run)
        assert plan.steps == 7
        assert made.steps_done == 13
        left = Ledger(run / "ledger").spent()
        assert [row["steps"] for row in json.loads(Ledger(run / "ledger").to_json())["undone"]] == [2]
        assert 0 < left["strict"] < spent["strict"]
        made.fit(X, Y, run=run, progress=False)
        assert Ledger(run / "ledger").spent()["strict"] <= 2.0
        assert made.steps_done == 20
        with pytest.raises(AlreadySpent) as refusal:
            made.plan.revise(7, owners(strict=1.9))
        made.revise(owners(strict=1.9), *data, run=run)  # the steps that were lost count
        assert made.steps_done <= refusal.value.last_step
        assert Ledger(run / "ledger").spent()["strict"] <= 1.9


def test_a_run_does_not_begin_in_the_middle(tmp_path):
    made = trainer(key=11)
    made.fit(X, Y, steps=2, progress=False)
    made.revise(owners(strict=3.0))
    with pytest.raises(ValueError, match="begins with the first step"):
        made.fit(X, Y, run=tmp_path, progress=False)


def test_a_revision_in_memory_pays_for_the_steps_that_were_made():
    ledger = Ledger(owners=owners())
    made = trainer(ledger=ledger)
    made.fit(X, Y, steps=10, progress=False)
    made.revise(owners(strict=3.0))
    made.fit(X, Y, progress=False)
    assert 2.5 < ledger.spent()["strict"] <= 3.0


def test_a_repeated_run_in_memory_keeps_what_was_made_before():
    """A second trainer with the same key repeats the first one: what that one made further is not free."""
    ledger = Ledger(owners=owners())
    trainer(ledger=ledger, key=5).fit(X, Y, steps=15, progress=False)
    again = trainer(ledger=ledger, key=5)
    again.fit(X, Y, steps=3, progress=False)
    plan = again.revise(owners(strict=2.5))
    assert plan.steps == 5
    assert ledger.segments("strict")[0][2] == 15


def test_a_revision_that_fails_half_way_leaves_nothing_unpaid(monkeypatch):
    ledger = Ledger(owners=owners())
    made = trainer(ledger=ledger, charge_steps=20)
    made.fit(X, Y, steps=2, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "grant", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            made.revise(owners(strict=3.0))
    made.fit(X, Y, progress=False)
    assert sum(steps for _, _, steps in ledger.segments("strict")) == made.released == 20


def test_nothing_in_a_run_tells_how_long_steps_took(tmp_path):
    fit(tmp_path, steps=6)
    rows = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert all("time" not in row for row in rows if row["kind"] == "bind")
    assert sum(row["kind"] == "bind" for row in rows) == 6
    content = next((tmp_path / "tensorboard").iterdir()).read_bytes()
    fit(tmp_path / "again", steps=6)
    assert next((tmp_path / "again" / "tensorboard").iterdir()).read_bytes() == content


def test_drafts_of_a_killed_process_are_removed_and_nothing_else(tmp_path):
    for name in (".plan-0.json.0123abcd.draft", ".bashrc.original", ".hidden.12345678"):
        (tmp_path / name).touch()
    with Run(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {".bashrc.original", ".hidden.12345678", "lock"}


def test_without_data_a_run_goes_back_to_a_checkpoint(tmp_path):
    fit(tmp_path, steps=18)
    back = trainer(key=11)
    back.revise(owners(strict=1.2), run=tmp_path)
    assert back.steps_done % 5 == 0
    back.fit(X, Y, run=tmp_path, progress=False)
    assert back.steps_done == 20
    assert Ledger(tmp_path / "ledger").spent()["strict"] <= 1.2


def test_revision_in_memory():
    made = trainer()
    made.fit(X, Y, steps=10, progress=False)
    with pytest.raises(AlreadySpent):
        made.revise(owners(strict=0.1))
    before = Inspection(made).tail.length
    made.revise(owners(strict=3.0))
    assert Inspection(made).tail.length != before
    made.fit(X, Y, progress=False)
    assert made.steps_done == 20


def test_noise_of_a_revision_is_its_own(tmp_path):
    fit(tmp_path, steps=10)
    made = trainer(key=11)
    jobs = {made.mechanism.job}
    for strict in (3.0, 4.0):
        made.revise(owners(strict=strict), run=tmp_path)
        jobs.add(made.mechanism.job)
    assert len(jobs) == 3


@pytest.mark.parametrize(
    ("every", "epsilon", "given"),
    [
        (10, "1.2", "data"),
        pytest.param(1, "1.2", "data", marks=pytest.mark.long),
        pytest.param(1, "1.2", "nothing", marks=pytest.mark.long),
        pytest.param(1, "4.0", "data", marks=pytest.mark.long),
    ],
)
def test_a_revision_that_is_killed_anywhere_is_finished_by_the_next_command(tmp_path, every, epsilon, given):
    """Killed between the new grant and its checkpoint, a run said BudgetExceeded, whatever it was asked."""
    script = Path(__file__).parents[1] / "support" / "killed_worker.py"
    subprocess.run([sys.executable, script, "revise", tmp_path, str(every), epsilon, given], check=True)

    def end_of(name):
        with Run(tmp_path / name) as place:
            last = place.latest()
        return last.step, last.revision, weights_of(last.model), Ledger(tmp_path / name / "ledger").spent()

    unrevised, revised = end_of("unrevised"), end_of("revised")
    numbers = [path.name for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert len(numbers) > 9 / every
    finished = 0
    for number in numbers:
        assert not (tmp_path / number / "revising.json").exists()
        trained = end_of(f"{number}-fit")
        assert trained[0] == 20
        assert trained[3]["strict"] <= (2.0 if trained[1] == 0 else float(epsilon))
        finished += trained[1] == 1
        if trained[1] == 0:  # nothing was begun yet
            assert trained == unrevised
        if given == "data":
            assert trained in (unrevised, revised)
            assert end_of(number) == revised
        else:  # with the data, `fit` repeats the steps that `revise` without them leaves out
            assert end_of(number)[:2] == revised[:2]
    assert len(numbers) - 2 <= finished < len(numbers)  # all but a kill before the first durable change


def weights_of(model):
    return torch.cat([value.ravel() for value in model.values()]).tolist()


@pytest.mark.parametrize("in_a_run", [False, True])
def test_a_revision_keeps_steps_of_other_threads_out(tmp_path, monkeypatch, in_a_run):
    """The new plan is made while no other thread can begin a step: each would be charged by one of two plans."""
    made, free, original = trainer(), [], Plan.revise
    made.fit(X, Y, steps=5, progress=False, run=tmp_path if in_a_run else None)

    def step_could_begin():
        free.append(made._passes.acquire(blocking=False))

    def revise(*of):
        other = threading.Thread(target=step_could_begin)
        other.start()
        other.join()
        return original(*of)

    monkeypatch.setattr(Plan, "revise", revise)
    made.revise(owners(strict=3.0), run=tmp_path if in_a_run else None)
    assert set(free) == {False}
