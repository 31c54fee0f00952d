"""Errors and warnings that training records cause: they show no value, no position, no length and no count of records.

The attacks succeed on 09c50e1: torch's own message showed the target that is no class where records come from a data
set, or the loss is a function of one's own; others showed how long a record of a batch is, how many records a batch
has, and what a file of records holds. Only the four cases of torch's losses for classes with columns passed there.
"""

import traceback
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from ipate_worker import config
from sklearn.utils import Bunch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from inosgm import INOSGM, Owners, Plan
from inosgm import experiments as runs
from inosgm.datasets import load, openml
from inosgm.datasets.tables import CTG_RANGES
from inosgm.mechanism.contributions import Cells, Dense
from inosgm.methods.asc import AdaptiveShares, plan_asc
from inosgm.training import BookKeeping, Functional, OneByOne, Trainer

N, SECRET, PLACE = 60, 7331, 37
DRAWN = np.random.default_rng(0)
X, Y = DRAWN.normal(size=(N, 6)).astype(np.float32), np.arange(N) % 3
BAD = np.where(np.arange(N) == PLACE, SECRET, Y)
EVERYBODY = Plan(sample_rates=[1.0], sensitivities=[1.0], sizes=[N], labels=["all"], noise_scale=1.0, steps=3)


class Pairs(Dataset):
    def __init__(self, inputs, targets):
        self._both = inputs, targets

    def __len__(self):
        return len(self._both[1])

    def __getitem__(self, index):
        inputs, targets = self._both
        return torch.as_tensor(inputs[index]), torch.as_tensor(targets[index])


