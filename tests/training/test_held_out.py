"""Training records that are given as held-out records.

The attacks succeed on 09c50e1: whatever shared its records with the training data was evaluated as held-out data and
written into the log, the learning curve and TensorBoard as public.
"""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset, random_split
from training_worker import HELD_OUT, LABELS, X, Y, trainer
from typer.testing import CliRunner

from inosgm import datasets
from inosgm.cli.program import app
from inosgm.training.curve import LearningCurve
from inosgm.training.metrics import Evaluation
from inosgm.training.runlog import RunLog

N = len(Y)


class Pairs(Dataset):
    """A data set of one's own that holds its columns."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.as_tensor(self.inputs[index]), int(self.targets[index])


class Changed(Dataset):
    """A data set of one's own that changes the records of another one."""

    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        inputs, target = self.records[index]
        return 2 * inputs, target


class Picked(Dataset):
    """A data set of one's own that picks records of another one."""

    def __init__(self, records, index):
        self.records, self.index = records, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, place):
        return self.records[self.index[place]]


def tensors(inputs=X, targets=Y):
    return TensorDataset(torch.from_numpy(inputs), torch.from_numpy(targets))


def mapped(folder):
    """Map the inputs from a file, anew each time."""
    if not (folder / "x.npy").exists():
        np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


WINDOWS = np.lib.stride_tricks.sliding_window_view(np.arange(200, dtype=np.float32), 6)
"""Records that overlap: what one says, the next ones say as well."""
SET, LISTS = tensors(), Pairs(list(torch.from_numpy(X)), Y.tolist())
FRAME = pd.DataFrame(X).assign(note="text")
CYCLE = Pairs(X, Y)
CYCLE.itself = [CYCLE] * N

