import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from gradient_models import ENTROPY, MODELS, Attention, LastStep, case, codes, images
from torch import nn

from inosgm.training.gradients import BookKeeping, engine_for, fix_in_place, fixed, mixes_records, refuse_mixing
from inosgm.training.gradients.sandbox import perturbed
from inosgm.training.losses import per_record


class Eval(nn.BatchNorm2d):
    """Keeps the statistics it came with, whatever the mode of the model."""

    def train(self, mode=True):
        return super().train(False)


class Apply(nn.Module):
    """A linear layer on what a function makes of the records."""

    def __init__(self, function, width=4):
        super().__init__()
        self.function, self.linear = function, nn.Linear(width, 3)

    def forward(self, x):
        return self.linear(self.function(x))


# known layers


@pytest.mark.parametrize(
    ("layer", "instead"),
    [
        (nn.BatchNorm1d(8), r"GroupNorm\(1, 8\)"),
        (nn.BatchNorm2d(48), r"GroupNorm\(16, 48\)"),
        (nn.BatchNorm3d(8, affine=False), r"GroupNorm\(8, 8\)"),
        (nn.SyncBatchNorm(8), r"GroupNorm\(8, 8\)"),
        (nn.BatchNorm2d(8, track_running_stats=False), r"GroupNorm\(8, 8\)"),
        (nn.InstanceNorm1d(8, track_running_stats=True), r"InstanceNorm1d\(8, track_running_stats=False\)"),
    ],
)
@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("trained", [True, False])
def test_layers_that_mix_are_refused_by_name(layer, instead, mode, trained):
    model = nn.ModuleDict({"body": nn.Sequential(nn.Identity(), layer)}).train(mode).requires_grad_(trained)
    name = type(layer).__name__
    with pytest.raises(ValueError, match=rf"its layer 'body.1' \({name}\).*replace it by {instead}.*fix=True"):
        refuse_mixing(model)
    assert layer.training is mode


def test_layers_that_do_not_mix():
    refuse_mixing(nn.Sequential(nn.InstanceNorm1d(8), nn.GroupNorm(2, 8), nn.LayerNorm(8), nn.LSTM(4, 4)))
    refuse_mixing(nn.Sequential(nn.Conv2d(3, 8, 3), Eval(8)))


def test_batch_norm_without_statistics_mixes_even_in_evaluation_mode():
    with pytest.raises(ValueError, match="'0'"):
        refuse_mixing(nn.Sequential(Eval(8, track_running_stats=False)))


def test_several_layers():
    with pytest.raises(ValueError, match=r"'1'.*so do 2 more"):
        refuse_mixing(nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8), nn.BatchNorm1d(8)))


@pytest.mark.parametrize("layer", [nn.LazyLinear(3), nn.LazyBatchNorm1d()])
def test_lazy_layers_are_refused(layer):
    with pytest.raises(ValueError, match=r"lazy layers.*call it once"):
        refuse_mixing(nn.Sequential(layer))


# by trying


@pytest.mark.parametrize("name", MODELS)
def test_models_that_treat_records_apart(name):
    model, inputs, targets = case(name)
    assert mixes_records(model, ENTROPY, inputs, targets) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0),
        lambda x: x / x.amax(0),
        lambda x: x.cumsum(0),
        lambda x: x.flip(0),
        lambda x: x + 1e-3 * x.roll(1, 0),
        lambda x: x.softmax(0),
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: x.sort(0).values,
    ],
    ids=["centred", "scaled", "cumulated", "flipped", "neighbour", "softmax", "batch_norm", "sorted"],
)
def test_models_that_mix_records(function):
    assert "the model says something else" in mixes_records(Apply(function), ENTROPY, *images(4))


