"""Features in configurations: computed once, kept privately, the same for every command, refused when they change."""

import json
import os
import pickle
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from inosgm import experiments as runs
from inosgm.audit.shadow_study import ShadowStudy
from inosgm.datasets import load
from inosgm.experiments import features as kept
from inosgm.experiments.comparison_study import fitting
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.input_files import read
from inosgm.jobs import Store
from inosgm.training import features

CONFIG = {
    "data": {"name": f"{__name__}:few"},
    "features": "scattering",
    "owners": {"by": "class", "epsilon": 2, "delta": 1e-4},
    "model": {"name": "logistic_regression"},
    "plan": {"method": "sample", "steps": 3, "expected_batch": 20, "clip_norm": 1.0, "accountant": "rdp"},
    "tail": {"kind": "linear", "fraction": 0.4},
    "optimizer": {"name": "SGD", "lr": 1.0},
    "key": 1,
}


def few(_):
    """Return some of the digits."""
    whole = load("digits")
    return replace(whole, x=whole.x[:200], y=whole.y[:200], x_test=whole.x_test[:100], y_test=whole.y_test[:100])


class Centred(nn.Module):
    """Pixels relative to a weight, which may change while the code does not."""

    shift = 1.0

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(self.shift))

    def forward(self, x):
        return x.flatten(1) - self.weight


def centred(*, input_shape):
    assert input_shape == (1, 8, 8)
    return Centred()


def mixing(*, input_shape):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, track_running_stats=False))


@pytest.fixture(autouse=True)
def transformed(monkeypatch):
    """Count how many records are transformed."""
    counts, original = [], features.transform

    def transform(module, records):
        counts.append(len(records))
        return original(module, records)

    monkeypatch.setattr(features, "transform", transform)
    return counts


