"""Many seeds as jobs: equal to single runs, bit for bit, however they are stopped, and charged once."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from seeds_worker import SEEDS, config

from inosgm import BudgetExceeded, Ledger, Owners
from inosgm import experiments as runs
from inosgm._internal.source_digest import digest_of
from inosgm.accounting import ACCOUNTANTS
from inosgm.experiments import code_version, plans
from inosgm.experiments.attempts import threads
from inosgm.experiments.config import FileOwners
from inosgm.experiments.task import TrainingTask, spec_of
from inosgm.jobs import Executor, Outcome, ProcessExecutor, Stopped, Store
from inosgm.jobs.work import PrepaidLedger
from inosgm.training.curve import LearningCurve
from inosgm.training.trainer import Trainer

TESTS = Path(__file__).parents[1] / "support"


class MemoryAttempt:
    """Attempts at a job whose checkpoints are kept in memory, and which are asked to stop after some steps."""

    def __init__(self, task, spec, stops=()):
        self.number, self.key, self._paid = 1, 5, task.cost(spec)
        self.saved, self.stopping = {}, lambda: MADE[0] in stops

    @property
    def ledger(self):
        return PrepaidLedger(self._paid)  # a new one for every attempt

    def latest(self):
        return self.saved[max(self.saved)] if self.saved else None

    def save(self, step, content):
        self.saved[step] = content


MADE = [0]
"""How many steps the latest trainer has made."""


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Count the steps of trainers."""
    original = Trainer.step

    def step(self, *data):
        release = original(self, *data)
        MADE[0] = self.released
        return release

    MADE[0] = 0
    monkeypatch.setattr(Trainer, "step", step)


def same(one, other):
    assert json.dumps(one.values, sort_keys=True) == json.dumps(other.values, sort_keys=True)
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        np.testing.assert_array_equal(array, other.arrays[name])