def test_models_that_depend_on_the_size_of_the_batch():
    model = Apply(lambda x: x / x.shape[0])
    assert mixes_records(model, ENTROPY, *images(4)) == "the model says something else about a record when it is alone"
    model = nn.Sequential(nn.Dropout(), model.linear, Apply(lambda x: x / x.shape[0], 3))
    assert "when it is alone" in mixes_records(model, ENTROPY, *images(4))
    model = Apply(lambda x: x if x.shape[0] != 2 else -x)
    assert "when it is in a pair" in mixes_records(model, ENTROPY, *images(4))
    model = Apply(lambda x: x / x.shape[0] + torch.rand_like(x))  # random numbers that nothing switches off
    assert mixes_records(model, ENTROPY, *images(4)) is None


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, targets: ENTROPY(outputs, targets) / len(targets),
        lambda outputs, targets: ENTROPY(outputs, targets) - ENTROPY(outputs, targets).mean(),
        lambda outputs, targets: F.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)), reduction="none"),
    ],
    ids=["mean", "centred", "contrastive"],
)
def test_losses_that_mix_records(loss):
    assert mixes_records(nn.Linear(4, 3), per_record(loss), *images(4)).startswith("the loss says")


def test_attention_and_recurrence_over_records():
    """Layers that expect the sequence first, given the record first."""
    x, y = images(6, 8)
    assert "the model" in mixes_records(Attention(nn.MultiheadAttention(8, 2)), ENTROPY, x, y)
    assert "the model" in mixes_records(LastStep(nn.LSTM(4, 6)), ENTROPY, *codes(7))


def test_dropout_is_not_mixing():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    assert mixes_records(model, ENTROPY, *images(4)) is None
    layer = nn.LSTM(4, 6, num_layers=2, dropout=0.5, batch_first=True)
    assert mixes_records(LastStep(layer), ENTROPY, *codes(7)) is None


DROPOUTS = {
    "dropout": F.dropout,
    "dropout1d": lambda x: F.dropout1d(x[..., None])[..., 0],
    "dropout2d": lambda x: F.dropout2d(x[..., None, None])[..., 0, 0],
    "dropout3d": lambda x: F.dropout3d(x[..., None, None, None])[..., 0, 0, 0],
    "alpha_dropout": lambda x: F.alpha_dropout(x, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[..., None], training=True)[..., 0],
    "attention": lambda x: F.scaled_dot_product_attention(x[..., None], x[..., None], x[..., None], dropout_p=0.5)[
        ..., 0
    ],
}


@pytest.mark.parametrize("dropout", DROPOUTS.values(), ids=DROPOUTS)
def test_training_mode_is_tried_in_spite_of_dropout(dropout):
    class Training(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.linear, self.function = nn.Linear(4, 3), function

        def forward(self, x):
            return self.linear(self.function(dropout(x)) if self.training else x)

    assert mixes_records(Training(lambda x: x), ENTROPY, *images(4)) is None
    assert "when it is alone" in mixes_records(Training(lambda x: x / x.shape[0]), ENTROPY, *images(4))


class Gated(nn.Module):
    """Mixes records behind a gate and a head that begin at 0."""

    def __init__(self, scale=0.0):
        super().__init__()
        self.body, self.gate, self.head = nn.Linear(4, 8), nn.Parameter(torch.full((8,), scale)), nn.Linear(8, 3)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.head(h + self.gate * (h - h.mean(0)))


@pytest.mark.parametrize("scale", [0.0, 1e-6])
def test_mixing_that_parameters_hide(scale):
    assert "the model says something else" in mixes_records(Gated(scale), ENTROPY, *images(4))


def test_models_that_refuse_other_parameters():
    class Fixed(nn.Linear):
        def forward(self, x):
            assert not self.bias.any()
            return super().forward(x)

    model = Fixed(4, 3)
    nn.init.zeros_(model.bias)
    assert mixes_records(model, ENTROPY, *images(4)) is None
    assert isinstance(engine_for(model, ENTROPY, *images(4)), BookKeeping)


@pytest.mark.parametrize("error", [False, True])
def test_parameters_are_moved_and_come_back(error):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    nn.init.zeros_(model[2].weight)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(2, 4)).sum().backward()
    optimizer.step()
    model[2].weight.data.view(-1)[0] = -0.0
    before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    places = [parameter.data_ptr() for parameter in model.parameters()]
    moved = []
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) if error else nullcontext(), perturbed(model):
            moved.append([parameter.detach().clone() for parameter in model.parameters()])
            model[0].weight.data.zero_()
            assert 1 / (not error)
        assert places == [parameter.data_ptr() for parameter in model.parameters()]
        for name, value in model.state_dict().items():
            assert value.numpy().tobytes() == before[name].numpy().tobytes()
    assert all(map(torch.equal, *moved))
    assert all(bool((a != b).all()) for a, b in zip(moved[0], before.values(), strict=True))
    assert all(bool((a * b >= 0).all()) for a, b in zip(moved[0], before.values(), strict=True))
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0) * bool((x < 0).any()),
        lambda x: x - x.mean(0) * (x.abs() > 1).any(),
        lambda x: x - x.mean(0) * (x[:, -1] == 0).any(),
    ],
    ids=["negative", "large", "padded"],
)
def test_mixing_of_some_records_only(function):
    assert "the model says something else" in mixes_records(Apply(function), ENTROPY, *images(4))


