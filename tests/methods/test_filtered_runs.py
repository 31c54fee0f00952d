"""Training in which every record pays for itself: it goes on after a kill, and shows nobody what records have spent."""

import json
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from filter_worker import fit, trainer
from training_worker import X, Y, owners

from inosgm import Ledger, Plan, TrainingConfig, certify, plan_individual
from inosgm import experiments as runs
from inosgm.audit.mechanism_audit import audit_mechanism
from inosgm.experiments.methods import methods_of
from inosgm.experiments.task import TrainingTask, spec_of
from inosgm.jobs import Stopped
from inosgm.jobs.work import PrepaidLedger
from inosgm.mechanism.inspection import Inspection
from inosgm.planning.sequence import PlanSequence
from inosgm.training.run import RunFiles
from inosgm.training.trainer import Trainer

WORKER = Path(__file__).parents[1] / "support" / "filter_worker.py"
POINTS = [
    ("inosgm.ledger.ledger:Ledger.bind", 3),
    ("inosgm.training.run:Run.save", 2),
    ("inosgm.training.run:Run.drop_before", 2),
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


@pytest.mark.long
def test_killed_again_and_again_a_run_ends_as_if_it_had_not_been(tmp_path):
    whole = fit(tmp_path / "whole")
    command = [
        sys.executable,
        str(WORKER),
        str(tmp_path / "killed"),
        *(str(part) for point in POINTS for part in point),
    ]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert not ended.returncode, ended.stderr
    again = fit(tmp_path / "killed")
    assert torch.equal(weights(whole), weights(again))
    assert whole.curve == again.curve
    ledger = Ledger(tmp_path / "killed" / "ledger")
    assert [charge.spans for charge in ledger.history()] == [((0, 20),)]
    assert ledger.spent()["strict"] <= 2.0
    assert ledger.spent()["open"] <= 6.0
    assert (tmp_path / "whole" / "log.jsonl").read_text() == (tmp_path / "killed" / "log.jsonl").read_text()


def test_a_resumed_run_knows_what_every_record_has_spent_and_nobody_else_does(tmp_path):
    whole = trainer(key=11)
    whole.fit(X, Y, steps=10, progress=False)
    run = tmp_path / "run"
    fit(run, steps=10)
    again = trainer(key=11)
    again.fit(X, Y, steps=0, run=run, progress=False)
    spent = Inspection(again).filter().spent
    assert np.array_equal(Inspection(whole).filter().spent, spent)
    assert spent.max() > 0
    assert (Inspection(again).filter().bounds() == 0).any()  # some have left
    (kept,) = run.glob("checkpoint-*.pt")  # of three, one is left
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "spent" not in repr(RunFiles(run).latest())
    fit(run)
    (kept,) = run.glob("checkpoint-*.pt")
    assert RunFiles(run).latest().private is None
    secrets = spent[Inspection(again).filter().bounds() > 0]  # what has left has spent the public allowance
    digits = {repr(float(number)).encode() for number in secrets}
    raw = {np.float64(number).tobytes() for number in secrets}
    for file in (path for path in run.rglob("*") if path.is_file()):
        content = file.read_bytes()
        assert not any(secret in content for secret in digits | raw), file.name


def test_a_run_that_lost_what_records_have_spent_is_not_gone_on_with(tmp_path):
    fit(tmp_path, steps=10)
    (kept,) = tmp_path.glob("checkpoint-*.pt")
    content = torch.load(kept, weights_only=True)
    torch.save({**content, "private": None}, kept)
    with pytest.raises(ValueError, match="what its records have spent"):
        fit(tmp_path)


def test_a_later_stage_leaves_nothing_of_what_records_have_spent(tmp_path):
    first = plan_individual(owners(), steps=4, clip_norm=0.5, full_norm_fraction=0.5)
    every = {"sizes": first.sizes, "labels": first.labels, "sample_rates": [0.1, 0.1], "sensitivities": [1, 1]}
    second = Plan(noise_scale=100, steps=4, past=[first.segment()], **every)
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ledger = Ledger(owners=owners(strict=9.0, open_=9.0))
    made = Trainer(
        PlanSequence((first, second)), model, torch.nn.CrossEntropyLoss(), optimizer, owners=owners(), ledger=ledger
    )
    made.fit(X, Y, run=tmp_path, checkpoint_every=3, progress=False)
    assert [torch.load(path, weights_only=True)["private"] for path in tmp_path.glob("checkpoint-*.pt")] == [None]


def test_such_a_run_is_not_revised(tmp_path):
    ledger = Ledger(tmp_path / "ledger", owners=owners())
    made = trainer(key=11, ledger=ledger)
    made.fit(X, Y, steps=3, progress=False)
    with pytest.raises(ValueError, match="cannot be revised"):
        made.revise(owners(open_=8.0), X, Y)
    assert [charge.spans for charge in ledger.history()] == [((0, 20),)]


def test_gradients_move_sums_by_no_more_than_they_pay_for(monkeypatch):
    monkeypatch.setattr("inosgm.audit.canaries.EVALUATIONS", 40)
    made = trainer()
    made.fit(X, Y, steps=4, progress=False)
    assert 0.5 < certify(made, (X, Y), evaluations=60).ratio <= 1 + 1e-4  # float32
    found = audit_mechanism(trainer(), "strict", runs=1000, data=(X, Y), confidence=0.999)
    assert not found.contradicts
    assert found.epsilon > 0.5


CONFIG = {
    "data": {"name": "breast_cancer"},
    "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 1}, "delta": 1e-4},
    "model": {"name": "logistic_regression"},
    "plan": {"method": "sample", "steps": 12, "expected_batch": 64, "clip_norm": 2.0},
    "tail": {"kind": "linear", "fraction": 0.2},
    "optimizer": {"name": "SGD", "lr": 1.0},
    "training": {"max_physical_batch": 128},
}


class MemoryAttempt:
    """Attempts at a job whose checkpoints are kept in memory, and which stop after some steps each."""

    def __init__(self, task, spec, steps=100):
        self.number, self.key, self._paid = 1, 5, task.cost(spec)
        self.saved, self._steps = None, steps

    @property
    def ledger(self):
        return PrepaidLedger(self._paid)  # a new one for every attempt

    def stopping(self):
        self._left -= 1
        return self._left <= 0

    def latest(self):
        self._left = self._steps
        return self.saved

    def save(self, step, content):
        self.saved = content


@pytest.mark.parametrize("name", ["individual", "individual-ino"])
def test_a_job_that_was_stopped_ends_as_if_it_had_not_been(name, monkeypatch):
    config = methods_of(TrainingConfig.from_dict(CONFIG), [name])[name]
    task, kept = TrainingTask(runs.read(config)), []
    spec = spec_of(config, 0, data_fingerprint="made up")
    whole = task.run(spec, MemoryAttempt(task, spec))
    attempt = MemoryAttempt(task, spec, steps=5)
    load = Trainer._load
    monkeypatch.setattr(
        Trainer, "_load", lambda self, *of: (load(self, *of), kept.append(self.mechanism.spent_by_record))
    )
    again = None
    while again is None:
        with suppress(Stopped):
            again = task.run(spec, attempt)
    assert all(np.array_equal(whole.arrays[key], again.arrays[key]) for key in whole.arrays)
    assert whole.values == again.values
    assert [row["spent"] for row in again.values["owners"]] == pytest.approx([5, 1], rel=5e-3)
    assert len(kept) >= 2
    assert kept[-1].max() > kept[0].max() > 0
    text = json.dumps(again.values)
    assert not any(repr(float(number)) in text for spent in kept for number in spent[:99])
    assert again.values["evaluation"]["accuracy"] > 0.65  # the larger class has 0.63