def results(store):
    """Return the results of a store in the order of their indices: ids differ from store to store."""
    return list(Store(store).results().values())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A store of seeds that nobody disturbed."""
    store = tmp_path_factory.mktemp("undisturbed")
    found = runs.train_seeds(config(), SEEDS, store=store, progress=False)
    assert (len(found.outcome.done), found.outcome.failed, found.outcome.left) == (SEEDS, {}, ())
    return store


@pytest.fixture(scope="module")
def task():
    return TrainingTask(runs.read(config()))


def test_a_job_equals_the_run_with_its_seed(undisturbed):
    store = Store(undisturbed)
    specs = store.specs()
    assert len({spec.seed for spec in specs.values()}) == SEEDS
    for job, result in store.results().items():
        one = runs.train(config(seed=specs[job].seed))
        for name, value in one.training.trainer.model.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), result.arrays[name])
        assert LearningCurve.from_json(json.dumps(result.values["curve"])) == one.curve
        assert result.values["evaluation"] == one.evaluation.to_dict()
        assert result.values["owners"] == one.to_dict()["owners"]
        assert [row["step"] for row in result.values["log"]] == [0, 3, 6, 8]
    assert len(store.charges()) == SEEDS


def test_another_process_gives_what_this_one_gives(undisturbed, tmp_path):
    """Several at once: `test_serial_processes_and_ray_agree_bit_for_bit_and_the_ray_is_left_as_it_was`."""
    runs.train_seeds(config(), SEEDS, store=tmp_path, executor=ProcessExecutor(1), progress=False)
    for one, other in zip(results(tmp_path), results(undisturbed), strict=True):
        same(one, other)


@pytest.mark.long
def test_killed_at_any_moment_the_same_command_finishes_what_is_missing(undisturbed, tmp_path):
    places = [
        ("inosgm.jobs.store:Store.charge", 1),
        ("inosgm.training.trainer:Trainer.step", 3),
        ("inosgm.experiments.attempts:AttemptRun.save", 3),
        ("inosgm.jobs.store:Store.commit", 1),
        ("inosgm.jobs.store:Store.cleanup", 1),
        ("inosgm.training.runlog:RunLog.write", 2),
    ]
    arguments = [str(part) for place in places for part in place]
    command = [sys.executable, TESTS / "seeds_worker.py", tmp_path, *arguments]
    subprocess.run(command, check=True)
    found = runs.train_seeds(config(), SEEDS, store=tmp_path, progress=False, attempts=9)
    assert len(found.outcome.done) == len(found.store.charges()) == SEEDS
    for one, other in zip(results(tmp_path), results(undisturbed), strict=True):
        same(one, other)


@pytest.mark.parametrize("stops", [(1,), (6,), (1, 2, 3, 4, 5, 6, 7, 8)], ids=str)
@pytest.mark.parametrize("every", [2, None])
def test_stopping_and_going_on_changes_nothing(stops, every, task):
    spec = spec_of(config(training={"checkpoint_every": every}), 1, data_fingerprint="")
    whole = task.run(spec, MemoryAttempt(task, spec))
    attempt = MemoryAttempt(task, spec, stops)
    for step in [stop for stop in stops if stop < 8]:
        MADE[0] = 0
        with pytest.raises(Stopped):
            task.run(spec, attempt)
        assert max(attempt.saved) == MADE[0] == step
    same(task.run(spec, attempt), whole)


class Killed(BaseException):
    """Ends an attempt as the end of its process would."""


def test_what_was_told_is_in_the_store_and_never_computed_again(task):
    spec = spec_of(config(training={"checkpoint_every": None}), 1, data_fingerprint="")  # at most one in ten seconds
    whole = task.run(spec, MemoryAttempt(task, spec))
    attempt, told, made = MemoryAttempt(task, spec), [], []

    def watch(curve):
        told.append(curve.steps[-1])
        if told == [3, 6]:
            raise Killed

    with pytest.raises(Killed):
        task.run(spec, attempt, watch=watch)
    assert max(attempt.saved) == told[-1] == MADE[0] == 6
    attempt.stopping = lambda: bool(made.append(MADE[0]))
    same(task.run(spec, attempt, watch=watch), whole)
    assert (sorted(set(made)), told) == ([7, 8], [3, 6, 8])


@pytest.mark.parametrize("said", ["0", "", "many", "-1", "1.5", "1,4"])
def test_what_is_no_number_of_threads_counts_as_one(said, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    with threads():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_a_job_has_one_thread_and_gives_the_others_back(task, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    spec = spec_of(config(), 0, data_fingerprint="")
    attempt, seen = MemoryAttempt(task, spec), []
    attempt.stopping = lambda: bool(seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        task.run(spec, attempt)
        assert torch.get_num_threads() == 2
        assert set(seen) == {1}
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        seen.clear()
        task.run(spec, attempt)
        assert set(seen) <= {2}
    finally:
        torch.set_num_threads(before)


def test_equal_plans_are_made_once_and_sent_to_workers(tmp_path, monkeypatch):
    made = []
    planned = plans.planned
    monkeypatch.setattr(plans, "planned", lambda *arguments: made.append(1) or planned(*arguments))
    study = runs.SeedStudy(config(owners={"by": "class"}, data={"subset": 300}), 6, store=tmp_path)
    kinds = {tuple(study.task.owners(spec).sizes.tolist()) for spec in study.specs}
    assert 1 < len(kinds) == len(made)  # subsets hold more or fewer records of a class
    sent = pickle.loads(pickle.dumps(study.task))
    for spec in study.specs[:2]:
        sent.run(spec, MemoryAttempt(sent, spec))
    assert len(made) == len(kinds)


@pytest.fixture
def filed(tmp_path, monkeypatch):
    """A configuration whose data and owners come from files of the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    whole = runs.read(config()).datasets["breast_cancer"]
    np.savez(tmp_path / "data.npz", x=whole.x, y=whole.y, x_test=whole.x_test, y_test=whole.y_test)
    (tmp_path / "own_data.py").write_text(
        "import numpy as np\nfrom inosgm.datasets import Dataset\n"
        "def load(root):\n    return Dataset(name='own', classes=('a', 'b'), **np.load('data.npz'))\n"
    )
    for name, labels in (("owners.csv", whole.y), ("held_out.csv", whole.y_test)):
        rows = [f"{['left', 'right'][label]},{[5, 1][label]},1e-4" for label in labels.tolist()]
        (tmp_path / name).write_text("\n".join(["owner,epsilon,delta", *rows]) + "\n")
    owners = {"csv": "owners.csv", "held_out": "held_out.csv"}
    yield config().model_copy(
        update={
            "data": config().data.model_copy(update={"name": "own_data:load"}),
            "owners": FileOwners(**owners),
        }
    )
    sys.modules.pop("own_data", None)


