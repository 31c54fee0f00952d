"""Logit adjustment: the prior of a plan, the loss at shifted logits, adjusted predictions, and no other cost."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from inosgm import LinearTail, LogitAdjustment, Owners, Plan, Trainer, plan_scale
from inosgm.training import BookKeeping, Functional, OneByOne


def plan(rates=(0.1, 0.2, 0.5), sensitivities=(1.0, 2.0, 0.5), sizes=(100, 50, 10), **more):
    return Plan(
        sample_rates=list(rates), sensitivities=list(sensitivities), sizes=list(sizes), noise_scale=1.0, steps=1, **more
    )


def test_the_prior_is_what_owners_fill_of_an_expected_batch():
    mass = np.array([10.0, 20.0, 2.5])
    adjustment = LogitAdjustment(plan(), strength=2)
    np.testing.assert_allclose(adjustment.prior, mass / mass.sum(), rtol=1e-14)
    np.testing.assert_allclose(adjustment.offsets, 2 * np.log(mass / mass.sum()), rtol=1e-14)
    shares = np.array([[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0.2, 0.2, 0.2, 0.4]])
    np.testing.assert_allclose(LogitAdjustment(plan(), shares).prior, mass @ shares / mass.sum(), rtol=1e-14)


@pytest.mark.parametrize("labels", [(2, 0, 1), ("2", "0", "1")])
def test_owners_named_by_their_class_hold_that_class(labels):
    one, other = LogitAdjustment(plan()), LogitAdjustment(plan(labels=labels))
    np.testing.assert_array_equal(other.offsets, one.offsets[[1, 2, 0]])
    np.testing.assert_array_equal(LogitAdjustment(plan(labels=("x", "y", "z"))).offsets, one.offsets)


@given(st.integers(0, 2**32 - 1), st.floats(0, 3))
def test_shares_of_owners_alike_leave_predictions_alone(seed, strength):
    """If every owner has the same uniform shares, no class is rarer than another, whatever budgets are."""
    rates = np.random.default_rng(seed).uniform(0.01, 1, 3)
    offsets = LogitAdjustment(plan(rates), np.full((3, 5), 0.2), strength).offsets
    np.testing.assert_allclose(offsets, offsets[0], atol=1e-12)


def test_strength_zero_changes_nothing():
    logits = torch.randn(4, 3)
    assert torch.equal(LogitAdjustment(plan(), strength=0).adjust(logits), logits)


@pytest.mark.parametrize(
    ("shares", "strength", "message"),
    [
        ([[1, 0], [0, 1]], 1, "must have 3 rows"),
        ([[1], [1], [1]], 1, "must have 3 rows"),
        ([[50, 50]] * 3, 1, "sum to 1 in every row"),
        ([[1.5, -0.5]] * 3, 1, "at least 0"),
        ([[np.nan, 1]] * 3, 1, "at least 0"),
        ([[1, 0]] * 3, 1, "class 1 must have a share"),
        (None, -1, "strength must be finite and >= 0"),
        (None, float("nan"), "strength must be finite"),
    ],
)
def test_bad_arguments(shares, strength, message):
    with pytest.raises(ValueError, match=message):
        LogitAdjustment(plan(), shares, strength)


def test_one_owner_needs_class_shares():
    with pytest.raises(ValueError, match="class_shares must be given"):
        LogitAdjustment(plan([0.1], [1.0], [9]))


def test_logits_of_another_model_are_refused():
    with pytest.raises(ValueError, match="each of 3 classes on axis 1, got 4"):
        LogitAdjustment(plan()).adjust(np.zeros((2, 4)))


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy, nn.CrossEntropyLoss(reduction="sum")])
def test_the_loss_is_that_at_shifted_logits(loss):
    adjustment, logits, targets = LogitAdjustment(plan()), torch.randn(7, 3), torch.arange(7) % 3
    shifted = logits + torch.from_numpy(adjustment.offsets).float()
    torch.testing.assert_close(
        adjustment.loss(loss)(logits, targets), F.cross_entropy(shifted, targets, reduction="none")
    )


def test_the_loss_takes_sequences():
    adjustment, logits, targets = LogitAdjustment(plan()), torch.randn(2, 3, 5), torch.zeros(2, 5, dtype=torch.long)
    shifted = logits + torch.from_numpy(adjustment.offsets).float()[None, :, None]
    expected = F.cross_entropy(shifted, targets, reduction="none").mean(dim=1)
    torch.testing.assert_close(adjustment.loss(nn.CrossEntropyLoss())(logits, targets), expected)


def test_the_best_constant_logits_under_the_plans_prior_are_balanced():
    """The minimum of E_prior[CE(z + log prior)] over z is z = 0 (up to a constant): the closed form of the paper."""
    adjustment = LogitAdjustment(plan())
    z = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    losses = adjustment.loss(nn.CrossEntropyLoss())(z.expand(3, 3), torch.arange(3))
    (losses * torch.from_numpy(adjustment.prior)).sum().backward()
    torch.testing.assert_close(z.grad, torch.zeros_like(z), atol=1e-15, rtol=0)


def test_a_saved_model_carries_its_offsets():
    adjustment, model = LogitAdjustment(plan()), nn.Linear(2, 3)
    file = io.BytesIO()
    torch.save(adjustment.adjusted(model).state_dict(), file)
    file.seek(0)
    other = LogitAdjustment(plan(), strength=0).adjusted(nn.Linear(2, 3))
    other.load_state_dict(torch.load(file, weights_only=True))
    inputs = torch.randn(5, 2)
    assert torch.equal(other(inputs), adjustment.adjust(model(inputs)))


@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
def test_every_engine_trains_with_it_and_agrees_with_the_plain_loss_shifted(engine):
    """The offsets may as well be a constant that the model adds: the same run, and no other cost."""
    generator = np.random.default_rng(3)
    y = generator.integers(0, 3, 120)
    x = torch.from_numpy(generator.normal(size=(120, 4)) + y[:, None]).float()
    owners = Owners(of_record=y, epsilon={0: 0.5, 1: 2.0, 2: 5.0}, delta=1e-4)
    made = plan_scale(owners, steps=3, expected_batch=30, clip_norm=1.0)
    adjustment = LogitAdjustment(made)

    class Shifted(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) + torch.from_numpy(adjustment.offsets).float()

    def trained(model, loss, used):
        torch.manual_seed(0)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        trainer = Trainer(
            made,
            model,
            loss,
            torch.optim.SGD(model.parameters(), lr=0.5),
            owners=owners,
            tail=LinearTail(made.tail_length(0.5)),
            engine=used,
            key=7,
        )
        trainer.fit(x, torch.from_numpy(y), progress=False)
        return model.weight.detach().clone(), trainer.spent()

    weight, spent = trained(nn.Linear(4, 3), adjustment.loss(nn.CrossEntropyLoss()), engine)
    expected, cost = trained(Shifted(4, 3), nn.CrossEntropyLoss(), OneByOne)
    torch.testing.assert_close(weight, expected, atol=1e-6, rtol=1e-5)
    np.testing.assert_array_equal(list(spent.values()), list(cost.values()))