def own(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def gathered(outputs, targets):
    return -outputs.log_softmax(1).gather(1, targets[:, None])[:, 0]


def ignoring(outputs, targets):
    return F.cross_entropy(outputs, targets, ignore_index=SECRET, reduction="none")


def two_tasks(outputs, targets):
    """A class, and a whole number that is no class."""
    return own(outputs[:, :3], targets[:, 0]) + (outputs[:, 3] - targets[:, 1]) ** 2


def trainer(loss, plan=EVERYBODY, outputs=3, **more):
    torch.manual_seed(0)
    model = nn.Linear(6, outputs)
    more = {"owners": ["all"] * N, **more}
    return Trainer(plan, model, loss, torch.optim.SGD(model.parameters(), lr=0.1), **more)


def said_by(error):
    """Return all that is printed of an error."""
    return "".join(traceback.format_exception(error.value))


FORMS = {"columns": lambda x, y: (x, y), "a data set": lambda x, y: (Pairs(x, y),)}
LOSSES = {
    "torch's": nn.CrossEntropyLoss(),
    "torch's function": F.cross_entropy,
    "of margins": nn.MultiMarginLoss(),
    "of one's own": own,
    "by an index": gathered,
}


@pytest.mark.parametrize("place", [0, PLACE])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_target_that_is_no_class_is_not_shown(loss, form, place):
    made = trainer(LOSSES[loss])
    data = FORMS[form](X, np.where(np.arange(N) == place, SECRET, Y))
    with pytest.raises(ValueError, match="targets must be classes 0 to 2, as the model gives 3 scores") as error:
        made.fit(*data, progress=False)
    assert str(SECRET) not in said_by(error)
    assert str(SECRET) not in repr(error.value.__context__)
    if form == "columns":  # all targets are looked at before anything is drawn
        assert not made.steps_done


@pytest.mark.parametrize("most", [None, 16])
@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
def test_no_engine_shows_it(engine, most):
    made = trainer(own, engine=engine, max_physical_batch=most)
    with pytest.raises(ValueError, match="targets must be classes 0 to 2") as error:
        made.step(Pairs(X, BAD))
    assert str(SECRET) not in said_by(error)


@pytest.mark.parametrize("form", FORMS)
def test_diagnostics_do_not_show_it(form):
    made = trainer(own)
    made.step(X, Y)
    with pytest.raises(ValueError, match="targets must be classes 0 to 2") as error:
        made.diagnose(*FORMS[form](X, BAD))
    assert str(SECRET) not in said_by(error)


def test_losses_that_steer_do_not_show_it():
    owners = Owners(of_record=np.arange(N) % 3, epsilon={0: 2.0, 1: 1.0, 2: 1.0}, delta=1e-5)
    plan = plan_asc(owners, steps=8, expected_batch=12, clip_norm=1.0, every=4)
    made = trainer(own, plan, owners=owners, steering=AdaptiveShares(plan, every=4, temperature=1.0), key=0)
    made.check(X, Y)
    with pytest.raises(ValueError, match="targets must be classes 0 to 2") as error:
        made._gradients.losses(Pairs(X, BAD), np.arange(N))
    assert str(SECRET) not in said_by(error)


@pytest.mark.parametrize("form", FORMS)
def test_targets_that_the_loss_takes_are_no_classes_that_are_missing(form):
    for loss in (ignoring, nn.CrossEntropyLoss(ignore_index=SECRET)):
        trainer(loss).fit(*FORMS[form](X, BAD), progress=False)
    trainer(nn.MSELoss(), outputs=1).fit(*FORMS[form](X, 1000 * Y[:, None]), progress=False)
    both = np.stack([Y, 1000 * Y], axis=1)
    trainer(two_tasks, outputs=4).fit(*FORMS[form](X, both), progress=False)
    both[PLACE, 0] = SECRET
    with pytest.raises(ValueError, match="targets must be classes"):
        trainer(two_tasks, outputs=4).fit(*FORMS[form](X, both), progress=False)


def test_targets_by_position():
    model = nn.Sequential(nn.Linear(6, 12), nn.Unflatten(1, (3, 4)))
    targets = np.tile(Y[:, None], (1, 4))
    targets[5] = -100
    plan = {"owners": ["all"] * N}
    made = Trainer(EVERYBODY, model, own_by_position, torch.optim.SGD(model.parameters(), lr=0.1), **plan)
    made.fit(X, targets, progress=False)
    targets[PLACE, 2] = SECRET
    made = Trainer(EVERYBODY, model, own_by_position, torch.optim.SGD(model.parameters(), lr=0.1), **plan)
    with pytest.raises(ValueError, match="targets must be classes 0 to 2"):
        made.fit(X, targets, progress=False)


def own_by_position(outputs, targets):
    return own(outputs, targets).mean(1)


class Ragged(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.zeros(SECRET if index == PLACE else 6), int(Y[index])


def test_how_long_a_record_is_is_not_shown():
    with pytest.raises(ValueError, match="a Dataset must give records of one shape") as error:
        trainer(own).step(Ragged())
    assert str(SECRET) not in said_by(error)
    assert str(PLACE) not in str(error.value)


class Sum(INOSGM):
    """A mechanism whose scores, or cells, have a shape that does not fit, as soon as there are records."""

    def __init__(self, wrong):
        super().__init__(EVERYBODY, ["all"] * N)
        self.wrong = wrong

    def contributions(self, batch):
        return Cells(np.ones(len(batch)), np.zeros(len(batch) + (self.wrong == "cells") * (len(batch) > 0), int), 2)

    def scores(self, batch):
        return np.zeros((len(batch), 2)) if self.wrong == "scores" and len(batch) else np.zeros(len(batch))


@pytest.mark.parametrize("wrong", ["scores", "cells"])
def test_how_many_records_a_batch_has_is_not_shown(wrong):
    with pytest.raises(ValueError, match=f"{wrong} must be") as error:
        Sum(wrong).release(X)
    assert "60" not in str(error.value)
    assert "61" not in str(error.value)
    with pytest.raises(ValueError, match="contributions and weights must pair up") as error:
        Dense(X).weighted_sum(np.ones(7))
    assert "60" not in str(error.value)


def test_teachers_meet_no_class_that_their_model_does_not_have(tmp_path, monkeypatch):
    (tmp_path / "nine_classes.py").write_text(
        "from torch import nn\n"
        "def made(classes, input_shape):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes - 1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    wanted = config().changed({"model.name": "nine_classes:made", "model.options": {}})
    with pytest.raises(IndexError) as error:
        runs.train_seeds(wanted, 1, store=tmp_path / "store", progress=False)
    assert any("tried on public inputs with class 9" in note for note in error.value.__notes__)
    assert not (tmp_path / "store").exists()


def ctg(root, *lines):
    path = root / "cardiotocography" / "ctg.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\n".join(lines))


def test_a_file_of_records_is_not_shown(tmp_path):
    record = ",".join([str(SECRET)] * len(CTG_RANGES)).encode()
    ctg(tmp_path, record, record)
    with pytest.raises(
        ValueError, match="must have the column 'LB', and its first line must name the columns"
    ) as error:
        load("cardiotocography", tmp_path)
    assert str(SECRET) not in said_by(error)
    ctg(tmp_path, record, b"\xff" + record)
    with pytest.raises(ValueError, match="must be text in UTF-8") as error:
        load("cardiotocography", tmp_path)
    assert "ff" not in str(error.value).replace(str(tmp_path), "")
    assert "position" not in said_by(error)


def test_no_number_of_a_record_makes_a_data_set_print(tmp_path):
    names = ",".join([*CTG_RANGES, "NSP"]).encode()
    ctg(tmp_path, names, *[",".join(["100"] * len(CTG_RANGES) + [nsp]).encode() for nsp in ("1", "1.797e308")])
    numbers = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0, 5.0, 1.797e308]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"y must lie in \[0, 3\)"):
            load("cardiotocography", tmp_path)
        made = openml.from_bunch(Bunch(data=numbers, target=pd.Series(["a"] * 6, dtype="category")), "openml:toys")
    assert len(made.y) == 5