def test_a_worker_needs_no_files(filed, tmp_path):
    study = runs.SeedStudy(filed, 2, store=tmp_path / "store")
    result = study.task.run(study.specs[1], MemoryAttempt(study.task, study.specs[1]))
    assert [owner["owner"] for owner in result.values["owners"]] == ["left", "right"]
    whole = runs.train(filed.model_copy(update={"seed": study.specs[1].seed}))
    assert whole.to_dict()["owners"] == result.values["owners"]
    buffers = []
    packed = pickle.dumps(study.task, protocol=5, buffer_callback=buffers.append)
    assert sum(len(buffer.raw()) for buffer in buffers) > len(packed)  # data lie beside it, for shared memory
    for name in ("owners.csv", "held_out.csv", "data.npz", "own_data.py"):
        (tmp_path / name).unlink()
    sent = pickle.loads(packed, buffers=[bytes(buffer.raw()) for buffer in buffers])  # bytes: cannot be written to
    same(sent.run(study.specs[1], MemoryAttempt(sent, study.specs[1])), result)


def test_the_fingerprint_covers_all_that_is_read(filed, tmp_path):
    store = Store(tmp_path / "store")
    seen = {store.fingerprint(runs.read(filed).parts(filed))}
    assert store.fingerprint(runs.read(filed).parts(filed)) in seen
    assert Store(tmp_path / "other").fingerprint(runs.read(filed).parts(filed)) not in seen
    changes = 0
    for name in ("owners.csv", "held_out.csv"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("left,", "lift,", 1))
        seen.add(store.fingerprint(runs.read(filed).parts(filed)))
        (tmp_path / name).write_text(text)
        changes += 1
    arrays = dict(np.load(tmp_path / "data.npz"))
    for name, array in arrays.items():
        changed = array.copy()
        changed.flat[-1] = 1 - changed.flat[-1]
        np.savez(tmp_path / "data.npz", **{**arrays, name: changed})
        seen.add(store.fingerprint(runs.read(filed).parts(filed)))
        changes += 1
    assert len(seen) == 1 + changes == 7


def test_a_store_belongs_to_one_configuration_data_key_and_code(filed, tmp_path, monkeypatch):
    store = tmp_path / "store"
    runs.train_seeds(filed, 1, store=store, progress=False)
    charged = len(Store(store).charges())

    def refusal(changed):
        with pytest.raises(ValueError, match="take another store") as caught:
            runs.train_seeds(changed, 2, store=store, progress=False)
        assert len(Store(store).charges()) == charged
        return str(caught.value)

    other = filed.model_copy(update={"plan": filed.plan.model_copy(update={"steps": 9}), "seed": 8})
    assert "differs in plan.steps (8 there, 9 here), seed (7 there, 8 here)" in refusal(other)
    assert "holds runs with another key" in refusal(filed.model_copy(update={"key": 2}))
    assert "holds runs with another key" in refusal(filed.model_copy(update={"key": None}))
    ledger = filed.model_copy(update={"ledger": "ledger"})
    assert f"another ledger (no ledger there, {tmp_path / 'ledger'} here)" in refusal(ledger)
    text = (tmp_path / "owners.csv").read_text()
    (tmp_path / "owners.csv").write_text(text.replace("right,1,", "right,2,"))
    assert "holds runs on other data" in refusal(filed)
    (tmp_path / "owners.csv").write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr(code_version, "_digest", lambda packages: "other")
        assert "was made by other code (0.1.0+" in refusal(filed)
    found = runs.train_seeds(filed, 2, store=store, progress=False)
    assert len(found.store.charges()) == 2


def test_code_of_ones_own_is_part_of_a_job(tmp_path, monkeypatch, task):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "own_models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("from torch import nn\n")
    made = config(model={"name": "own_models.net:make", "options": {}})
    code_version._digest.cache_clear()
    first = code_version.code_version(made)
    assert first != code_version.code_version(config())
    (package / "other.py").write_text("x = 1\n")
    assert code_version.code_version(made) == first  # a process has the code that it has imported
    code_version._digest.cache_clear()
    assert code_version.code_version(made) != first
    spec = spec_of(config(), 0, data_fingerprint="")
    monkeypatch.setattr(code_version, "_digest", lambda packages: "other")
    with pytest.raises(RuntimeError, match="this worker has other code than the command that made the job"):
        task.run(spec, MemoryAttempt(task, spec))
    with pytest.raises(ValueError, match="there is no module 'nowhere'"):
        digest_of(["nowhere"], [])


def test_runs_of_seeds_are_private_unless_a_key_is_given(tmp_path):
    made = config(key=None, training={"diagnostics": True})
    found = runs.train_seeds(made, 2, store=tmp_path / "one", progress=False)
    again = runs.train_seeds(made, 2, store=tmp_path / "two", progress=False)
    weights = [result.arrays["1.weight"] for store in (found, again) for result in store.store.results().values()]
    assert len({array.tobytes() for array in weights}) == 4
    for result in found.store.results().values():
        assert [row["step"] for row in result.values["log"] if "diagnostics" in row] == [0, 3, 6, 8]
        assert '"private": true' not in json.dumps(result.values)
    names = [path.name for path in (tmp_path / "one").rglob("*")]
    assert "key" not in names
    assert not [name for name in names if name.startswith("checkpoint")]