SHARED = {
    "the same arrays": lambda _: ((X, Y), (X, Y)),
    "a part of them": lambda _: ((X, Y), (X[:30], Y[:30])),
    "one record of them": lambda _: ((X[:41], Y[:41]), (X[40:], Y[40:])),
    "the inputs only": lambda _: ((X, Y), (X, Y.copy())),
    "the targets only": lambda _: ((X, Y), (X + 1, Y)),
    "every second of every third": lambda _: ((X[::3], Y[::3]), (X[::2], Y[::2].copy())),
    "backwards": lambda _: ((X, Y), (X[::-1], Y[::-1].copy())),
    "columns of a table": lambda _: (({"a": X[:, :3], "b": X[:, 3:]}, Y), ({"a": X[:, :3]}, Y.copy())),
    "tensors of the arrays": lambda _: ((X, Y), tuple(tensors().tensors)),
    "a view in another shape": lambda _: ((X, Y), (torch.from_numpy(X).view(-1, 2, 3), torch.from_numpy(Y.copy()))),
    "windows of one series": lambda _: ((WINDOWS[:80], Y), (WINDOWS[80:90], np.zeros(10))),
    "the same file": lambda folder: ((mapped(folder), Y), (mapped(folder)[:30], Y[:30].copy())),
    "tensors of the same file": lambda folder: (
        (mapped(folder), Y),
        (torch.from_numpy(np.load(folder / "x.npy", mmap_mode="c")), Y.copy()),
    ),
    "the same table": lambda _: ((FRAME, Y), (FRAME, Y.copy())),
    "rows of the table": lambda _: ((FRAME, Y), (FRAME.iloc[:30], Y[:30].copy())),
    "a column of the table": lambda _: ((FRAME, Y), (FRAME[0], Y.copy())),
    "the same list": lambda _: ((X, LISTS.targets), (X + 1, LISTS.targets)),
    "records of a list": lambda _: ((LISTS.inputs, Y), (LISTS.inputs[:30], Y[:30].copy())),
    "tensors in two lists": lambda _: ((list(torch.from_numpy(X)), Y), (list(torch.from_numpy(X))[:9], Y[:9].copy())),
    "the same data set": lambda _: ((SET,), (SET,)),
    "a subset of it": lambda _: ((SET,), (Subset(SET, range(30)),)),
    "a subset of a subset": lambda _: ((Subset(SET, range(40)),), (Subset(Subset(SET, range(30, 80)), [0, 9]),)),
    "a subset counted from the end": lambda _: ((Subset(SET, [N - 1]),), (Subset(SET, [-1, 3]),)),
    "subsets of two data sets of the same tensors": lambda _: (
        (Subset(tensors(), range(40)),),
        (Subset(tensors(), range(39, 80)),),
    ),
    "a subset of the arrays": lambda _: ((X, Y), (Subset(tensors(), [5]),)),
    "a part of a concatenation": lambda _: ((ConcatDataset([tensors(X + 1, Y.copy()), SET]),), (SET,)),
    "the second part of it": lambda _: (
        (Subset(ConcatDataset([tensors(X + 1, Y.copy()), SET]), [N]),),
        (Subset(SET, [0]),),
    ),
    "a stack": lambda _: ((StackDataset(X, Y),), (X, Y)),
    "a data set that holds the arrays": lambda _: ((Pairs(X, Y),), (Pairs(X, Y),)),
    "the arrays that it holds": lambda _: ((Pairs(X, Y),), (X[:30], Y[:30])),
    "a copy of the data set": lambda _: ((LISTS,), (copy.copy(LISTS),)),
    "the data set, changed": lambda _: ((LISTS,), (Changed(LISTS),)),
    "a subset, changed": lambda _: ((Subset(SET, range(40)),), (Changed(Subset(SET, range(39, 60))),)),
    "a data set that holds itself": lambda _: ((CYCLE,), (X, Y)),
}
FORTRAN, HALF = np.asfortranarray(X), torch.zeros(N, 6, dtype=torch.bfloat16)
APART = {
    "halves of one array": lambda _: ((X[:40], Y[:40]), (X[40:], Y[40:])),
    "every second record": lambda _: ((X[::2], Y[::2]), (X[1::2], Y[1::2])),
    "halves of an array by columns": lambda _: ((FORTRAN[:40], Y[:40]), (FORTRAN[40:], Y[40:])),
    "every fifth record of it": lambda _: ((FORTRAN[::5], Y[::5]), (FORTRAN[1::5], Y[1::5])),
    "tensors": lambda _: ((torch.from_numpy(X)[:40], Y[:40]), (torch.from_numpy(X)[40:], Y[40:])),
    "half precision": lambda _: ((HALF[:40], Y[:40]), (HALF[40:], Y[40:])),
    "parts of a file": lambda folder: ((mapped(folder)[:40], Y[:40]), (mapped(folder)[40:], Y[40:])),
    "rows of one table": lambda _: ((FRAME.iloc[:40], Y[:40]), (FRAME.iloc[40:], Y[40:])),
    "rows by a mask": lambda _: ((FRAME[FRAME[0] > 0], Y[:40]), (FRAME[FRAME[0] <= 0], Y[40:])),
    "halves of a list": lambda _: ((LISTS.inputs[:40], Y[:40]), (LISTS.inputs[40:], Y[40:])),
    "numbers in lists": lambda _: ((X[:40], [0, 1] * 20), (X[40:], [0, 1] * 20)),
    "a random split": lambda _: ([one] for one in random_split(SET, [60, 20])),
    "subsets of two data sets of the same tensors": lambda _: (
        (Subset(tensors(), range(40)),),
        (Subset(tensors(), range(40, 80)),),
    ),
    "subsets by columns": lambda _: (
        (Subset(TensorDataset(torch.from_numpy(FORTRAN), torch.from_numpy(Y)), range(40)),),
        (Subset(TensorDataset(torch.from_numpy(FORTRAN), torch.from_numpy(Y)), range(40, 80)),),
    ),
    "the other part of a concatenation": lambda _: (
        (Subset(ConcatDataset([tensors(X + 1, Y.copy()), SET]), range(N)),),
        (SET,),
    ),
    "what picks from one data set": lambda _: ((Picked(LISTS, range(40)),), (Picked(LISTS, range(40, 80)),)),
    "an expanded constant": lambda _: (
        (X[:40], torch.zeros(1).expand(40)),
        (X[40:], torch.zeros(1).expand(40)),
    ),
    "equal values": lambda _: ((X, Y), (X.copy(), Y.copy())),
    "no records": lambda _: ((X, Y), (X[:0], Y[:0])),
    "windows with a gap": lambda _: ((WINDOWS[:80], Y), (WINDOWS[85:95], np.zeros(10))),
}


def share_records(*collections):
    """Import what the attacked version does not have when it is needed, so that the other tests run there."""
    from inosgm._internal.overlap import share_records

    return share_records(*collections)


@pytest.mark.parametrize("case", SHARED)
def test_shared_records_are_seen(case, tmp_path):
    data, held_out = map(tuple, SHARED[case](tmp_path))
    assert share_records(data, held_out)
    assert share_records(held_out, data)


@pytest.mark.parametrize("case", APART)
def test_other_records_are_not(case, tmp_path):
    data, held_out = map(tuple, APART[case](tmp_path))
    assert not share_records(data, held_out)
    assert not share_records(held_out, data)


def test_tables_of_many_columns_are_compared():
    wide = pd.DataFrame(np.zeros((20, 300)))
    assert not share_records(wide.iloc[:10], wide.iloc[10:])
    assert share_records(wide.iloc[:11], wide.iloc[10:])


HELD = {
    "arrays": (X[:30], Y[:30]),
    "tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "arrays and owners": (X, Y, LABELS),
    "data set": tensors(),
    "data set and owners": (Subset(tensors(), range(30)), LABELS[:30]),
}


