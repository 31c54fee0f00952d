import copy

import pytest
import torch
from gradient_models import ENTROPY, MODELS, LastStep, case, codes, images, labels, naive
from torch import nn

from inosgm import Contributions
from inosgm._internal.trees import tree_leaves, tree_map
from inosgm.training.gradients import Functional, OneByOne
from inosgm.training.gradients.base import apply
from inosgm.training.losses import per_record

ENGINES = [Functional, OneByOne]
WEIGHTS = torch.tensor([0.5, 0.0, 1.0, 0.25, 2.0], dtype=torch.float64)

pytestmark = pytest.mark.parametrize("engine", ENGINES)


def assert_parts_close(found, expected, **tolerances):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype), **tolerances)


@pytest.mark.parametrize("name", MODELS)
def test_parity_with_a_plain_loop(engine, name):
    model, inputs, targets = case(name)
    norms, total = naive(model, ENTROPY, inputs, targets, WEIGHTS)
    made = engine(model, ENTROPY)
    gradients = made.gradients(inputs, targets)
    assert isinstance(gradients, Contributions)
    assert gradients.norms().dtype == torch.float64
    tolerances = dict(rtol=2e-4, atol=2e-6)
    torch.testing.assert_close(gradients.norms(), norms, **tolerances)
    assert_parts_close(gradients.weighted_sum(WEIGHTS), total, **tolerances)
    with torch.no_grad():
        outputs = apply(model, inputs)
    torch.testing.assert_close(gradients.outputs, outputs)
    torch.testing.assert_close(gradients.losses, ENTROPY(outputs, targets))
    assert not gradients.losses.requires_grad
    assert not any(leaf.requires_grad for leaf in tree_leaves(gradients.outputs))
    for part, parameter in zip(gradients.weighted_sum(WEIGHTS), made.parameters, strict=True):
        assert part.shape == parameter.shape
        assert part.dtype == parameter.dtype


@pytest.mark.parametrize("name", MODELS)
def test_parity_in_float64(engine, name):
    if (engine, name) == (Functional, "LSTM"):
        pytest.skip("torch.func maps the LSTM of oneDNN only, which is in float32")
    model, inputs, targets = case(name)
    model, inputs = model.double(), tree_map(lambda x: x.double() if x.is_floating_point() else x, inputs)
    norms, total = naive(model, ENTROPY, inputs, targets, WEIGHTS)
    gradients = engine(model, ENTROPY).gradients(inputs, targets)
    torch.testing.assert_close(gradients.norms(), norms, rtol=1e-10, atol=1e-12)
    assert_parts_close(gradients.weighted_sum(WEIGHTS), total, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_no_records(engine, name):
    model, inputs, targets = case(name)
    inputs, targets = tree_map(lambda column: column[:0], (inputs, targets))
    made, none = engine(model, ENTROPY), torch.zeros(0, dtype=torch.float64)
    gradients = made.gradients(inputs, targets)
    assert gradients.norms().shape == gradients.losses.shape == (0,)
    assert gradients.outputs.shape == (0, 3)
    assert_parts_close(gradients.weighted_sum(none), [torch.zeros_like(parameter) for parameter in made.parameters])


def test_no_records_for_a_model_that_cannot_take_none(engine):
    class Reshaping(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)

        def forward(self, x):
            return self.out(x.view(x.shape[0], -1))  # -1 is ambiguous for no records

    gradients = engine(Reshaping(), ENTROPY).gradients(torch.zeros(0, 2, 2), torch.zeros(0, dtype=torch.long))
    assert gradients.norms().shape == (0,)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30])
def test_a_broken_record_is_left_out_alone(engine, bad):
    model, (x, y) = nn.Linear(4, 1), (images(4)[0], torch.zeros(5, 1))
    x[1, 2] = bad
    loss = per_record(lambda outputs, targets: (outputs - targets)[:, 0].square() * 1e20)
    made = engine(model, loss)
    gradients = made.gradients(x, y)
    assert gradients.norms().isfinite().tolist() == [True, False, True, True, True]
    others = torch.tensor([0, 2, 3, 4])
    expected = made.gradients(x[others], y[others]).weighted_sum(torch.ones(4))
    tolerances = dict(rtol=1e-4, atol=1e12)
    assert_parts_close(gradients.weighted_sum(torch.ones(5)), expected, **tolerances)
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])
    assert_parts_close(gradients.weighted_sum(weights), expected, **tolerances)


def test_norms_of_long_gradients_do_not_overflow(engine):
    model = nn.Linear(4, 1, bias=False)
    gradients = engine(model, lambda outputs, targets: outputs[:, 0]).gradients(torch.full((2, 4), 1e30), torch.ones(2))
    torch.testing.assert_close(gradients.norms(), torch.full((2,), 2e30, dtype=torch.float64), rtol=1e-6, atol=0)


