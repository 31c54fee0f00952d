"""Runs from configurations, in Python."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from inosgm import Ledger
from inosgm import experiments as runs
from inosgm.datasets import load
from inosgm.experiments.config import TrainingConfig
from inosgm.training.curve import LearningCurve
from inosgm.training.run import Run

CONFIGS = Path(__file__).parents[2] / "examples" / "configs"
BASE = {
    "data": {"name": "breast_cancer"},
    "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 1}, "delta": 1e-4},
    "model": {"name": "logistic_regression"},
    "plan": {"method": "sample", "steps": 8, "expected_batch": 64, "clip_norm": 1.0, "accountant": "rdp"},
    "tail": {"kind": "linear", "fraction": 0.4},
    "optimizer": {"name": "SGD", "lr": 1.0},
    "key": 1,
}
DATA = load("breast_cancer")


def config(**sections):
    """Return the base configuration with some sections changed, key by key where they are mappings."""
    values = {**BASE}
    for name, section in sections.items():
        merge = isinstance(section, dict) and name in BASE and name not in ("owners", "tail")
        values[name] = {**BASE[name], **section} if merge else section
    return TrainingConfig.from_dict(values)


def weights(result):
    return torch.cat([value.flatten() for value in result.training.trainer.model.state_dict().values()])


def refusal(made):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is the result
        runs.build(made)
    return str(caught.value)


@pytest.mark.parametrize("name", ["breast_cancer", "digits", "mnist5k"])
def test_configurations_with_embedded_data_can_be_built(name):
    training = runs.build(TrainingConfig.from_yaml(CONFIGS / f"{name}.yaml", ["plan.accountant=rdp"]))
    assert set(training.groups.tolist()) == set(training.plan.labels)
    assert np.all(training.plan.spent() <= training.plan.epsilon)
    assert len(training.groups) == len(training.dataset.y_test)


def test_a_run_is_trained_end_to_end(tmp_path):
    made = TrainingConfig.from_yaml(CONFIGS / "breast_cancer.yaml", ["key=3", f"run={tmp_path / 'run'}"])
    result = runs.train(made)
    assert result.steps_done == made.plan.steps == result.curve.steps[-1]
    assert result.evaluation.accuracy > 0.7
    assert np.all(result.plan.spent(result.step) <= result.plan.epsilon)
    folder = tmp_path / "run"
    assert LearningCurve.from_json((folder / "curve.json").read_text()) == result.curve
    stored = torch.load(folder / "model.pt", weights_only=True)
    assert all(torch.equal(stored[name], value) for name, value in result.training.trainer.model.state_dict().items())
    text = (folder / "config.yaml").read_text()
    assert "key: null" in text
    report = result.report().splitlines()
    assert report[0].split() == ["owner", "epsilon", "granted", "spent", "held", "out", "accuracy"]
    assert report[2].split()[:2] == ["malignant", "1"]
    found = runs.evaluate(folder)
    assert (found.evaluation, found.steps_done) == (result.evaluation, result.steps_done)
    assert found.to_dict()["owners"][1]["spent"] == pytest.approx(result.plan.spent()[1])


def test_a_seed_and_a_key_decide_everything():
    one, same, other = (weights(runs.train(config(seed=seed))) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    private = config(key=None)
    assert not torch.equal(*(weights(runs.train(private)) for _ in range(2)))


def test_a_finished_run_is_left_as_it_is_and_other_configurations_are_refused(tmp_path):
    made = config(run=str(tmp_path / "run"))
    first = runs.train(made)
    again = runs.train(made)
    assert again.training.begun_at == 8
    assert torch.equal(weights(first), weights(again))
    assert len(Ledger(tmp_path / "run" / "ledger").history()) == 8
    message = refusal(config(run=made.run, plan={"steps": 9}, seed=2))
    assert message.endswith(
        "holds a run of another configuration, which differs in plan.steps (8 there, 9 here), seed (0 there, 2 here): "
        "take another directory (--run), or delete this one if nothing in it is needed"
    )
    (tmp_path / "run" / "config.yaml").unlink()
    assert "was not begun from a configuration" in refusal(made)


def test_evaluating_needs_a_run(tmp_path):
    with pytest.raises(ValueError, match=r"holds no config\.yaml"):
        runs.evaluate(tmp_path)
    with pytest.raises(ValueError, match="must be the directory of a run that `train` has begun, got None"):
        runs.evaluate(config())


def test_runs_that_share_a_ledger_spend_one_budget(tmp_path):
    changes = {"ledger": str(tmp_path / "ledger"), "key": None}
    first, second = (runs.train(config(**changes)) for _ in range(2))
    assert second.plan.noise_scale > 2 * first.plan.noise_scale  # what is left buys little
    spent = Ledger(tmp_path / "ledger").spent()
    assert spent["malignant"] <= 1
    assert spent["benign"] <= 5


def test_a_revision_comes_after_the_one_that_was_killed(tmp_path, monkeypatch):
    made = config(run=str(tmp_path / "run"), plan={"steps": 12}, training={"checkpoint_every": 2})
    runs.train(made, steps=6)

    def die(*_):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_plan", die)
        with pytest.raises(SystemExit):
            runs.revise(made, {"malignant": 2.0})
    revised = runs.revise(made, {"benign": 6.0})
    assert dict(zip(revised.plan.labels, revised.plan.epsilon, strict=True)) == {"benign": 6.0, "malignant": 2.0}
    assert runs.train(made).steps_done == 12


def test_budgets_of_a_run_can_be_revised(tmp_path):
    made = config(run=str(tmp_path / "run"), plan={"steps": 12}, training={"checkpoint_every": 2})
    assert runs.train(made, steps=6).steps_done == 6
    revised = runs.revise(made, {"malignant": 2.0})
    assert (revised.trainer.steps_done, revised.plan.steps) == (6, 6)
    assert dict(zip(revised.plan.labels, revised.plan.epsilon, strict=True)) == {"benign": 5.0, "malignant": 2.0}
    result = runs.train(made)
    assert result.steps_done == 12
    assert np.all(result.plan.spent(result.step) <= [5.0, 2.0])
    assert result.plan.spent(result.step)[1] > 1.0
    with pytest.raises(ValueError, match="of owners of the run: 'nobody' is none of 'benign', 'malignant'"):
        runs.revise(made, {"nobody": 1.0})


def test_owners_from_a_file(tmp_path):
    clinics = np.array(["north", "south"])[np.arange(len(DATA.y)) % 2]
    (tmp_path / "owners.csv").write_text("owner\n" + "\n".join(clinics) + "\n")
    (tmp_path / "held_out.csv").write_text("owner\n" + "north\n" * len(DATA.y_test))
    owners = {"csv": str(tmp_path / "owners.csv"), "epsilon": {"north": 1, "south": 3}, "delta": 1e-5}
    training = runs.build(config(owners=owners))
    assert training.owners.labels == ("north", "south")
    assert set(training.groups.tolist()) == {"benign", "malignant"}
    table = runs.train(training).report()
    assert "held-out records have no owner; 2 owners granted epsilon 1 to 3" in table
    training = runs.build(config(owners={**owners, "held_out": str(tmp_path / "held_out.csv")}))
    assert set(training.groups.tolist()) == {"north"}
    (tmp_path / "owners.csv").write_text("owner\nnorth\nsouth\n")
    assert refusal(config(owners=owners)).startswith("owners: ")
    assert "must have a row for each of the 456 training records, got 2" in refusal(config(owners=owners))


def test_owners_of_fractions_and_subsets():
    owners = {"fractions": [0.25, 0.75], "epsilon": [1, 3], "delta": 1e-6}
    training = runs.build(config(owners=owners, data={"subset": 200}))
    assert training.owners.sizes.tolist() == [50, 150]
    assert training.owners.delta.tolist() == [1e-6, 1e-6]
    assert set(training.groups.tolist()) == {"class benign", "class malignant"}
    same = runs.build(config(owners=owners, data={"subset": 200}))
    assert same.owners == training.owners
    np.testing.assert_array_equal(same.dataset.x, training.dataset.x)
    other = runs.build(config(owners=owners, data={"subset": 200}, seed=1))
    assert other.owners != training.owners
    assert "training.diagnostics: compares owners" in refusal(config(owners=owners, training={"diagnostics": True}))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"owners": {"setting": "MN"}}, "owners: MN needs a data set of 10 classes such as mnist, breast_cancer has 2"),
        (
            {"owners": {"by": "class", "epsilon": {"benign": 1}, "delta": 1e-5}},
            "owners: epsilon must name each of the classes malignant, benign: look at 'malignant'",
        ),
        (
            {"owners": {"by": "class", "epsilon": [1, 2, 3], "delta": 1e-5}},
            "owners: epsilon must be one number per class",
        ),
        ({"data": {"subset": 1000}}, "data.subset: must be at most the 456 training records, got 1000"),
        ({"model": {"name": "mpl"}}, "model: model must be one of logistic_regression, mlp"),
        ({"model": {"options": {"depth": 3}}}, "model: model logistic_regression does not take these options"),
        ({"model": {"name": "nowhere:net"}}, "model: 'nowhere:net' must be importable"),
        ({"optimizer": {"name": "SDG"}}, "optimizer: name must be a class of torch.optim"),
        ({"optimizer": {"options": {"momentun": 1}}}, "optimizer: SGD does not take these options: got an unexpected"),
        ({"optimizer": {"options": {"momentum": -1}}}, "optimizer: Invalid momentum value"),
        ({"optimizer": {"name": "nowhere.at:all"}}, "optimizer: 'nowhere.at:all' must be importable"),
        ({"schedule": {"name": "StepLR"}}, "schedule: StepLR does not take these options: missing a required argument"),
        ({"plan": {"expected_batch": 1e6}}, "plan: expected_batch"),
        ({"training": {"device": "toaster"}}, "training.device: "),
    ],
)
def test_what_does_not_fit_together_is_named(sections, message):
    assert message in refusal(config(**sections))


def net(*, classes, input_shape, hidden):
    """A model of the user's own, by import path."""
    return nn.Sequential(
        nn.Linear(input_shape[0], hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )


def test_models_optimizers_and_schedules_of_ones_own(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "own_models", sys.modules[__name__])
    made = config(
        model={"name": "own_models:net", "options": {"hidden": 32}},
        optimizer={"name": "torch.optim:Adam", "lr": 0.01, "options": {"betas": [0.8, 0.9]}},
        schedule={"name": "ExponentialLR", "options": {"gamma": 0.5}},
        training={"fix": True, "max_physical_batch": 16, "evaluate_every": 4},
    )
    result = runs.train(made)
    assert result.curve.steps == (0, 4, 8)
    assert result.training.trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 / 2**8)
    assert not any(isinstance(module, nn.BatchNorm1d) for module in result.training.trainer.model.modules())


def test_data_and_loss_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "ones_own.py").write_text(
        "from inosgm.datasets import load\n"
        "from torch import nn\n"
        "def data(root):\n"
        "    return load('digits').only(['0', '1'])\n"
        "class Loss(nn.CrossEntropyLoss):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = config(
        data={"name": "ones_own:data"},
        owners={"by": "class", "epsilon": 5, "delta": 1e-4},
        loss={"name": "ones_own:Loss"},
    )
    assert set(runs.train(own, progress=False).evaluation.by_owner) == {"0", "1"}
    assert "loss: name must be a class of torch.nn" in refusal(config(loss={"name": "CrossEntropy"}))
