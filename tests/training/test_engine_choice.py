import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gradient_models import ENTROPY, MODELS, LastStep, Named, case, codes, images, labels, naive, pair
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from inosgm.training.gradients import BookKeeping, Functional, OneByOne, choice, engine_for
from inosgm.training.losses import per_record


def kind_of(*arguments, **named):
    return type(engine_for(*arguments, **named))


@pytest.mark.parametrize("name", MODELS)
def test_the_fastest_engine_that_is_right(name):
    model, inputs, targets = case(name)
    engine = engine_for(model, ENTROPY, inputs, targets)
    assert type(engine) is BookKeeping
    norms, _ = naive(model, ENTROPY, inputs, targets, torch.ones(5))
    torch.testing.assert_close(engine.gradients(inputs, targets).norms(), norms, rtol=2e-4, atol=1e-6)


def test_one_by_one_for_what_nothing_else_can_do():
    class Packed(nn.GRU):
        def forward(self, x):
            every = pack_padded_sequence(x, torch.full((x.shape[0],), x.shape[1]), batch_first=True)
            return pad_packed_sequence(super().forward(every)[0], batch_first=True)

    assert kind_of(LastStep(Packed(4, 6, batch_first=True)), ENTROPY, *codes(7)) is OneByOne
    assert kind_of(LastStep(nn.GRU(4, 6, batch_first=True)), ENTROPY, *codes(7)) is BookKeeping


def test_parameters_used_outside_of_their_layer():
    class Regularised(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x) + self.linear.weight.square().sum()

    def loss(outputs, targets):
        return outputs.square().sum(1)

    assert kind_of(Regularised(), loss, *images(4)) is BookKeeping


def test_layers_inside_see_other_first_axes():
    class SequenceFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x.transpose(0, 1)).mean(0)

    assert kind_of(SequenceFirst(), ENTROPY, *images(6, 4)) is Functional
    assert kind_of(SequenceFirst(), ENTROPY, *images(5, 4)) is Functional  # as long as the batch itself


@pytest.mark.parametrize("wrong", ["norms", "weighted_sum", "losses"])
@pytest.mark.parametrize("also", [False, True])
def test_an_engine_that_is_wrong_is_never_chosen(monkeypatch, wrong, also):
    def spoilt(base):
        class Wrong(base):
            def gradients(self, inputs, targets):
                gradients = super().gradients(inputs, targets)
                norms, total = gradients.norms, gradients.weighted_sum
                if wrong == "norms":
                    gradients.norms = lambda: norms() * (1 + 1e-2 * torch.eye(len(norms()))[-1])
                if wrong == "weighted_sum":
                    gradients.weighted_sum = lambda weights: [*total(weights)[:-1], total(weights)[-1] * 1.01]
                if wrong == "losses":
                    gradients.losses = gradients.losses + 0.1
                return gradients

        return Wrong

    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    assert kind_of(model, ENTROPY, *images(4)) is BookKeeping
    monkeypatch.setattr(choice, "BookKeeping", spoilt(BookKeeping))
    assert kind_of(model, ENTROPY, *images(4)) is Functional
    if also:
        monkeypatch.setattr(choice, "Functional", spoilt(Functional))
        assert kind_of(model, ENTROPY, *images(4)) is OneByOne


def test_dropout_is_silenced_for_the_comparison():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    assert kind_of(model, ENTROPY, *images(4)) is BookKeeping
    assert not any(module.training for module in model.modules())
    layers = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    model = nn.Sequential(layers, nn.Flatten(), nn.Linear(48, 3))
    assert kind_of(model, ENTROPY, *images(6, 8)) is BookKeeping


def test_randomness_that_cannot_be_silenced():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x + torch.randn_like(x))

    assert kind_of(Noisy(), ENTROPY, *images(4)) is Functional


