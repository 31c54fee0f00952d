import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inosgm import Owners, Plan
from inosgm._internal.records import gather
from inosgm.training import diagnostics
from inosgm.training.diagnostics import diagnose
from inosgm.training.gradients.base import Engine, Gradients, apply


class Rows(Gradients):
    """Gradients held record by record."""

    def __init__(self, losses, outputs, rows):
        self.losses, self.outputs, self._rows = losses.detach(), outputs.detach(), rows

    def norms(self):
        return torch.stack([sum(part.double().square().sum() for part in row).sqrt() for row in self._rows])

    def weighted_sum(self, weights):
        return [
            sum(
                (w.to(part.dtype) * part for w, part in zip(weights, parts, strict=True) if w),
                torch.zeros_like(parts[0]),
            )
            for parts in zip(*self._rows, strict=True)
        ]


class Naive(Engine):
    """One backward per record; remembers the largest batch that it saw."""

    largest = 0

    def gradients(self, inputs, targets):
        self.largest = max(self.largest, len(targets))
        outputs = apply(self._model, inputs)
        rows = []
        for k in range(len(targets)):  # forward too, or a NaN would spread
            loss = self._loss(apply(self._model, gather(inputs, np.array([k]))), targets[k : k + 1])
            rows.append(torch.autograd.grad(loss.sum(), self.parameters))
        return Rows(self._loss(outputs, targets), outputs, rows)

    def weighted_sum(self, inputs, targets, weights):
        return self.gradients(inputs, targets).weighted_sum(weights)


def cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


PLAN = Plan(
    sample_rates=[0.1, 0.2, 0.5],
    sensitivities=[0.2, 1.0, 3.0],
    sizes=[100, 300, 200],
    noise_scale=1.0,
    steps=10,
    labels=["red", "green", "blue"],
)


@pytest.fixture
def case():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = torch.randn(40, 4), torch.randint(0, 3, (40,))
    return model, x, y, np.array(["red", "blue", "green", "blue"] * 10)


def test_agrees_with_the_plain_computation(case):
    model, x, y, owners = case
    found = diagnose(Naive(model, cross_entropy), (x, y), owners, PLAN, private=True, max_physical_batch=7)
    assert found.labels == ("blue", "green", "red")
    assert found.records.tolist() == [20, 10, 10]
    sums, pulls = {}, {}
    for place, label in enumerate(found.labels):
        rate, bound, size = next(
            row[1:]
            for row in zip(PLAN.labels, PLAN.sample_rates, PLAN.sensitivities, PLAN.sizes, strict=True)
            if row[0] == label
        )
        total, clipped, both = 0.0, 0, 0
        for k in np.flatnonzero(owners == label):
            model.zero_grad()
            output = model(x[k : k + 1])
            F.cross_entropy(output, y[k : k + 1]).backward()
            gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()
            total = total + gradient * min(1, bound / gradient.norm())
            clipped += bool(gradient.norm() > bound)
            both += bool(gradient.norm() > bound) and int(output.argmax()) == int(y[k])
        assert found.clipped[place] == pytest.approx(clipped / found.records[place])
        assert found.learnt_and_clipped[place] == pytest.approx(both / found.records[place])
        assert found.lengths[place] == pytest.approx(float(total.norm()), rel=1e-5)
        sums[label], pulls[label] = total, rate * size * bound
    for i, one in enumerate(found.labels):
        for j, other in enumerate(found.labels):
            cosine = float(F.cosine_similarity(sums[one], sums[other], dim=0))
            assert found.cosines[i, j] == pytest.approx(cosine, abs=1e-5)
            assert found.angles[i, j] == pytest.approx(np.degrees(np.arccos(min(cosine, 1))), abs=0.1)
            assert found.condition[i, j] == pytest.approx(1 + cosine * pulls[other] / pulls[one], rel=1e-4, abs=1e-4)
    risky = {
        (one, other)
        for i, one in enumerate(found.labels)
        for j, other in enumerate(found.labels)
        if found.condition[i, j] <= 0
    }
    assert set(found.at_risk) == risky


