"""Book-keeping of models that nobody here wrote: parity with one backward per record, and what is refused."""

import copy

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, Lora, architecture, classes
from gradient_models import ENTROPY, images, naive, wide
from torch import nn
from torch.utils.checkpoint import checkpoint

from inosgm._internal.trees import tree_map
from inosgm.training.gradients import BookKeeping, Functional, OneByOne, engine_for, layers, register_layer_rule
from inosgm.training.gradients.bookkeeping import NotPerRecord
from inosgm.training.gradients.per_record import Lookups, Outer, PulledBack, TiedTable

WEIGHTS = torch.linspace(0, 2, 5, dtype=torch.float64)


def check(model, inputs, targets, loss, **options):
    """Norms and sums of the engine are those of one backward per record, in float64, with all five records or fewer."""
    model, inputs = copy.deepcopy(model).double(), tree_map(wide, inputs)
    engine = BookKeeping(model, loss, **options)
    for n in (5, 1, 2, 5):  # the first pass also learns which parameters are followed
        some, their = tree_map(lambda column: column[:n], (inputs, targets))  # noqa: B023
        norms, total = naive(model, loss, some, their, WEIGHTS[:n])
        found = engine.gradients(some, their)
        torch.testing.assert_close(found.norms(), norms, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found.weighted_sum(WEIGHTS[:n]), total, rtol=1e-8, atol=1e-12)
    assert all(parameter.grad is None for parameter in model.parameters())
    return found


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parity_with_one_backward_per_record(name):
    check(*architecture(name))


@pytest.mark.parametrize("name", ["BERT with a mask", "GPT-2, tied, with a mask", "ViT", "LSTM"])
def test_the_fast_engine_is_chosen(name):
    model, inputs, targets, loss = architecture(name)
    assert type(engine_for(model, loss, inputs, targets)) is BookKeeping


def test_a_tied_table_makes_no_table_per_record_and_counts_the_cross_term():
    model, inputs, targets, loss = architecture("GPT-2, tied, with a mask")
    found = check(model, inputs, targets, loss)
    (part,) = [part for part in found._parts if isinstance(part, TiedTable)]
    apart = part.lookups.factors()[0].square() + part.product.factors()[0].square()
    assert ((part.factors()[0].square() - apart).abs() > 1e-3 * apart).all(), "both uses are correlated"


def test_a_tied_table_whose_uses_cancel_does_not_look_shorter():
    """The lookup's gradient is the opposite of the product's, up to a remainder that is lost in float32."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 1, 16, generator=generator)
    remainder = torch.randn(30, 1, 16, generator=generator) * torch.logspace(-9, 0, 30)[:, None, None]
    grads = torch.zeros(30, 1, 4)
    grads[:, 0, 2] = 1
    part = TiedTable(Lookups(torch.full((30, 1), 2), remainder - inputs, 4), Outer(inputs, grads))
    exact = part.rows().double().flatten(1).norm(dim=1)
    assert (part.factors()[0][:, 0] >= exact).all()


def test_positions_that_every_record_looks_up_are_pulled_back_once():
    found = check(*architecture("BERT with a mask"))
    assert sum(isinstance(part, PulledBack) for part in found._parts) == 1


@pytest.mark.parametrize("name", ["BERT with a mask", "GPT-2, tied, with a mask", "ViT", "T5", "LSTM", "ConvNeXt"])
def test_half_precision_is_widened(name):
    model, inputs, targets, loss = architecture(name)
    norms, total = naive(model, loss, inputs, targets, WEIGHTS)
    found = BookKeeping(model, loss, autocast=torch.bfloat16).gradients(inputs, targets)
    sums = found.weighted_sum(WEIGHTS)
    assert {part.dtype for part in sums} == {torch.float32}
    torch.testing.assert_close(found.norms(), norms, rtol=0.15, atol=0)
    error = torch.stack([(a - b).norm() for a, b in zip(sums, total, strict=True)]).norm()
    assert error < 0.1 * torch.stack([part.norm() for part in total]).norm()


def test_a_frozen_base_in_bfloat16_with_adapters_in_float32():
    torch.manual_seed(0)
    model, (inputs, targets) = Lora(torch.bfloat16), images(6, 8)
    engine = engine_for(model, ENTROPY, inputs, targets)
    assert type(engine) is BookKeeping
    one_by_one = [engine.gradients(inputs[k : k + 1], targets[k : k + 1]).norms() for k in range(5)]
    torch.testing.assert_close(engine.gradients(inputs, targets).norms(), torch.cat(one_by_one), rtol=1e-5, atol=0)
    assert model.base.weight.dtype == torch.bfloat16


class Checkpointed(nn.Module):
    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=False).flatten(1))


def test_gradient_checkpointing():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    check(Checkpointed(layer, nn.Linear(48, 3)), *images(6, 8), classes)


@pytest.mark.parametrize("inside", [False, True])
def test_a_compiled_model(inside):
    layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    inputs, targets = images(4)
    norms, _ = naive(layers, classes, inputs, targets, WEIGHTS)
    compiled = torch.compile(layers, backend="eager")
    if inside:
        layers.compile(backend="eager")
    model = layers if inside else compiled
    model(inputs)
    engine = engine_for(model, classes, inputs, targets)
    assert type(engine) is BookKeeping
    torch.testing.assert_close(engine.gradients(inputs, targets).norms(), norms, rtol=1e-5, atol=0)


class Scale(nn.Module):
    """A layer that hides its parameter from torch functions."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x, factor)
            return x * factor

        @staticmethod
        def backward(ctx, grads):
            x, factor = ctx.saved_tensors
            return grads * factor, (grads * x).sum(0)

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.rand(4))

    def forward(self, x):
        return self.Function.apply(x, self.factor)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(layers, "_REGISTERED", {})


