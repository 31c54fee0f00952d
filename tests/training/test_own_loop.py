"""The engineer's own loop: callbacks, metrics, checkpoints, averages, files, and updates behind the trainer's back."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inosgm import Ledger, Owners, plan_scale
from inosgm.training import Trainer
from inosgm.training.callbacks import CheckpointEvent, EvaluationEvent, StepEvent
from inosgm.training.checkpoints import Checkpoint
from inosgm.training.run import Run
from inosgm.training.runlog import RunLog

N = 40
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) % 2
HELD_OUT = (X + 1, Y.clone())
OWNERS = Owners(of_record=["all"] * N, epsilon={"all": 4.0}, delta=1e-5)
PLAN = plan_scale(OWNERS, steps=8, expected_batch=20, clip_norm=1.0)


def network(frozen=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    model[0].requires_grad_(not frozen)
    return model


def trainer(model=None, **more):
    model = network() if model is None else model
    learning = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=0.5, momentum=0.9)
    return Trainer(PLAN, model, nn.CrossEntropyLoss(), optimizer, **{"key": 3, **more})


def weights(made):
    return torch.cat([value.flatten() for value in made.model.state_dict().values()])


def fit(made, **more):
    return made.fit(X, Y, **{"progress": False, **more})


# callbacks


def test_callbacks_are_called_in_order_with_public_things(tmp_path):
    seen = []
    made = trainer()
    fit(made, held_out=HELD_OUT, evaluate_every=4, checkpoint_every=4, run=tmp_path / "run",
        on_step=seen.append, on_evaluate=seen.append, on_checkpoint=seen.append)  # fmt: skip
    expected = [(EvaluationEvent, 0)]
    for step in range(1, 9):
        expected += [(StepEvent, step)] + [(EvaluationEvent, step), (CheckpointEvent, step)] * (step % 4 == 0)
    assert [(type(event), event.step) for event in seen] == expected
    assert {name for event in seen for name in vars(event)} == {
        "step", "steps", "learning_rate", "release", "evaluation", "run"
    }  # fmt: skip
    assert all(event.steps == 8 and event.learning_rate == 0.5 for event in seen if isinstance(event, StepEvent))
    assert not any(event.evaluation.private for event in seen if isinstance(event, EvaluationEvent))


def test_callbacks_change_nothing_and_their_errors_are_passed_on(tmp_path):
    plain, watched = trainer(), trainer()
    fit(plain)
    fit(watched, on_step=lambda event: None)
    assert torch.equal(weights(plain), weights(watched))

    def fail(event):
        raise KeyError("mine")

    failing = trainer()
    with pytest.raises(KeyError, match="mine"):
        fit(failing, run=tmp_path / "run", checkpoint_every=1, on_checkpoint=fail)
    resumed = trainer()
    fit(resumed, run=tmp_path / "run")
    assert torch.equal(weights(resumed), weights(plain))
    with pytest.raises(TypeError, match="on_step must be a function"):
        fit(trainer(), on_step=3)


def test_a_callback_that_trains_is_refused():
    made = trainer()

    def train(event):
        F.cross_entropy(made.model(X), Y).backward()
        made.optimizer.step()

    with pytest.raises(ValueError, match="changed by something else"):
        fit(made, on_step=train)
    assert made.steps_done == 1


# metrics


def test_metrics_of_ones_own(tmp_path):
    metrics = {
        "error": lambda outputs, targets: float((outputs.argmax(1) != targets).mean()),
        "records": lambda outputs, targets: len(outputs),
        "nothing": lambda outputs, targets: np.nan,
    }
    made = trainer(max_physical_batch=7)
    curve = fit(made, held_out=HELD_OUT, metrics=metrics, run=tmp_path / "run", evaluate_every=4)
    last = curve.last
    assert last.metrics == {"error": pytest.approx(1 - last.accuracy), "records": N, "nothing": None}
    with RunLog(tmp_path / "run") as log:
        assert log.rows()[-1]["evaluation"]["metrics"] == last.metrics
    assert type(curve).from_json(curve.to_json()) == curve
    assert "metrics" not in made.evaluate(*HELD_OUT).to_dict()
    assert made.evaluate(*HELD_OUT, metrics=metrics).metrics == last.metrics
    for wrong, message in (
        (["accuracy"], "metrics must be a dict"),
        ({"mine": lambda outputs, targets: "much"}, r"metrics\['mine'\] must give one number, got str"),
    ):
        with pytest.raises(TypeError, match=message):
            fit(trainer(), held_out=HELD_OUT, metrics=wrong)
    by_batch = Trainer(
        PLAN, made.model, optimizer=made.optimizer, losses=lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="none")
    )
    with pytest.raises(TypeError, match="compute them in on_evaluate"):
        fit(by_batch, metrics=metrics)


# checkpoints


def test_only_the_latest_checkpoints_are_kept(tmp_path):
    fit(trainer(), run=tmp_path / "run", checkpoint_every=1, keep_checkpoints=2)
    names = sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*"))
    assert names == ["checkpoint-0-7.pt", "checkpoint-0-8.pt"]
    with pytest.raises(ValueError, match="keep_checkpoints"):
        fit(trainer(), keep_checkpoints=0)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_checkpoints_of_trainable_parameters_resume_bit_for_bit(tmp_path, ema):
    how = {"run": tmp_path / "run", "checkpoint_trainable_only": True}
    whole = trainer(network(frozen=True), ema=ema)
    fit(whole)
    for steps in (3, None):
        made = trainer(network(frozen=True), ema=ema)
        fit(made, steps=steps, **how)
    assert torch.equal(weights(made), weights(whole))
    with Run(tmp_path / "run") as run:
        kept = run.latest()
    assert set(kept.model) == {"2.weight", "2.bias"}
    with whole.averaged() if ema else torch.no_grad():
        results = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
        assert all(torch.equal(value, results[name]) for name, value in whole.model.state_dict().items())


def test_other_frozen_parameters_are_refused(tmp_path):
    how = {"run": tmp_path / "run", "checkpoint_trainable_only": True}
    fit(trainer(network(frozen=True)), steps=3, **how)
    other = network(frozen=True)
    with torch.no_grad():
        other[0].bias[0] += 1e-7
    with pytest.raises(ValueError, match=r"frozen parameters that the run was begun with.*digest"):
        fit(trainer(other), **how)
    fit(trainer(network(frozen=True)), **how)


def test_checkpoints_without_what_came_later_are_read_and_not_written(tmp_path):
    fit(trainer(), run=tmp_path / "run", steps=3)
    path = tmp_path / "run" / "checkpoint-0-3.pt"
    content = torch.load(path, weights_only=True)
    assert not {"frozen", "average"} & content.keys()
    assert Checkpoint.from_file(path).frozen == ""


# averages


def test_the_average_of_weights_costs_nothing_and_resumes(tmp_path):
    plain, made = trainer(), trainer(ema=0.9)
    seen = []
    fit(plain, on_step=lambda event: seen.append(weights(plain)))
    curve = fit(made, held_out=HELD_OUT)
    assert torch.equal(weights(made), weights(plain))
    assert made.spent() == plain.spent()
    expected = seen[0].clone()
    for step, value in enumerate(seen[1:], 2):
        expected.lerp_(value, 1 - min(0.9, (1 + step) / (10 + step)))
    with made.averaged():
        torch.testing.assert_close(weights(made), expected)
        assert made.evaluate(*HELD_OUT).loss == curve.last.loss
    assert torch.equal(weights(made), weights(plain))
    parts = [trainer(ema=0.9) for _ in range(2)]
    for part, steps in zip(parts, (3, None), strict=True):
        fit(part, steps=steps, run=tmp_path / "run")
    assert all(torch.equal(value, made._average.state[name]) for name, value in parts[1]._average.state.items())
    with pytest.raises(ValueError, match="ema must be that of the run"):
        fit(trainer(), run=tmp_path / "run")
    with pytest.raises(ValueError, match="ema must be the decay"):
        trainer(ema=1.0)
    with pytest.raises(ValueError, match="there is no average"), plain.averaged():
        pass


# files


def test_models_save_themselves_under_their_own_names(tmp_path):
    class Pretrained(nn.Linear):
        def save_pretrained(self, directory):
            torch.save(self.state_dict(), f"{directory}/pytorch_model.bin")

    made = trainer()
    made.save(tmp_path / "plain")
    read = network(seed=1)
    read.load_state_dict(torch.load(tmp_path / "plain" / "model.pt", weights_only=True))
    assert torch.equal(read[0].weight, made.model[0].weight)
    own = trainer(Pretrained(4, 2))
    assert own.save(tmp_path / "own") == tmp_path / "own"
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["pytorch_model.bin"]


def test_a_model_of_hugging_face_is_read_back(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers, of the extra 'peers'")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=8, num_labels=2,
    )  # fmt: skip
    made = trainer(transformers.BertForSequenceClassification(config))
    made.save(tmp_path / "bert")
    read = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "bert")
    assert all(torch.equal(value, made.model.state_dict()[name]) for name, value in read.state_dict().items())


# without held-out records


def test_watch_and_log_without_held_out_records(tmp_path):
    watched = []
    made = trainer()
    fit(made, run=tmp_path / "whole", evaluate_every=2, watch=lambda curve: watched.append(made.steps_done))
    assert watched == [2, 4, 6, 8]
    for steps in (3, 2, None):
        fit(trainer(), run=tmp_path / "parts", evaluate_every=2, steps=steps)
    with RunLog(tmp_path / "whole") as whole, RunLog(tmp_path / "parts") as parts:
        assert [row["step"] for row in whole.rows()] == [2, 4, 6, 8]
        assert whole.rows()[-1]["epsilon"]["most"] == pytest.approx(4.0, rel=0.05)
        by_step = {row["step"]: row for row in parts.rows()}
        assert [by_step[step] for step in (2, 4, 6, 8)] == whole.rows()


# behind the trainer's back


def own_update(made):
    F.cross_entropy(made.model(X), Y).backward()
    made.optimizer.step()


def other_optimizer(made):
    F.cross_entropy(made.model(X), Y).backward()
    torch.optim.Adam(made.model.parameters()).step()


def other_values(made):
    made.model[2].bias.data = made.model[2].bias.data + 1


def other_state(made):
    made.model.load_state_dict({name: value + 1 for name, value in made.model.state_dict().items()})


@pytest.mark.parametrize("change", [own_update, other_optimizer, other_values, other_state])
def test_updates_behind_the_trainers_back_are_refused_before_anything_is_charged(change, tmp_path):
    ledger = Ledger(owners=OWNERS)
    made = trainer(ledger=ledger, charge_steps=1)
    made.step(X, Y)
    spent = ledger.spent()
    change(made)
    for again in range(2):
        with pytest.raises(ValueError, match=r"'\d\.(weight|bias)' was changed by something else.*accept_parameters"):
            made.step(X, Y) if again else fit(made)
    assert ledger.spent() == spent
    assert made.steps_done == 1
    made.accept_parameters()
    made.step(X, Y)
    assert made.steps_done == 2


def test_what_the_trainer_does_itself_is_no_change(tmp_path):
    plain, made = trainer(), trainer(ema=0.9)
    fit(plain)
    made.step(X, Y)
    made.evaluate(*HELD_OUT)
    made.diagnose(*HELD_OUT, owners=["all"] * N)
    made.check(X, Y)
    with made.averaged():
        made.model(X)
    made.save(tmp_path / "model")
    copy.deepcopy(made.model)
    F.cross_entropy(made.model(X), Y).backward()  # gradients alone are overwritten
    fit(made, steps=3)
    fit(made, held_out=HELD_OUT)
    assert torch.equal(weights(made), weights(plain))


def test_a_failed_evaluation_is_no_change():
    class Writing(nn.Linear):
        writing = False

        def forward(self, x):
            if self.writing:
                with torch.no_grad():
                    self.bias.add_(1)
            return super().forward(x)

    made = trainer(Writing(4, 2))
    made.step(X, Y)
    made.model.writing = True
    with pytest.raises(ValueError, match="must leave the model as it was"):
        made.evaluate(*HELD_OUT)
    with pytest.raises(ValueError, match="must leave the model as it was"):
        made.step(X, Y)
    made.model.writing = False
    made.step(X, Y)