def test_mixing_of_large_codes_only():
    def mixed(codes):
        h = F.one_hot(codes, 10).float().mean(1)
        return h - h.mean(0) * (codes > 1).any()

    assert "the model says something else" in mixes_records(Apply(mixed, 10), ENTROPY, *codes(7))


def test_states_that_change_are_found():
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            self.seen = self.seen + x.detach().mean(0)
            return self.linear(x)

    model = Remembering()
    seen = model.seen
    assert "changes its buffer 'seen'" in mixes_records(model, ENTROPY, *images(4))
    assert model.seen is seen
    assert not seen.any()


def test_outputs_that_are_not_floats():
    class Labelled(nn.Linear):
        def forward(self, x):
            outputs = super().forward(x)
            return {"outputs": outputs, "label": outputs.argmax(1), "sure": outputs > 0.5, "none": None}

    def loss(outputs, targets):
        return ENTROPY(outputs["outputs"], targets)

    assert mixes_records(Labelled(4, 3), loss, *images(4)) is None


def test_not_a_number_is_the_same_as_itself():
    model = Apply(lambda x: (x - 0.5).log())
    assert mixes_records(model, ENTROPY, *images(4)) is None


def test_trying_leaves_no_trace():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(), nn.Flatten(), nn.Linear(288, 3))
    model[2].eval()
    model[4].weight.grad = torch.ones(3, 288)
    before, modes = copy.deepcopy(model), [module.training for module in model.modules()]
    state = torch.get_rng_state()
    x, y = images(3, 8, 8)
    assert "buffer '1." in mixes_records(model, ENTROPY, x, y)
    assert torch.equal(state, torch.get_rng_state())
    assert modes == [module.training for module in model.modules()]
    assert all(map(torch.equal, model.state_dict().values(), before.state_dict().values()))
    assert torch.equal(model[4].weight.grad, torch.ones(3, 288))
    assert model[0].weight.grad is None


def test_only_the_form_of_the_data_matters():
    class Watched(nn.Linear):
        def forward(self, x):
            assert ((x >= 0) & (x <= 1)).all()
            return super().forward(x)

    x, y = torch.full((2, 4), 1e6), torch.tensor([900, 901])
    assert mixes_records(Watched(4, 3), ENTROPY, x, y) is None
    assert mixes_records(Watched(4, 3), ENTROPY, x[:0], y[:0]) is None


# fixing


def normed():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, eps=1e-3), nn.InstanceNorm2d(8, affine=True, track_running_stats=True)
    )


def test_fixed_copies():
    model = normed().double().eval()
    nn.init.normal_(model[1].weight)
    model[1].bias.requires_grad_(False)
    copied = fixed(model)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert isinstance(copied[1], nn.GroupNorm)
    assert (copied[1].num_groups, copied[1].eps) == (8, 1e-3)
    assert torch.equal(copied[1].weight, model[1].weight)
    assert not copied[1].bias.requires_grad
    assert not copied[1].training
    assert copied[1].weight.dtype == torch.float64
    refuse_mixing(copied)
    x, y = images(3, 8, 8)
    assert mixes_records(copied, lambda outputs, targets: outputs.sum((1, 2, 3)), x.double(), y) is None
    with pytest.raises(ValueError, match="'1'"):
        refuse_mixing(model)