@pytest.mark.usefixtures("registry")
def test_a_registered_rule_serves_a_layer_and_a_wrong_one_is_refused():
    model, (inputs, targets) = nn.Sequential(Scale(), nn.Linear(4, 3)), images(4)
    assert type(engine_for(model, ENTROPY, inputs, targets)) is not BookKeeping, "its gradient would be missing"
    register_layer_rule(Scale, {"factor": lambda layer, given, grads: given[0] * grads})
    check(model, inputs, targets, classes)
    assert type(engine_for(model, ENTROPY, inputs, targets)) is BookKeeping
    register_layer_rule(Scale, {"factor": lambda layer, given, grads: 0.99 * given[0] * grads})
    assert type(engine_for(model, ENTROPY, inputs, targets)) is not BookKeeping
    register_layer_rule(Scale, {"factor": lambda layer, given, grads: (given[0] * grads).bfloat16()})
    assert type(engine_for(model, ENTROPY, inputs, targets)) is not BookKeeping


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("kind", "rules", "message"),
    [
        (nn.Linear(2, 2), {"weight": lambda *_: None}, "kind must be a class of torch modules, got Linear"),
        (int, {"weight": lambda *_: None}, "kind must be a class of torch modules"),
        (nn.Linear, {}, "rules must give a function for each parameter"),
        (nn.Linear, {"weight": 1}, "rules must give a function for each parameter"),
    ],
)
def test_rules_are_checked_when_they_are_registered(kind, rules, message):
    with pytest.raises(TypeError, match=message):
        register_layer_rule(kind, rules)


class ByBatch(nn.Module):
    """Treats records apart, but a question about the whole batch decides how it gets there."""

    def __init__(self, question, order):
        super().__init__()
        self.first, self.last, self.question, self.order = nn.Linear(4, 8), nn.Linear(8, 3), question, order

    def forward(self, x):
        if self.question(x):
            places = self.order(x)
            return self.last(torch.tanh(self.first(x[places])))[places.argsort()]
        return self.last(torch.tanh(self.first(x)))


def by_value(x):
    return x[:, 0].argsort()


@pytest.mark.parametrize("question", [lambda x: (x > 5).all(), lambda x: not (x < 50).any(), lambda x: x.sum() > 1e9])
def test_both_answers_to_a_question_about_all_records_are_tried(question):
    """Synthetic records never answer yes, real ones might, and would then be attributed to one another."""
    assert type(engine_for(ByBatch(question, by_value), ENTROPY, *images(4))) is not BookKeeping


class Scaled(nn.Linear):
    """Divides records by something that all of them decide, and that is 1 for synthetic records."""

    def __init__(self, divisor):
        super().__init__(4, 3)
        self.divisor = divisor

    def forward(self, x):
        return super().forward(x / self.divisor(x))


@pytest.mark.parametrize(
    "divisor",
    [
        lambda x: 255 if x.max() > 10 else 1,
        lambda x: 255 if (x > 10).any() else 1,
        lambda x: 1 if (x < 11).all() else 255,
        lambda x: 1 if (x < 11).sum() == x.numel() else 255,
        lambda x: 255 if (x > 10).sum() == 4 else 1,
        lambda x: 1 + 254 * (x > 10).sum().clamp(max=1),
        lambda x: 1 if (x < 0).any() or (x < 11).all() else 255,
        lambda x: 2 if x.sum() > 1000 else 1,
        lambda x: x.max().clamp(min=11),
        lambda x: x.norm().clamp(min=500),
    ],
)
def test_one_record_never_changes_how_others_are_treated(divisor):
    """Images that are scaled if one of them has bytes: synthetic records never cause it, and a real one might."""
    model, (x, targets) = Scaled(divisor), images(4)
    engine = engine_for(model, ENTROPY, x, targets)
    x = torch.cat([torch.full_like(x[:1], 1000.0), x[1:]])
    others = engine.gradients(x[1:], targets[1:]).norms()
    assert torch.allclose(engine.gradients(x, targets).norms()[1:], others, rtol=1e-6)