@pytest.mark.parametrize("form", HELD)
def test_fit_refuses_training_records_as_held_out_ones(form, tmp_path):
    made = trainer()
    with pytest.raises(ValueError, match="held_out must hold no training records"):
        made.fit(X, Y, held_out=HELD[form], run=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    assert not made.steps_done


def test_a_run_that_goes_on_or_has_ended_refuses_them_as_well(tmp_path):
    trainer(key=1).fit(X, Y, held_out=HELD_OUT, run=tmp_path, steps=10, progress=False)
    with pytest.raises(ValueError, match="held_out must hold no training records"):
        trainer(key=1).fit(X, Y, held_out=(X, Y), run=tmp_path, progress=False)
    trainer(key=1).fit(X, Y, held_out=HELD_OUT, run=tmp_path, progress=False)
    before = (tmp_path / "log.jsonl").read_bytes()
    with pytest.raises(ValueError, match="held_out must hold no training records"):
        trainer(key=1).fit(X, Y, held_out=(X, Y), run=tmp_path, progress=False)
    assert (tmp_path / "log.jsonl").read_bytes() == before


def test_halves_of_one_array_are_training_and_held_out_records(tmp_path):
    both, targets = np.concatenate([X, HELD_OUT[0]]), np.concatenate([Y, HELD_OUT[1]])
    made = trainer(key=1)
    curve = made.fit(both[:N], targets[:N], held_out=(both[N:], targets[N:], LABELS[:30]), run=tmp_path, progress=False)
    apart = trainer(key=1).fit(X, Y, held_out=HELD_OUT, progress=False)
    assert curve.to_json() == apart.to_json()
    assert not made.evaluate(both[N:], targets[N:]).private
    assert "private" not in (tmp_path / "log.jsonl").read_text()


@pytest.mark.parametrize("how", ["fit", "steps"])
def test_evaluations_of_training_records_are_private(how, tmp_path):
    made = trainer()
    if how == "fit":
        made.fit(X, Y, steps=2, progress=False)
    else:
        made.step(X, Y)
    found = made.evaluate(X[:20], Y[:20], owners=LABELS[:20])
    assert found.private
    assert Evaluation.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    with RunLog(tmp_path) as log:
        with pytest.raises(ValueError, match="evaluation is private, computed on training records"):
            log.write(2, evaluation=found)
        log.write_private(2, evaluation=found)
        assert log.rows() == []
    with pytest.raises(ValueError, match="evaluation is private, computed on training records"):
        LearningCurve().append(2, found)
    public = made.evaluate(*HELD_OUT[:2], owners=HELD_OUT[2])
    assert not public.private
    assert "private" not in public.to_dict()


def test_owners_do_not_make_diagnostics_of_training_records_public(tmp_path):
    made = trainer()
    made.fit(X, Y, steps=1, progress=False)
    found = made.diagnose(X[:40], Y[:40], owners=LABELS[:40])
    assert found.private
    assert made.diagnose(Subset(tensors(), range(40)), owners=LABELS[:40]).private
    with RunLog(tmp_path) as log, pytest.raises(ValueError, match="diagnostics is private"):
        log.write(1, diagnostics=found)
    assert not made.diagnose(*HELD_OUT[:2], owners=HELD_OUT[2]).private


def test_a_data_set_refuses_training_records_as_held_out_ones():
    options = {"name": "own", "classes": ("a", "b", "c")}
    for x_test, y_test in ((X, Y), (X[:9], Y[:9].copy()), (X[:9].copy(), Y[:9])):
        with pytest.raises(ValueError, match="x_test and y_test of own must hold no training records"):
            datasets.Dataset(x=X, y=Y, x_test=x_test, y_test=y_test, **options)
    datasets.Dataset(x=X[:40], y=Y[:40], x_test=X[40:], y_test=Y[40:], **options)


LOADER = """
import numpy as np
from inosgm.datasets import Dataset, load
def own(root):
    data = load("digits")
    return Dataset(name="own", x=data.x, y=data.y, x_test=data.x[:50], y_test=data.y[:50], classes=data.classes)
"""
CONFIG = """
data: {{name: "held_out_loader:own"}}
owners: {{fractions: [0.5, 0.5], epsilon: [1, 10], delta: 1e-5}}
model: {{name: logistic_regression}}
plan: {{method: sample, steps: 3, expected_batch: 50, clip_norm: 1.0}}
optimizer: {{name: SGD, lr: 1.0}}
run: {run}
"""


@pytest.mark.parametrize("command", [["train"], ["train", "--seeds", "2", "--store", "store"], ["compare"], ["sweep"]])
def test_commands_refuse_a_loader_that_gives_training_records_as_held_out_ones(command, tmp_path, monkeypatch):
    (tmp_path / "held_out_loader.py").write_text(LOADER)
    (tmp_path / "own.yaml").write_text(
        CONFIG.format(run=tmp_path / "run") if command == ["train"] else CONFIG.format(run="null")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    more = {
        "compare": ["--methods", "dp-sgd,idp-sgd", "--store", "store"],
        "sweep": ["--grid", "optimizer.lr=1,2", "--store", "store"],
    }
    result = CliRunner().invoke(app, [command[0], "own.yaml", *command[1:], *more.get(command[0], [])])
    assert isinstance(result.exception, ValueError), result.output
    assert "x_test and y_test of own must hold no training records" in str(result.exception)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "store").exists()