def test_a_fixed_layer_of_single_features_is_alive():
    """Groups of one feature, as Opacus makes them, would turn every feature into 0."""
    model = fixed(nn.Sequential(nn.BatchNorm1d(16)))
    assert model(torch.rand(3, 16)).std() > 0.5


def test_batch_norm_that_keeps_to_evaluation_mode_is_left():
    model = nn.Sequential(Eval(8).eval())
    assert isinstance(fixed(model)[0], Eval)


def test_layers_that_need_no_fixing():
    # book-keeping serves them; Opacus' layers in their place would not be faster
    for layer in (nn.LSTM(4, 6), nn.GRU(4, 6), nn.MultiheadAttention(8, 2)):
        assert type(fixed(nn.Sequential(layer))[0]) is type(layer)


def test_fixing_a_layer_that_is_the_model():
    assert isinstance(fixed(nn.BatchNorm1d(4)), nn.GroupNorm)
    model = nn.BatchNorm1d(4)
    with pytest.raises(ValueError, match="itself a BatchNorm1d"):
        fix_in_place(model, torch.optim.SGD(model.parameters()))


def test_a_layer_in_two_places_stays_one():
    norm = nn.BatchNorm1d(4)
    model = fixed(nn.ModuleList([norm, norm, nn.Sequential(norm)]))
    assert model[0] is model[1] is model[2][0]
    assert isinstance(model[0], nn.GroupNorm)


def test_fixing_in_place_keeps_the_optimizer_in_step():
    model = nn.ModuleDict({"norms": normed(), "rnn": nn.LSTM(4, 6)})
    biases = [p for name, p in model.named_parameters() if "bias" in name]
    weights = [p for name, p in model.named_parameters() if "weight" in name]
    groups = [{"params": biases, "weight_decay": 0.0}, {"params": weights, "weight_decay": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    fix_in_place(model, optimizer)
    refuse_mixing(model)
    for group, kind in zip(optimizer.param_groups, ("bias", "weight"), strict=True):
        expected = [id(p) for name, p in model.named_parameters() if kind in name]
        assert sorted(id(p) for p in group["params"]) == sorted(expected)
    sum(p.square().sum() for p in model.parameters()).backward()
    before = model["norms"][1].weight.clone()
    optimizer.step()
    assert not torch.equal(before, model["norms"][1].weight)


def test_fixing_draws_nothing():
    model = nn.Sequential(nn.LSTM(4, 6), nn.BatchNorm1d(6))
    state = torch.get_rng_state()
    fixed(model)
    assert torch.equal(state, torch.get_rng_state())


def test_parameters_that_are_not_trained_stay_out_of_the_optimizer():
    model = normed()
    optimizer = torch.optim.Adam(model[0].parameters())
    fix_in_place(model, optimizer)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model[0].parameters()]


def test_names_of_parameters_stay_in_step():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(model.named_parameters())
    fix_in_place(model, optimizer)
    group = optimizer.param_groups[0]
    assert dict(zip(group["param_names"], group["params"], strict=True)) == dict(model.named_parameters())


def test_an_optimizer_that_has_stepped_is_refused():
    model = normed()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    with pytest.raises(ValueError, match="already stepped"):
        fix_in_place(model, optimizer)
    assert isinstance(model[1], nn.BatchNorm2d)


def test_shared_parameters_are_refused():
    model = nn.Sequential(nn.LayerNorm(8), nn.BatchNorm1d(8))
    model[0].weight = model[1].weight
    with pytest.raises(ValueError, match="shares the parameter 'weight' of a BatchNorm1d"):
        fix_in_place(model, torch.optim.SGD(model.parameters()))
    with pytest.raises(ValueError, match="shares the parameter 'weight' of a BatchNorm1d"):
        fixed(model)
    assert isinstance(model[1], nn.BatchNorm1d)