def test_opposed_owners_put_the_more_private_one_at_risk():
    """Two owners who want opposite things of one weight: cosine -1, so the condition is 1 - ratio of their pulls."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    engine = Naive(model, lambda outputs, targets: (outputs[:, 0] - targets) ** 2)
    x, y = np.ones((6, 1), np.float32), np.array([5, 5, 5, -5, -5, -5], np.float32)
    found = diagnose(engine, (x, y), ["red"] * 3 + ["blue"] * 3, PLAN, private=False)
    pulls = {"blue": 0.5 * 200 * 3.0, "red": 0.1 * 100 * 0.2}
    np.testing.assert_allclose(found.cosines, [[1, -1], [-1, 1]])
    np.testing.assert_allclose(found.condition[1, 0], 1 - pulls["blue"] / pulls["red"])
    np.testing.assert_allclose(found.condition[0, 1], 1 - pulls["red"] / pulls["blue"])
    assert found.at_risk == (("red", "blue"),)
    assert found.clipped.tolist() == [1, 1]
    assert found.learnt_and_clipped is None  # a regression predicts no class
    np.testing.assert_allclose(found.lengths, [9, 0.6], rtol=1e-6)
    assert found.angles[0, 1] == 180
    assert "red" in str(found)


def test_micro_batches_change_nothing_and_bound_the_batch(case):
    model, x, y, owners = case
    engine, whole = Naive(model, cross_entropy), Naive(model, cross_entropy)
    small = diagnose(engine, (x, y), owners, PLAN, private=False, max_physical_batch=3)
    large = diagnose(whole, (x, y), owners, PLAN, private=False)
    assert (engine.largest, whole.largest) == (3, 20)
    np.testing.assert_allclose(small.condition, large.condition, rtol=1e-4)
    np.testing.assert_array_equal(small.clipped, large.clipped)


def test_takes_what_the_engine_takes(case):
    model, x, y, owners = case

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner(x)

    plain = diagnose(Naive(model, cross_entropy), (x, y), owners, PLAN, private=False)
    of_record = Owners(of_record=owners, epsilon=1.0, delta=1e-5)
    for inputs in ((x,), {"x": x}, x.numpy()):
        again = diagnose(Naive(Named(), cross_entropy), (inputs, y.numpy()), of_record, PLAN, private=False)
        np.testing.assert_array_equal(again.condition, plain.condition)


def test_a_gradient_that_is_not_finite_is_left_out(case):
    model, x, y, owners = case
    broken = x.clone()
    broken[1] = torch.nan
    found = diagnose(Naive(model, cross_entropy), (broken, y), owners, PLAN, private=False)
    keep = np.arange(40) != 1
    without = diagnose(Naive(model, cross_entropy), (x[keep], y[keep]), owners[keep], PLAN, private=False)
    np.testing.assert_allclose(found.condition, without.condition, rtol=1e-5)
    np.testing.assert_allclose(found.clipped * found.records, without.clipped * without.records)


def test_a_sum_of_zero_pulls_nobody(case):
    model, x, y, owners = case
    engine = Naive(model, lambda outputs, targets: 0.0 * cross_entropy(outputs, targets))
    found = diagnose(engine, (x, y), owners, PLAN, private=False)
    assert not found.cosines.any()
    assert (found.condition == 1).all()
    assert found.at_risk == ()


def test_private_numbers_are_not_shown_unless_asked_for(case):
    model, x, y, owners = case
    found = diagnose(Naive(model, cross_entropy), (x, y), owners, PLAN, private=True)
    shown = found.report(show_private=True)
    assert shown.startswith("PRIVATE")
    assert "red" in shown
    for text in (str(found), repr(found), f"{found}"):
        assert "private" in text
        assert "red" not in text
        assert f"{found.lengths[0]:.4g}" not in text
    assert found.to_dict()["private"] is True
    open_ones = diagnose(Naive(model, cross_entropy), (x, y), owners, PLAN, private=False)
    assert open_ones.report() == "\n".join(shown.splitlines()[1:])


def test_to_dict_is_json(case):
    model, x, y, owners = case
    found = diagnose(Naive(model, cross_entropy), (x, y), owners, PLAN, private=False)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["labels"] == ["blue", "green", "red"]
    assert values["condition"] == found.condition.tolist()
    assert values["private"] is False


def test_refusals(case, monkeypatch):
    model, x, y, owners = case
    engine = Naive(model, cross_entropy)
    for change, error, message in [
        (dict(owners=["pink"] * 40), ValueError, r"those that have records in the plan .*, got 'pink'"),
        (dict(owners=["red"] * 39), ValueError, "one label per record: got 39 for 40 records"),
        (dict(data=(x, y[:9])), ValueError, "equally long"),
        (dict(data=(x[:0], y[:0]), owners=[]), ValueError, "at least one record"),
        (dict(max_physical_batch=0), ValueError, "max_physical_batch must be a whole number >= 1"),
        (dict(private="yes"), TypeError, "private must be of type bool, got 'yes': say True for training records"),
    ]:
        with pytest.raises(error, match=message):
            diagnose(engine, **{**dict(data=(x, y), owners=owners, plan=PLAN, private=True), **change})
    monkeypatch.setattr(diagnostics, "MOST_OWNERS", 2)
    with pytest.raises(ValueError, match="at most 2 to be compared in pairs, got 3: pass the records of those"):
        diagnose(engine, (x, y), owners, PLAN, private=True)