def test_a_shared_ledger_pays_for_all_runs_or_for_none(tmp_path):
    path = tmp_path / "ledger"
    made = config(ledger=str(path))
    with pytest.raises(BudgetExceeded) as caught:
        runs.train_seeds(made, 3, store=tmp_path / "store", progress=False)
    assert caught.value.__notes__[0].startswith("the ledger can pay for 1 of the 3 runs")
    assert not path.exists()
    owners = Owners(of_record=["benign", "malignant"], epsilon={"benign": 30, "malignant": 5}, delta=1e-4)
    Ledger(path, owners=owners, accountant=ACCOUNTANTS["rdp"])
    for seeds in (2, 3, 3):
        found = runs.train_seeds(made, seeds, store=tmp_path / "store", progress=False)
        ledger = Ledger(path, accountant=ACCOUNTANTS["rdp"])
        assert sorted(charge.fingerprint for charge in ledger.history()) == sorted(found.store.charges())
        assert sum(charge.steps for charge in ledger.history()) == seeds * 8
    study = runs.SeedStudy(made, 3, store=tmp_path / "store")
    (expense,) = study.expenses()
    together = dict(zip(expense.labels, expense.together, strict=True))
    assert ledger.spent() == pytest.approx(together)
    assert f"charged to {path}" in study.report()


def test_what_cannot_be_trained_is_said_before_anything_is_charged(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_mixing.py").write_text(
        "from torch import nn\n"
        "def make(*, classes, input_shape):\n"
        "    return nn.Sequential(nn.Linear(*input_shape, classes), nn.BatchNorm1d(classes))\n"
    )
    mixing = config(model={"name": "own_mixing:make", "options": {}})
    with pytest.raises(ValueError, match="model must process each record independently"):
        runs.train_seeds(mixing, 2, store=tmp_path / "store", progress=False)
    assert not (tmp_path / "store").exists()
    with pytest.raises(ValueError, match="seeds must be"):
        runs.train_seeds(config(), 0, store=tmp_path / "store")


def test_held_out_records_are_tried_before_anything_is_charged(filed, tmp_path):
    arrays = dict(np.load(tmp_path / "data.npz"))
    np.savez(tmp_path / "data.npz", **{**arrays, "x_test": arrays["x_test"][:, 1:]})
    with pytest.raises(ValueError, match=r"data: the model cannot be tried on the held-out records: .*shapes"):
        runs.train_seeds(filed, 2, store=tmp_path / "store", progress=False)
    assert not (tmp_path / "store").exists()


def test_the_records_of_every_seed_are_looked_at_before_anything_is_charged(tmp_path):
    few = {"data": {"subset": 3}, "plan": {"expected_batch": 1.0}, "training": {"diagnostics": True}, "seed": 0}
    runs.SeedStudy(config(**few), 1, store=tmp_path / "store")
    with pytest.raises(
        ValueError, match=r"training\.diagnostics: .* held-out records of (benign|malignant), who owns no"
    ):
        runs.SeedStudy(config(**few), 20, store=tmp_path / "store")
    assert not Store(tmp_path / "store").states()


class Elsewhere(Executor):
    """Stands for workers with other devices, which do nothing."""

    elsewhere = True

    def pool(self, task, store):
        raise AssertionError("nobody is needed")

    def run(self, task, specs, store, **options):
        return Outcome(done=(), failed={}, left=())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_must_be_there_for_who_trains_not_for_who_asks(tmp_path):
    with pytest.raises(ValueError, match=r"^training\.device: .*toaster"):
        runs.SeedStudy(config(training={"device": "toaster"}), 1, store=tmp_path / "store")
    study = runs.SeedStudy(config(training={"device": "cuda"}), 1, store=tmp_path / "store")
    for executor in (None, ProcessExecutor(1)):
        with pytest.raises(ValueError, match=r"^training\.device: .*CUDA"):
            study.run(executor, progress=False)
    assert not Store(tmp_path / "store").states()
    assert study.run(Elsewhere()).store.states().keys() == {study.specs[0].id}


def test_documents_are_written_beside_the_jobs(undisturbed):
    found = runs.Seeds(store=Store(undisturbed), outcome=None)
    assert found.write().seeds == SEEDS
    for name, start in (("summary.parquet", b"PAR1"), ("summary.svg", b"<?xml"), ("results.parquet", b"PAR1")):
        assert found.store.get(name).startswith(start)