class Reordered(nn.Module):
    """Treats records apart, but in an order that depends on them, or looks as if it might."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(4, 8), nn.Linear(8, 3), function

    def forward(self, x):
        return self.b(self.function(lambda x: torch.tanh(self.a(x)), x))


def lengths(x):
    return (x != 0).any(2).sum(1)


def by_length(layer, x):
    order = lengths(x).argsort(descending=True, stable=True)
    return layer(x[order]).sum(1)[order.argsort()]


def large_first(layer, x):
    order = (x.abs().amax((1, 2)) > 100).int().argsort(descending=True, stable=True)
    return layer(x.index_select(0, order)).sum(1)[order.argsort()]


def by_mask(layer, x):
    long = lengths(x) > 3
    h = layer(torch.cat([x[long], x[~long]])).sum(1)
    places = torch.cat([long.nonzero(), (~long).nonzero()])[:, 0]
    return torch.zeros_like(h).index_put((places,), h)


def on_the_second_axis(layer, x):
    order = lengths(x).sort(descending=True, stable=True).indices
    return layer(x.transpose(0, 1)[:, order].transpose(0, 1)).sum(1).gather(0, order.argsort()[:, None].expand(-1, 8))


def flattened(layer, x):
    order = lengths(x).repeat_interleave(x.shape[1]).argsort(descending=True, stable=True)
    return layer(x.flatten(0, 1)[order].view(x.shape)).sum(1)[order.view(x.shape[:2])[:, 0].argsort()]


def by_matrix(layer, x):
    order = F.one_hot(lengths(x).argsort(descending=True, stable=True), len(x)).to(x)
    return order.T @ layer(torch.einsum("ij,jkl->ikl", order, x)).sum(1)


def by_embedding(layer, x):
    order = lengths(x).argsort(descending=True, stable=True)
    return F.embedding(order.argsort(), layer(F.embedding(order, x.flatten(1)).view(x.shape)).sum(1))


def in_python(layer, x):
    order = sorted(range(len(x)), key=lambda k: -lengths(x)[k].item())
    h = layer(torch.stack([x[k] for k in order])).sum(1)
    return torch.stack([h[order.index(k)] for k in range(len(x))])


def in_numpy(layer, x):
    order = torch.from_numpy(np.argsort(-lengths(x).numpy(), kind="stable"))
    return layer(x[order]).sum(1)[torch.from_numpy(np.argsort(order.numpy()))]


def in_lists(layer, x):
    order = torch.tensor(lengths(x).tolist()).argsort(descending=True, stable=True)
    return layer(x[order]).sum(1)[order.argsort()]


def if_it_must(layer, x):
    return by_length(layer, x) if (x < -100).any() else layer(x).sum(1)


def at_random(layer, x):
    order = torch.randperm(len(x))
    return layer(x[order]).sum(1)[order.argsort()]


def packed(layer, x):
    sequence = pack_padded_sequence(x, lengths(x).clamp(min=1), batch_first=True, enforce_sorted=False)
    sequence = sequence._replace(data=layer(sequence.data))
    return pad_packed_sequence(sequence, batch_first=True, total_length=x.shape[1])[0].sum(1)


@pytest.mark.parametrize(
    "function",
    [
        by_length,
        large_first,
        by_mask,
        on_the_second_axis,
        flattened,
        by_matrix,
        by_embedding,
        in_python,
        in_numpy,
        in_lists,
        if_it_must,
        at_random,
        packed,
    ],
)
@pytest.mark.parametrize("by_the_loss", [False, True])
def test_records_that_move_are_not_kept_book_of(function, by_the_loss):
    """Book-keeping takes row k of a layer for record k, and would bound the gradients of others."""
    (x, y), model = images(6, 4), Reordered(function)
    loss = ENTROPY
    if by_the_loss:
        model, loss = nn.Linear(4, 8), lambda outputs, targets: function(lambda h: h.square(), outputs).mean(1)
    assert kind_of(model, loss, x, y) is not BookKeeping


def test_what_only_looks_like_moving_records():
    def picked(layer, x):
        h = layer(x) * 2
        h[h < 0] = 0
        n = torch.arange(len(x))
        last = lengths(x) - 1
        return h[n, last] + h[n[:, None], last[:, None]][:, 0] + h.amax(1) + h.sort(1).values[:, 0] + h.flip(1)[:, 0]

    def shortened(layer, x):
        attention = F.softmax(x @ x.transpose(1, 2) + torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu() > 0, -9), 2)
        return layer(attention @ x).gather(1, (lengths(x) - 1)[:, None, None].expand(-1, 1, 8))[:, 0]

    for function in (picked, shortened):
        assert kind_of(Reordered(function), ENTROPY, *images(6, 4)) is BookKeeping


def test_errors_of_layers_that_move_say_nothing_about_the_batch():
    engine = BookKeeping(Reordered(lambda layer, x: layer(x.transpose(0, 1)).sum(0)), ENTROPY)
    with pytest.raises(ValueError, match="a Linear works on a tensor that does not begin with the records") as info:
        engine.gradients(*images(6, 4, n=23))
    assert not any(character.isdigit() for character in str(info.value))


def test_gates_at_zero_are_opened_for_the_comparison(monkeypatch):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.gate, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            for parameter in self.gate.parameters():
                nn.init.zeros_(parameter)

        def forward(self, x):
            return self.out(x + self.gate(torch.tanh(self.inner(x))))

    class Wrong(BookKeeping):
        """Forgets about the layer behind the gate."""

        def gradients(self, inputs, targets):
            gradients = super().gradients(inputs, targets)
            total = gradients.weighted_sum
            object.__setattr__(gradients, "weighted_sum", lambda w: [part * (k > 1) for k, part in enumerate(total(w))])
            return gradients

    monkeypatch.setattr(choice, "BookKeeping", Wrong)
    assert kind_of(Gated(), ENTROPY, *images(4)) is Functional


def test_models_and_losses_that_mix_are_refused():
    with pytest.raises(ValueError, match=r"'0' \(BatchNorm1d"):
        engine_for(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)), ENTROPY, *images(4))

    class Centred(nn.Linear):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    with pytest.raises(ValueError, match="process each record independently, but the model says something else"):
        engine_for(Centred(4, 3), ENTROPY, *images(4))
    contrastive = per_record(lambda out, y: F.cross_entropy(out @ out.T, torch.arange(len(out)), reduction="none"))
    with pytest.raises(ValueError, match="process each record independently, but the loss says something else"):
        engine_for(nn.Linear(4, 3), contrastive, *images(4))


def test_models_and_losses_that_know_one_precision_only():
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x.float())

    assert kind_of(Single(), ENTROPY, *images(4)) is BookKeeping
    weighted = per_record(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])))
    assert kind_of(nn.Linear(4, 3), weighted, *images(4)) is BookKeeping


@pytest.mark.parametrize("seed", range(5))
def test_rounding_that_switches_units_does_not_decide(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        blocks = [layer for _ in range(8) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(8, 8), nn.ReLU())]
        model = nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.Flatten(), nn.Linear(288, 3))
    assert kind_of(model, ENTROPY, *images(3, 8, 8)) is BookKeeping


def test_what_the_model_raises_is_explained():
    with pytest.raises(RuntimeError) as info:
        engine_for(nn.Linear(5, 3), ENTROPY, *images(4))
    assert "synthetic records" in info.value.__notes__[0]
    with pytest.raises(ValueError, match="one for the whole batch"):
        engine_for(nn.Linear(4, 3), per_record(lambda outputs, targets: outputs.mean()), *images(4))


def test_the_data_is_not_looked_at():
    x, y = torch.full((0, 4), torch.nan), torch.zeros(0, dtype=torch.long)
    assert kind_of(nn.Linear(4, 3), ENTROPY, x, y) is BookKeeping
    assert kind_of(nn.Linear(4, 3), ENTROPY, torch.full((2, 4), torch.nan), torch.tensor([99, -1])) is BookKeeping


def test_models_that_are_not_finite_on_made_up_records():
    class Log(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.linear, self.shift = nn.Linear(4, 3), shift

        def forward(self, x):
            return self.linear((x - self.shift).log())

    assert kind_of(Log(0.0), ENTROPY, *images(4)) is BookKeeping
    assert kind_of(Log(2.0), ENTROPY, *images(4)) is OneByOne  # nothing could be compared


def test_no_trace_is_left():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    model[1].eval()
    model[0].weight.grad = torch.ones(8, 4)
    before, state = copy.deepcopy(model), torch.get_rng_state()
    places = [parameter.data_ptr() for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    engine_for(model, ENTROPY, *images(4))
    assert torch.equal(state, torch.get_rng_state())
    assert modes == [module.training for module in model.modules()]
    assert all(map(torch.equal, model.state_dict().values(), before.state_dict().values()))
    assert places == [parameter.data_ptr() for parameter in model.parameters()]
    assert torch.equal(model[0].weight.grad, torch.ones(8, 4))
    assert model[2].weight.grad is None
    assert not any(module._forward_hooks for module in model.modules())


def test_arguments_by_name_and_precision():
    inputs = dict(zip(("left", "right"), pair(), strict=True))
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):  # see test_half_precision_forward
        engine = engine_for(Named(), ENTROPY, inputs, labels(3, 5), autocast=torch.bfloat16)
        gradients = engine.gradients(inputs, labels(3, 5))
    assert type(engine) is BookKeeping
    assert gradients.outputs.dtype == torch.bfloat16
