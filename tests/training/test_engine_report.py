"""No slow engine is chosen silently, and the one-by-one engine keeps no gradients of large batches."""

import logging

import numpy as np
import pytest
import torch
from architectures import architecture
from gradient_models import ENTROPY, images, naive
from torch import nn

from inosgm import Plan
from inosgm.training import Trainer
from inosgm.training.gradients import BookKeeping, OneByOne, engine_for, fixed, one_by_one, refuse_mixing


class Sorts(nn.Module):
    """Orders records by their values inside."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        order = x[:, 0].argsort()
        return self.layer(x[order])[order.argsort()]


def trainer(model, **options):
    plan = Plan(sample_rates=[0.5], sensitivities=[1.0], sizes=[5], noise_scale=1.0, steps=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, owners=np.zeros(5, dtype=np.int64), **options)


def test_a_fast_engine_has_a_row_for_each_module():
    model, inputs, targets, _ = architecture("ViT")
    report = trainer(model).engine_report(inputs, targets)
    assert report.engine == "BookKeeping"
    assert not report.slow
    rows = {row.name: row for row in report.rows}
    assert rows["patches"].how == "by a rule"
    assert rows[""].how == rows["attention"].how == "followed through torch functions"
    assert sum(row.parameters for row in report.rows) == sum(part.numel() for part in model.parameters())
    assert str(report).splitlines()[0] == report.line
    assert "attention.out_proj" in str(report)


def test_frozen_modules_say_so():
    model, (inputs, targets) = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), images(4)
    model[0].requires_grad_(False)
    assert [row.how for row in trainer(model).engine_report(inputs, targets).rows] == ["frozen", "by a rule"]


def test_a_slow_engine_is_logged_with_the_reason_and_what_would_be_faster(caplog):
    training, (inputs, targets) = trainer(Sorts()), images(4)
    with pytest.raises(RuntimeError, match="chosen when data is first seen"):
        training.engine_report()
    with caplog.at_level(logging.WARNING):
        training.step(inputs, targets)
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("inosgm")]
    report = training.engine_report()
    assert report.slow
    assert line == report.line
    assert "BookKeeping does not serve the model, because it may order records by their values" in line
    assert "faster: keep records in the order of the batch" in line
    assert training.released == 1


def test_a_fast_engine_and_one_that_was_asked_for_are_not_warned_about(caplog):
    inputs, targets = images(4)
    with caplog.at_level(logging.WARNING):
        trainer(nn.Linear(4, 3)).step(inputs, targets)
        asked = trainer(Sorts(), engine=OneByOne)
        asked.step(inputs, targets)
    assert not [record for record in caplog.records if record.name.startswith("inosgm")]
    assert "asked for" in asked.engine_report().line


def test_the_line_is_shown_where_progress_is(capsys):
    inputs, targets = images(4)
    trainer(nn.Linear(4, 3)).fit(inputs, targets)
    assert "gradients by BookKeeping: 1 module by a rule" in capsys.readouterr().err
    trainer(nn.Linear(4, 3)).fit(inputs, targets, progress=False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_one_by_one_in_two_passes_is_one_by_one(monkeypatch, dropout):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))
    inputs, targets = images(4)
    weights = torch.tensor([1.0, 0.0, 0.5, 2.0, 1.0], dtype=torch.float64)
    found = []
    for most in (2**28, 0):
        monkeypatch.setattr(one_by_one, "KEPT_BYTES", most)
        torch.manual_seed(1)
        gradients = OneByOne(model, ENTROPY).gradients(inputs, targets)
        assert gradients.reruns == (most == 0)
        state = torch.get_rng_state()
        found.append((gradients.norms(), gradients.losses, gradients.outputs, gradients.weighted_sum(weights)))
        assert torch.equal(torch.get_rng_state(), state), "a sum draws nothing"
    torch.testing.assert_close(found[0], found[1])
    if not dropout:
        norms, _ = naive(model, ENTROPY, inputs, targets, weights)
        torch.testing.assert_close(found[1][0], norms, rtol=1e-4, atol=0)


def test_a_gradient_that_is_longer_in_the_second_pass_is_cut(monkeypatch):
    monkeypatch.setattr(one_by_one, "KEPT_BYTES", 0)
    scale, model = [1.0], nn.Linear(4, 3)
    inputs, targets = images(4)
    gradients = OneByOne(model, lambda outputs, targets: ENTROPY(outputs, targets) * scale[0]).gradients(
        inputs, targets
    )
    scale[0] = 7.0
    for record in range(5):
        alone = gradients.weighted_sum(nn.functional.one_hot(torch.tensor(record), 5))
        length = torch.stack([part.double().norm() for part in alone]).norm()
        assert length <= gradients.norms()[record] * (1 + 1e-6)
    scale[0] = float("nan")
    assert not any(part.any() for part in gradients.weighted_sum(torch.ones(5)))


def test_a_record_that_is_not_finite_spoils_only_itself_in_two_passes(monkeypatch):
    monkeypatch.setattr(one_by_one, "KEPT_BYTES", 0)
    model, (inputs, targets) = nn.Linear(4, 3), images(4)
    inputs[1] = float("nan")
    gradients = OneByOne(model, ENTROPY).gradients(inputs, targets)
    assert gradients.norms().isfinite().tolist() == [True, False, True, True, True]
    assert all(part.isfinite().all() for part in gradients.weighted_sum(torch.ones(5)))


class OwnNorm(nn.BatchNorm1d):
    """A subclass that computes what its class does."""


class ActivatedNorm(nn.BatchNorm1d):
    def forward(self, x):
        return torch.relu(super().forward(x))


def test_a_norm_of_a_subclass_is_replaced_or_not_promised():
    model = nn.Sequential(nn.Linear(4, 8), OwnNorm(8), nn.Linear(8, 3))
    with pytest.raises(ValueError, match=r"GroupNorm\(1, 8\), or have that done by fix=True"):
        refuse_mixing(model)
    assert type(fixed(model)[1]) is nn.GroupNorm
    assert type(engine_for(fixed(model), ENTROPY, *images(4))) is BookKeeping
    other = nn.Sequential(nn.Linear(4, 8), ActivatedNorm(8))
    with pytest.raises(ValueError, match=r"fix=True does not do that, because ActivatedNorm has a `forward`"):
        refuse_mixing(fixed(other))