@pytest.mark.parametrize("question", [lambda x: x.isnan().any(), lambda x: (x > 10).any()])
def test_one_record_never_bounds_the_values_of_others(question):
    """Values are bounded if one record is strange: synthetic records lie within the bounds, and real ones need not."""

    class Bounded(nn.Linear):
        def forward(self, x):
            return super().forward(x.clamp(-5, 5) if question(x) else x)

    x, targets = images(4)
    engine = engine_for(Bounded(4, 3), ENTROPY, x, targets)
    x = -20 - x
    x[0] = 1000.0 if question(torch.tensor(11.0)) else float("nan")
    others = engine.gradients(x[1:], targets[1:]).norms()
    assert torch.allclose(engine.gradients(x, targets).norms()[1:], others, rtol=1e-6)


def test_a_question_about_one_record_counts_as_moving():
    model = ByBatch(lambda x: (x[0] > 5).all(), lambda x: torch.arange(len(x)))
    assert type(engine_for(model, ENTROPY, *images(4))) is not BookKeeping


@pytest.mark.parametrize(
    "question",
    [
        lambda x: (x == 0).all(),
        lambda x: (x == 0).sum() == x.numel(),  # as transformers asks
        lambda x: (x == 0).all() or ((x == 0).sum() == x.numel() and (x[:, 4:] == 0).sum() == 0),
    ],
)
def test_a_question_about_all_records_alone_is_no_reason_against_it(question):
    class Asks(nn.Linear):
        def forward(self, x):
            return super().forward(x) if question(x) else super().forward(x * 1)

    assert type(engine_for(Asks(4, 3), ENTROPY, *images(4))) is BookKeeping


def _overwritten_in_place(p, x):
    shifted = p.clone()
    shifted.mul_(3)
    return x * shifted


def _overwritten_through_a_view(p, x):
    shifted = p.clone()
    shifted.view(-1).mul_(3)
    return x * shifted


def _overwritten_after_its_use(p, x):
    shift = p.clone()
    shifted = x + shift
    shift.mul_(3)
    return shifted


def _records_in_a_view(p, x):
    held = torch.zeros_like(x)
    held[:, 0].copy_(x[:, 0])
    return x + held * p


@pytest.mark.parametrize(
    "use",
    [
        lambda p, x: x + torch.add(torch.ones(4), p, alpha=3),
        lambda p, x: x * p[(0, 0, 1, 1),],
        lambda p, x: x * p[np.array([0, 0, 1, 1])],
        _overwritten_in_place,
        _overwritten_through_a_view,
        _overwritten_after_its_use,
        _records_in_a_view,
    ],
)
def test_a_gradient_is_never_longer_than_its_norm_however_a_parameter_is_used(use):
    """Scaled, repeated or overwritten on its way to the records, where only moved entries keep their length."""

    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.parameter, self.out = nn.Parameter(torch.linspace(0.5, 2, 4)), nn.Linear(4, 3)

        def forward(self, x):
            return self.out(use(self.parameter, x))

    model, (x, targets) = Uses(), images(4)
    exact = torch.cat([OneByOne(model, ENTROPY).gradients(x[k : k + 1], targets[k : k + 1]).norms() for k in range(5)])
    try:
        found = BookKeeping(model, ENTROPY).gradients(x, targets)
    except NotPerRecord:
        return
    torch.testing.assert_close(found.norms()[:5], exact, rtol=1e-5, atol=0)


class RowPerRecord(nn.Module):
    """A parameter with a row for each place of the batch: its gradient is not a function of the record."""

    def __init__(self):
        super().__init__()
        self.rows, self.out = nn.Parameter(torch.rand(5, 4)), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x + self.rows)


def test_a_parameter_with_a_row_per_record_is_refused():
    with pytest.raises(NotPerRecord, match="row for each record"):
        BookKeeping(RowPerRecord(), classes).gradients(*images(4))


def test_randomness_is_not_drawn_twice_for_a_rule():
    """A function without a rule is mapped over the records again, where its mask would be another one."""

    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.key, self.out = nn.Parameter(torch.rand(1, 6, 8)), nn.Linear(8, 3)

        def forward(self, x):
            key = self.key.expand(x.shape[0], -1, -1) * 1
            return self.out(torch.nn.functional.scaled_dot_product_attention(x, key, x, dropout_p=0.5).mean(1))

    assert type(engine_for(Drops(), ENTROPY, *images(6, 8))) is Functional