def test_dropout_masks_are_of_the_record(engine):
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 1, bias=False))
    x = torch.ones(2, 64)
    torch.manual_seed(0)
    gradients = engine(model, lambda outputs, targets: outputs[:, 0]).gradients(x, torch.zeros(2))
    first, second = (gradients.weighted_sum(weights)[0] for weights in torch.eye(2))
    assert not torch.equal(first, second)


def test_nothing_is_left_on_the_model(engine):
    model, inputs, targets = case("ResNet")
    model.a[0].weight.grad = torch.ones_like(model.a[0].weight)
    before = copy.deepcopy(model)
    made = engine(model, ENTROPY)
    made.gradients(inputs, targets).weighted_sum(WEIGHTS)
    assert torch.equal(model.a[0].weight.grad, torch.ones_like(model.a[0].weight))
    assert all(p.grad is None for name, p in model.named_parameters() if name != "a.0.weight")
    assert all(map(torch.equal, model.state_dict().values(), before.state_dict().values()))
    for module, same in zip(model.modules(), before.modules(), strict=True):
        assert vars(module).keys() == vars(same).keys()
        assert not module._forward_hooks
        assert not module._backward_hooks


def test_buffers_are_read(engine):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("shift", torch.arange(4.0))

        def forward(self, x):
            return self.linear(x + self.shift)

    model, (x, y) = Shifted(), images(4)
    norms, _ = naive(model, ENTROPY, x, y, WEIGHTS)
    torch.testing.assert_close(engine(model, ENTROPY).gradients(x, y).norms(), norms, rtol=1e-4, atol=1e-6)


def test_inside_no_grad(engine):
    model, inputs, targets = case("MLP")
    expected = engine(model, ENTROPY).gradients(inputs, targets).norms()
    with torch.no_grad():
        made = engine(model, ENTROPY)
        torch.testing.assert_close(made.gradients(inputs, targets).norms(), expected)
        made.gradients(inputs, targets).weighted_sum(WEIGHTS)


def test_half_precision_forward(engine):
    model, inputs, targets = case("MNIST CNN")
    norms, total = naive(model, ENTROPY, inputs, targets, WEIGHTS)
    with torch.backends.mkldnn.flags(
        enabled=False, allow_tf32=None
    ):  # oneDNN crashes on machines whose AMX is switched off
        gradients = engine(model, ENTROPY, autocast=torch.bfloat16).gradients(inputs, targets)
    assert gradients.outputs.dtype == torch.bfloat16
    torch.testing.assert_close(gradients.norms(), norms, rtol=0.05, atol=0.0)
    assert all(part.dtype == torch.float32 for part in gradients.weighted_sum(WEIGHTS))
    assert_parts_close(gradients.weighted_sum(WEIGHTS), total, rtol=0.1, atol=0.05)


def test_outputs_of_several_parts(engine):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 1)

        def forward(self, x):
            return {"class": self.a(x), "value": self.b(x)}

    def loss(outputs, targets):
        return ENTROPY(outputs["class"], targets[0]) + (outputs["value"][:, 0] - targets[1]).square()

    model, (x, y) = Two(), images(4)
    targets = (y, torch.rand(5))
    gradients = engine(model, loss).gradients(x, targets)
    norms, total = naive(model, loss, x, targets, WEIGHTS)
    torch.testing.assert_close(gradients.norms(), norms, rtol=1e-4, atol=1e-6)
    assert_parts_close(gradients.weighted_sum(WEIGHTS), total, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients.outputs, model(x))


def test_errors(engine):
    with pytest.raises(ValueError, match="none has requires_grad"):
        engine(nn.Linear(2, 2).requires_grad_(False), ENTROPY)
    gradients = engine(nn.Linear(4, 3), ENTROPY).gradients(*images(4))
    with pytest.raises(ValueError, match=r"one number per record of the batch$"):
        gradients.weighted_sum(torch.ones(4))


def test_losses_without_a_gradient(engine):
    made = engine(nn.Linear(4, 3), lambda outputs, targets: targets.float())
    x, y = images(4)
    assert not made.gradients(x, y).norms().any()
    assert not any(part.any() for part in made.gradients(x, y).weighted_sum(WEIGHTS))


def test_what_cannot_be_mapped(engine):
    """GRU and decisions on values: torch.func refuses them, one by one serves them."""

    class Deciding(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.a(x) if x.sum() > 2 else self.b(x)

    for model, x, y in [
        (LastStep(nn.GRU(4, 6, batch_first=True)), *codes(7)),
        (Deciding(), images(4)[0], labels(3, 5)),
    ]:
        if engine is Functional:
            with pytest.raises(RuntimeError):
                engine(model, ENTROPY).gradients(x, y)
        else:
            norms, total = naive(model, ENTROPY, x, y, WEIGHTS)
            gradients = engine(model, ENTROPY).gradients(x, y)
            torch.testing.assert_close(gradients.norms(), norms, rtol=1e-4, atol=1e-6)
            assert_parts_close(gradients.weighted_sum(WEIGHTS), total, rtol=1e-4, atol=1e-6)