def config(**changes):
    return TrainingConfig.from_dict({**CONFIG, **changes})


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def embeddings(path, **changes):
    """Write pixels as embeddings."""
    data = few(None)
    arrays = {"x": data.x.reshape(len(data.y), -1), "x_test": data.x_test.reshape(len(data.y_test), -1), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return str(path)


def test_models_are_given_features_of_training_and_held_out_records():
    training, data = runs.build(config()), few(None)
    expected = features.Scattering(8, 8)
    for found, images in ((training.dataset.x, data.x), (training.dataset.x_test, data.x_test)):
        assert np.array_equal(found, expected(torch.from_numpy(images)).numpy())
    assert training.dataset.input_shape == (81, 2, 2)
    assert training.trainer.model[1].in_features == 324
    plain = read(config(features={"name": "scattering", "options": {"groups": None}})).datasets[CONFIG["data"]["name"]]
    assert np.array_equal(plain.x, features.Scattering(8, 8, groups=None)(torch.from_numpy(data.x)).numpy())


def test_a_run_computes_features_once_and_keeps_them_for_its_owner_only(tmp_path, transformed):
    whole = runs.train(config(run=str(tmp_path / "whole")))
    made = config(run=str(tmp_path / "run"))
    runs.train(made, steps=1)
    assert transformed == [200, 100] * 2
    assert mode(tmp_path / "run" / kept.NAME) == 0o600
    resumed = runs.train(made)
    assert np.array_equal(resumed.training.dataset.x, whole.training.dataset.x)
    assert resumed.to_dict() == whole.to_dict()
    assert runs.evaluate(tmp_path / "run").evaluation.to_dict() == resumed.evaluation.to_dict()
    assert transformed == [200, 100] * 2


def test_a_refused_configuration_leaves_no_directory_behind(tmp_path):
    with pytest.raises(ValueError, match=r"features: .* says something else about a record"):
        runs.train(config(features=f"{__name__}:mixing", run=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_resumed_with_other_features(tmp_path, monkeypatch):
    path = embeddings(tmp_path / "made.npz")
    made = config(features=path, run=str(tmp_path / "run"))
    runs.train(made, steps=1)
    with np.load(tmp_path / "run" / kept.NAME) as archive:
        assert archive.files == ["digest"]
    source = read(made)
    embeddings(path, x=np.zeros((200, 64)))
    for resume in (
        lambda: runs.train(made),
        lambda: runs.evaluate(tmp_path / "run"),
        lambda: runs.build(made, source=read(made)),
    ):
        with pytest.raises(ValueError, match=r"features: .*run holds a run with other features"):
            resume()
    with pytest.raises(ValueError, match=r"holds a run of another configuration, which differs in features\.name"):
        runs.train(made.changed({"features": "scattering"}))
    assert runs.train(runs.build(made, source=source)).steps_done == 3
    weighted = config(features=f"{__name__}:centred", run=str(tmp_path / "weighted"))
    runs.train(weighted, steps=1)
    monkeypatch.setattr(Centred, "shift", 2.0)
    with pytest.raises(ValueError, match="holds a run with other features"):
        runs.train(weighted)


def test_a_study_keeps_features_in_its_store_and_refuses_others(tmp_path, transformed):
    store = Store(str(tmp_path / "store"))
    runs.train_seeds(config(), 1, store=store, progress=False)
    assert mode(tmp_path / "store" / kept.NAME) == 0o600
    assert transformed == [200, 100]
    study = runs.SeedStudy(config(), 2, store=str(tmp_path / "store"))
    study.task = pickle.loads(pickle.dumps(study.task))  # as other processes get it
    done = study.run(progress=False)
    assert len(done.outcome.done) == 2
    assert transformed == [200, 100]
    for job, spec in store.specs().items():
        alone = runs.train(config(seed=spec.seed))
        assert json.loads(json.dumps(alone.to_dict())) == {
            name: value for name, value in store.values(job).items() if name not in ("curve", "log")
        }
    with pytest.raises(ValueError, match=r"differs in features\.name .*take another store"):
        runs.train_seeds(config(features=None), 2, store=store, progress=False)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 200 * 81 * 16]
    assert files == [tmp_path / "store" / kept.NAME]


def test_a_store_refuses_another_file_of_embeddings(tmp_path):
    path = embeddings(tmp_path / "made.npz")
    runs.train_seeds(config(features=path), 1, store=tmp_path / "store", progress=False)
    runs.train_seeds(config(features=path), 1, store=tmp_path / "store", progress=False)
    other = np.load(path)["x_test"].copy()
    other[-1, -1] += 1
    embeddings(path, x_test=other)
    with pytest.raises(ValueError, match="holds runs on other data"):
        runs.train_seeds(config(features=path), 1, store=tmp_path / "store", progress=False)


def test_comparisons_and_sweeps_have_one_set_of_features(tmp_path, transformed):
    found = runs.compare(config(), ["dp-sgd", "ino-sgd"], tune={"optimizer.lr": [0.5, 1.0]}, progress=False)
    assert set(found.methods) == {"dp-sgd", "ino-sgd"}
    assert transformed == [200, 100]
    others = {"a": config(), "b": config(features={"name": "scattering", "options": {"groups": 9}})}
    with pytest.raises(ValueError, match=r"agree on data, features.*differ in features\.options"):
        runs.compare(others, progress=False)
    with pytest.raises(ValueError, match="features: must be the same in all runs of a study"):
        runs.sweep(config(), {"features": ["scattering", None]}, store=tmp_path / "sweep", progress=False)
    assert fitting(config())[0]
    assert transformed == [200, 100] * 2


def test_shadow_models_have_features(tmp_path, transformed):
    study = ShadowStudy(config(key=None), 2, store=tmp_path / "audit")
    assert study.design.pool.dataset.input_shape == (81, 2, 2)
    study.begin()
    assert mode(tmp_path / "audit" / kept.NAME) == 0o600
    ShadowStudy(config(key=None), 2, store=tmp_path / "audit")
    assert transformed == [200, 100]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": np.zeros((199, 4))}, r"x must have a row for each of the 200 training records, got .*\(199, 4\)"),
        ({"x_test": np.zeros((101, 4))}, "x_test must have a row for each of the 100 held-out records"),
        ({"x": np.zeros(200)}, "x must have a row for each"),
        ({"x": np.zeros((200, 64), int)}, "x must hold floating-point numbers, got int64"),
        ({"x": np.full((200, 64), np.inf)}, "must be finite"),
        ({"x": np.zeros((200, 4))}, r"must have the same shape, got \(4,\) and \(64,\)"),
        ({"x_test": None}, "must hold the array 'x_test'"),
        ({"x": np.full((200, 64), None)}, "must be an npz file of plain arrays"),
    ],
)
def test_files_of_embeddings_are_checked_before_anything_is_spent(tmp_path, changes, words):
    path = embeddings(tmp_path / "wrong.npz", **changes)
    with pytest.raises(ValueError, match=words) as error:
        runs.train(config(features=path, run=str(tmp_path / "run")))
    assert str(error.value).startswith("features: ")
    assert not (tmp_path / "run").exists()


def test_names_and_options_are_checked(tmp_path):
    for wrong, words in (
        ("wavelets", r"features: name must be scattering, package\.module:function, or a file"),
        ({"name": "a.npz", "options": {"groups": 3}}, "takes none"),
        ({"nam": "scattering"}, r"features\.nam: unknown key; did you mean name"),
    ):
        with pytest.raises(ValueError, match=words):
            config(features=wrong)
    for wrong, words in (
        ({"name": "scattering", "options": {"groups": 10}}, "features: groups must divide"),
        ({"name": "scattering", "options": {"angles": 4}}, "features: .*does not take these options"),
        ("no_such_module:f", "features: .*no module"),
    ):
        with pytest.raises(ValueError, match=words):
            runs.build(config(features=wrong))
    with pytest.raises(FileNotFoundError):
        runs.build(config(features=str(tmp_path / "none.npz")))
    with pytest.raises(ValueError, match="features: scattering needs images"):
        runs.build(config(data={"name": "breast_cancer"}))


def test_paths_of_embeddings_are_absolute_where_they_are_remembered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    embeddings("made.npz")
    runs.train(config(features="made.npz", run="run"), steps=1)
    remembered = TrainingConfig.from_yaml("run/config.yaml").features
    assert remembered.name == str(Path("made.npz").absolute())
    monkeypatch.chdir("run")
    assert runs.evaluate(tmp_path / "run").steps_done == 1
