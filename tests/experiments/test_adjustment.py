"""The key `adjustment`: logits of runs, comparisons and saved models are corrected as the configuration says."""

import numpy as np
import pytest
import torch

from inosgm import LogitAdjustment, Trainer
from inosgm import experiments as runs
from inosgm.audit.design import Design
from inosgm.datasets import load
from inosgm.experiments import methods_of
from inosgm.experiments.adjusting import class_shares
from inosgm.experiments.building import build
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.input_files import read
from inosgm.experiments.methods import kind_of, title_of
from inosgm.training.logit_adjustment import AdjustedModel
from inosgm.training.models import make

EPSILON = np.linspace(0.3, 3, 10).tolist()
CONFIG = TrainingConfig.from_dict(
    {
        "data": {"name": "digits", "subset": 600},
        "owners": {"by": "class", "epsilon": EPSILON, "delta": 1e-5},
        "model": {"name": "logistic_regression"},
        "plan": {"method": "scale", "steps": 6, "expected_batch": 100, "clip_norm": 1.0},
        "tail": {"kind": "linear", "fraction": 0.5},
        "adjustment": {"loss": 1.0, "after": 0.5},
        "optimizer": {"name": "SGD", "lr": 1.0},
        "key": 3,
    }
)
DIGITS = load("digits")


def test_training_equals_the_correction_in_python():
    """A run with both strengths is a plain model trained at strength `loss` whose logits are shifted by `after`."""
    found = runs.train(CONFIG).training
    by_hand = build(CONFIG.changed({"adjustment": None}))
    shares = np.eye(10)
    inside, after = LogitAdjustment(by_hand.plan, shares, 1.0), LogitAdjustment(by_hand.plan, shares, 0.5)
    key = CONFIG.noise_key()

    model = by_hand.trainer.model
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = Trainer(
        by_hand.plan,
        model,
        inside.loss(torch.nn.CrossEntropyLoss()),
        optimizer,
        owners=by_hand.owners,
        tail=CONFIG.tail.tail,
        key=key,
    )
    trainer.fit(by_hand.dataset.x, by_hand.dataset.y, progress=False)
    inputs = torch.as_tensor(DIGITS.x_test)
    with torch.no_grad():
        torch.testing.assert_close(found.trainer.model(inputs), after.adjust(model(inputs)), rtol=1e-4, atol=1e-5)


def test_a_saved_model_predicts_corrected(tmp_path):
    config = CONFIG.changed({"run": str(tmp_path / "run")})
    result = runs.train(config)
    state = torch.load(tmp_path / "run/model.pt", weights_only=True)
    plain = make("logistic_regression", classes=10, input_shape=DIGITS.input_shape, seed=5)
    with pytest.raises(RuntimeError, match="offsets"):
        plain.load_state_dict(state)  # nobody predicts without the correction by mistake
    loaded, inputs = AdjustedModel.from_state(plain, state), torch.as_tensor(DIGITS.x_test)
    with torch.no_grad():
        assert torch.equal(loaded(inputs), result.training.trainer.model(inputs))
        offsets = LogitAdjustment(result.plan, np.eye(10), 0.5).offsets
        torch.testing.assert_close(
            plain(inputs) - loaded(inputs), torch.tensor(offsets).float().expand(len(inputs), 10)
        )
    assert runs.evaluate(tmp_path / "run").evaluation == result.evaluation


def test_without_a_strength_after_training_the_saved_model_is_the_model_itself(tmp_path):
    runs.train(CONFIG.changed({"run": str(tmp_path / "run"), "adjustment.after": 0.0}))
    plain = make("logistic_regression", classes=10, input_shape=DIGITS.input_shape, seed=5)
    plain.load_state_dict(torch.load(tmp_path / "run/model.pt", weights_only=True))


def test_resumes_bit_for_bit(tmp_path):
    whole, halves = (CONFIG.changed({"run": str(tmp_path / name)}) for name in ("whole", "halves"))
    runs.train(whole)
    runs.train(halves, steps=3)
    runs.train(halves)
    one, other = (torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("whole", "halves"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_no_record_is_looked_at():
    """Offsets follow from public numbers: other classes of the records change nothing."""
    training = build(CONFIG)
    dataset = training.dataset
    other = type(dataset)(**{**vars(dataset), "y": np.zeros_like(dataset.y)})
    shares = [class_shares(CONFIG, data, training.plan.labels) for data in (dataset, other)]
    np.testing.assert_array_equal(*shares)
    np.testing.assert_array_equal(shares[0], np.eye(10))


def test_classes_of_a_setting_and_of_several_per_owner():
    config = CONFIG.changed({"data": {"name": "mnist5k"}, "owners": {"setting": "M5"}})
    np.testing.assert_array_equal(
        class_shares(
            config,
            DIGITS,
            range(10),
        ),
        np.eye(10),
    )
    found = class_shares(CONFIG.changed({"owners": {"setting": "MN"}}), DIGITS, ("digits 0-4", "digits 5-9"))
    np.testing.assert_allclose(found, np.kron(np.eye(2), np.full(5, 0.2)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"owners": {"fractions": [0.5, 0.5], "epsilon": [1, 2], "delta": 1e-5}},
            "adjustment: class_shares must be given",
        ),
        ({"adjustment.class_shares": {0: [1.0] + [0.0] * 9}}, "class_shares must have a row for each owner"),
        ({"adjustment.class_shares": {n: [0.5, 0.5] for n in range(10)}}, "one number for each of the 10 classes"),
        ({"adjustment.after": -1.0}, "adjustment.after: must be >= 0"),
        ({"adjustment.strength": 1.0}, "adjustment.strength: unknown key"),
    ],
)
def test_wrong_sections_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(CONFIG.changed(changes))


def test_methods_differ_in_the_adjustment():
    found = methods_of(CONFIG, ["dp-sgd", "idp-sgd", "ino-sgd", "idp-sgd-adjusted", "ino-sgd-adjusted"])
    assert [config.adjustment is not None for config in found.values()] == [False, False, False, True, True]
    assert [kind_of(config) for config in found.values()] == list(found)
    without = CONFIG.changed({"adjustment": None})
    assert methods_of(without, ["ino-sgd-adjusted"])["ino-sgd-adjusted"].adjustment.loss == 1
    drawn = without.changed({"owners": {"fractions": [0.5, 0.5], "epsilon": [1, 2], "delta": 1e-5}})
    with pytest.raises(ValueError, match="adjustment: ino-sgd-adjusted needs class_shares"):
        methods_of(drawn, ["ino-sgd-adjusted"])
    assert title_of(CONFIG) == "INO-SGD, adjusted"
    assert title_of(CONFIG.changed({"plan.method": "uniform", "tail": {"kind": "none"}})) == "DP-SGD, adjusted"


def test_an_audit_trains_with_the_same_correction():
    design = Design.of(CONFIG.changed({"key": None}), read(CONFIG))
    learner = design.learner(0)
    offsets = LogitAdjustment(design.plan, np.eye(10), 1.0).offsets
    np.testing.assert_allclose(learner.loss.offsets.numpy(), 1.5 * offsets)
    np.testing.assert_allclose(learner.model.offsets.numpy(), 0.5 * offsets)
