"""The book-keeping engine against the naive loop: one backward per record, in float64."""

import copy
import gc
import itertools
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.layers import DPLSTM, DPMultiheadAttention
from torch import nn

from inosgm.training.gradients.base import apply
from inosgm.training.gradients.bookkeeping import BookKeeping, NotPerRecord
from inosgm.training.gradients.groups import Groups
from inosgm.training.gradients.per_record import Lookups, Outer, Rows, _norms


def cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def energy(outputs, targets):
    """A loss of any output: every output coordinate matters differently."""
    flat = outputs.flatten(1)
    return (flat * torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype)).sin().sum(1) * targets


def naive(model, loss, inputs, targets):
    """One list of gradients per record: the plain path."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    result = []
    for k in range(len(targets)):
        one = [part[k : k + 1] for part in inputs] if isinstance(inputs, tuple) else inputs[k : k + 1]
        value = loss(apply(model, one), targets[k : k + 1]).sum()
        result.append(torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True))
    return result


def check(model, inputs, targets, loss=energy, tolerance=1e-9):
    """Norms, sums, losses and outputs of the engine are those of the naive loop, and the model is as before."""
    model = model.double()
    engine = BookKeeping(model, loss)
    before = copy.deepcopy(model.state_dict())
    expected = naive(model, loss, inputs, targets)
    for _ in range(2):  # the first pass also counts uses
        found = engine.gradients(inputs, targets)
    norms = torch.stack([torch.stack([part.square().sum() for part in row]).sum().sqrt() for row in expected])
    torch.testing.assert_close(found.norms(), norms, rtol=tolerance, atol=tolerance)
    weights = torch.linspace(0, 2, len(targets), dtype=torch.float64)
    sums = [sum(w * row[i] for w, row in zip(weights, expected, strict=True)) for i in range(len(engine.parameters))]
    torch.testing.assert_close(found.weighted_sum(weights), sums, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(found.losses, loss(apply(model, inputs), targets).detach())
    assert not found.losses.requires_grad
    assert not found.outputs.requires_grad
    assert_untouched(model, before)
    return found


def assert_untouched(model, before):
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


TARGETS = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 4), (30,)])
def test_linear_with_any_leading_dimensions(leading, bias):
    check(nn.Sequential(nn.Linear(4, 6, bias=bias), nn.Tanh(), nn.Linear(6, 2)), normal(5, *leading, 4), TARGETS)


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    padding = draw(st.sampled_from(["same", "valid", "numbers"]))
    stride = [1] * rank if padding == "same" else [draw(st.integers(1, 2)) for _ in range(rank)]
    module = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1](
        4,
        draw(st.sampled_from([4, 8])),
        kernel,
        stride=stride,
        padding=[draw(st.integers(0, 2)) for _ in range(rank)] if padding == "numbers" else padding,
        dilation=[draw(st.integers(1, 2)) for _ in range(rank)],
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=mode,
    )
    return module, [draw(st.integers(5, 7)) for _ in range(rank)]


@settings(max_examples=60)
@given(convolutions())
def test_convolutions(case):
    module, size = case
    with warnings.catch_warnings():  # torch warns that some paddings copy
        warnings.simplefilter("ignore")
        check(nn.Sequential(module, nn.Tanh()), normal(5, 4, *size), TARGETS)


@pytest.mark.parametrize("form", ["rows", "gram"])
@pytest.mark.parametrize("groups", [1, 2])
def test_both_forms_of_a_convolution(form, groups, monkeypatch):
    from inosgm.training.gradients import convolution, per_record

    monkeypatch.setattr(convolution, "prefer_gram", lambda *shape: form == "gram")
    monkeypatch.setattr(per_record, "CHUNK", 3000)  # several chunks
    found = check(
        nn.Sequential(nn.Conv2d(4, 6, 3, padding=1, groups=groups), nn.Tanh()),
        normal(5, 4, 6, 6).contiguous(memory_format=torch.channels_last),
        TARGETS,
    )
    assert isinstance(found._parts[0], Rows) == (form == "rows")


@pytest.mark.parametrize("form", ["rows", "gram"])
def test_both_forms_of_a_linear_layer(form, monkeypatch):
    from inosgm.training.gradients import per_record

    monkeypatch.setattr(per_record, "prefer_gram", lambda *shape: form == "gram")
    monkeypatch.setattr(per_record, "CHUNK", 1000)
    found = check(nn.Sequential(nn.Linear(4, 6), nn.Tanh()), normal(5, 7, 4), TARGETS)
    assert isinstance(found._parts[0], Rows if form == "rows" else Outer)


@pytest.mark.parametrize("padding", [None, 0, 3])
@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 8), (5, 2, 3)])
def test_embedding(padding, shape):
    tokens = torch.randint(0, 6, shape, generator=torch.Generator().manual_seed(1))
    found = check(nn.Sequential(nn.Embedding(6, 3, padding_idx=padding), nn.Tanh()), tokens, TARGETS)
    assert isinstance(found._parts[0], Lookups)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.LayerNorm(4), (5, 4)),
        (nn.LayerNorm(4), (5, 3, 4)),
        (nn.LayerNorm((3, 4)), (5, 2, 3, 4)),
        (nn.LayerNorm(4, bias=False), (5, 3, 4)),
        (nn.RMSNorm(4), (5, 4)),
        (nn.RMSNorm((3, 4), eps=1e-3), (5, 2, 3, 4)),
        (nn.GroupNorm(2, 4), (5, 4)),
        (nn.GroupNorm(2, 4), (5, 4, 3)),
        (nn.GroupNorm(4, 4), (5, 4, 3, 2)),
        (nn.InstanceNorm1d(4, affine=True), (5, 4, 6)),  # a rule of Opacus
        (nn.InstanceNorm2d(4, affine=True), (5, 4, 3, 2)),
    ],
    ids=str,
)
def test_normalisations(module, shape):
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=index))
    check(nn.Sequential(nn.Linear(shape[-1], shape[-1]), module), normal(*shape), TARGETS)


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "2.weight", "2.bias"])
def test_frozen_parameters_cost_nothing(frozen):
    model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Conv1d(3, 4, 2), nn.Tanh())
    model.get_parameter(frozen).requires_grad_(False)
    assert len(BookKeeping(model, energy).parameters) == 3
    check(model, normal(5, 2, 6), TARGETS)


def test_a_frozen_layer_between_trained_ones():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval().requires_grad_(False), nn.Linear(4, 2))
    check(model, normal(5, 4), TARGETS)


class Shared(nn.Module):
    """One layer used three times, once without effect, and one parameter in two layers."""

    def __init__(self, twin):
        super().__init__()
        self.layer, self.twin, self.last = nn.Linear(4, 4), twin, nn.Linear(4, 3)
        if isinstance(twin, nn.Linear):
            self.twin.weight = self.layer.weight

    def forward(self, x):
        first = self.layer(x)
        self.layer(x * 2)
        return self.last(torch.tanh(self.twin(torch.tanh(self.layer(torch.tanh(first))))))


@pytest.mark.parametrize("leading", [(), (3,)])
@pytest.mark.parametrize("twin", [nn.Identity(), nn.Linear(4, 4), nn.Linear(4, 4, bias=False)], ids=str)
def test_shared_layers_and_parameters(twin, leading):
    check(Shared(copy.deepcopy(twin)), normal(5, *leading, 4), TARGETS)


class SharedConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


def test_a_convolution_used_twice():
    check(SharedConvolution(), normal(5, 3, 6, 6), TARGETS)


class Tied(nn.Module):
    """A language model whose output layer is its table of words."""

    def __init__(self, functional):
        super().__init__()
        self.words, self.hidden, self.functional = nn.Embedding(7, 4), nn.Linear(4, 4), functional
        self.out = nn.Linear(4, 7)
        self.out.weight = self.words.weight

    def forward(self, tokens):
        hidden = torch.tanh(self.hidden(self.words(tokens)))
        return F.linear(hidden, self.words.weight) if self.functional else self.out(hidden)


TOKENS = torch.randint(0, 7, (5, 6), generator=torch.Generator().manual_seed(2))


def test_an_output_layer_tied_to_an_embedding():
    check(Tied(functional=False), TOKENS, TARGETS)


def test_a_parameter_used_outside_of_its_layer_is_followed():
    check(Tied(functional=True), TOKENS, TARGETS)


@pytest.mark.parametrize(
    "use", [lambda w: w.T, lambda w: w * 2, lambda w: torch.stack([w, w])], ids=["T", "*", "stack"]
)
def test_any_use_in_the_loss_is_followed(use):
    model = nn.Linear(4, 2).double()
    check(model, normal(5, 4), TARGETS, lambda outputs, targets: outputs.sum(1) * targets + use(model.weight).sum())


def test_asking_a_parameter_for_its_type_or_form_is_no_use():
    model = nn.Linear(4, 2).double()

    def loss(outputs, targets):
        return outputs.view(torch.Size([5, *model.bias.shape])).sum(1).to(model.weight.dtype)

    BookKeeping(model, loss).gradients(normal(5, 4), TARGETS)


class Recurrent(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.words = nn.Embedding(7, 3)
        self.cells = DPLSTM(3, 4, batch_first=True, **options)
        self.last = nn.Linear(8 if options.get("bidirectional") else 4, 2)

    def forward(self, tokens):
        return self.last(self.cells(self.words(tokens))[0][:, -1])


@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
def test_lstm_of_opacus(options):
    torch.set_default_dtype(torch.float64)  # its first state follows the default
    try:
        check(Recurrent(**options), TOKENS, TARGETS)
    finally:
        torch.set_default_dtype(torch.float32)


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.words, self.last = nn.Embedding(7, 4), nn.Linear(4, 2)
        self.attention = DPMultiheadAttention(4, 2, **options)
        self.norm = nn.LayerNorm(4)

    def forward(self, tokens):
        x = self.words(tokens)
        x = self.norm(x + self.attention(x, x, x)[0])
        return self.last(x.mean(1))


def test_attention_of_opacus():
    check(Attention(batch_first=True), TOKENS, TARGETS)


def test_records_that_do_not_come_first_are_noticed():
    model = Attention(batch_first=True, add_bias_kv=True).double()
    with pytest.raises(NotPerRecord, match="SequenceBias"):
        BookKeeping(model, energy).gradients(TOKENS, TARGETS)

    class TimeFirst(nn.Sequential):
        def forward(self, x):
            return super().forward(x.transpose(0, 1)).transpose(0, 1)

    with pytest.raises(
        NotPerRecord, match=r"a Linear works on a tensor that does not begin with the records of the batch: keep"
    ):
        BookKeeping(TimeFirst(nn.Linear(4, 2)).double(), energy).gradients(normal(5, 3, 4), TARGETS)


def mnist_cnn(scale=1):
    return nn.Sequential(
        *(nn.Conv2d(1, 16 // scale, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16 // scale, 32 // scale, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512 // scale, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


def cifar_cnn(width=4):
    layers, channels = [], 3
    for factor in (1, 2, 4):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width * factor, 3, padding=1), nn.Tanh()]
            channels = width * factor
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * 16, 16), nn.Tanh(), nn.Linear(16, 10))


def mlp():
    widths = [21, 47, 47, 47]
    hidden = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(47, 3))


MODELS = {
    "mnist_cnn": (mnist_cnn, (1, 28, 28), 10),
    "cifar_cnn": (cifar_cnn, (3, 32, 32), 10),
    "mlp": (mlp, (21,), 3),
    "logistic_regression": (lambda: nn.Linear(12, 10), (12,), 10),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    make, shape, classes = MODELS[name]
    torch.manual_seed(3)
    check(make(), normal(5, *shape), torch.arange(5) % classes, cross_entropy)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_float32_and_bfloat16(name, autocast):
    make, shape, classes = MODELS[name]
    torch.manual_seed(3)
    model, inputs, targets = make(), normal(5, *shape).float(), torch.arange(5) % classes
    found = BookKeeping(model, cross_entropy, autocast=autocast).gradients(inputs, targets)
    expected = naive(copy.deepcopy(model).double(), cross_entropy, inputs.double(), targets)
    norms = torch.stack([torch.stack([part.square().sum() for part in row]).sum().sqrt() for row in expected])
    tolerance = 1e-4 if autocast is None else 0.1
    torch.testing.assert_close(found.norms(), norms, rtol=tolerance, atol=0)
    sums = [torch.stack(parts).sum(0).float() for parts in zip(*expected, strict=True)]
    total = found.weighted_sum(torch.ones(5, dtype=torch.float64))
    assert {part.dtype for part in total} == {torch.float32}
    error = sum((a - b).square().sum() for a, b in zip(total, sums, strict=True)).sqrt()
    assert error <= tolerance * sum(part.square().sum() for part in sums).sqrt()


def test_several_inputs_by_position_and_by_name():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, a, b):
            return self.layer(input=a) * b

    model, a, b = Two(), normal(5, 4), normal(5, 3, seed=1)
    found = check(model, (a, b), TARGETS)
    named = BookKeeping(model, energy).gradients({"b": b, "a": a}, TARGETS)
    torch.testing.assert_close(named.norms(), found.norms())


def test_in_place_activations_and_inputs_that_want_gradients():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 6), nn.ReLU(inplace=True))
    check(model, normal(5, 4), TARGETS)
    inputs = normal(5, 4).requires_grad_()
    torch.testing.assert_close(
        BookKeeping(model, energy).gradients(inputs, TARGETS).norms(),
        BookKeeping(model, energy).gradients(inputs.detach(), TARGETS).norms(),
    )
    assert inputs.grad is None


def test_an_input_that_is_overwritten_is_noticed():
    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            x = x.clone()
            result = self.layer(x)
            x.mul_(2)
            return result

    with pytest.raises(NotPerRecord, match="overwritten in place"):
        BookKeeping(Overwrites().double(), energy).gradients(normal(5, 4), TARGETS)


def test_hooks_of_the_user_stay_and_come_after_ours():
    model = nn.Sequential(nn.Linear(4, 3))
    plain = naive(model.double(), lambda outputs, targets: energy(outputs * 2, targets), normal(5, 4), TARGETS)
    handle = model[0].register_forward_hook(lambda module, args, output: output * 2)
    found = BookKeeping(model, energy).gradients(normal(5, 4), TARGETS)
    expected = torch.stack([sum(part.square().sum() for part in row).sqrt() for row in plain])
    torch.testing.assert_close(found.norms(), expected)
    assert list(model[0]._forward_hooks) == [handle.id]


@pytest.mark.parametrize("where", ["forward", "loss"])
def test_nothing_stays_on_the_model_after_an_exception(where):
    class Breaks(nn.Module):
        def forward(self, x):
            if where == "forward":
                raise ZeroDivisionError
            return x

    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), Breaks()).double()
    before = copy.deepcopy(model.state_dict())

    def loss(outputs, targets):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        BookKeeping(model, loss).gradients(normal(5, 4), TARGETS)
    assert_untouched(model, before)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model[1].inplace


def test_nothing_is_kept_in_memory():
    watched = []

    class Watches(nn.Module):
        def forward(self, x):
            watched.append(weakref.ref(x))
            return x * 1

    model = nn.Sequential(Watches(), nn.Linear(4, 3), Watches(), nn.Conv1d(5, 2, 1), Watches()).double()
    gc.collect()
    gc.disable()
    try:
        found = BookKeeping(model, energy).gradients(normal(5, 5, 4), TARGETS)
        assert [ref() for ref in watched] == [None, None, None], "of the graph nothing remains"
        kept = [weakref.ref(part) for part in found._parts]
        del found
        assert [ref() for ref in kept] == [None] * 4
    finally:
        gc.enable()


def test_the_mode_of_the_model_is_respected():
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 2)).double()
    engine = BookKeeping(model, energy)
    torch.manual_seed(1)
    first = engine.gradients(normal(5, 4), TARGETS).norms()
    torch.manual_seed(1)
    assert torch.equal(engine.gradients(normal(5, 4), TARGETS).norms(), first)
    assert not torch.equal(engine.gradients(normal(5, 4), TARGETS).norms(), first)
    check(model.eval(), normal(5, 4), TARGETS)


@pytest.mark.parametrize("name", MODELS)
def test_no_records(name):
    make, shape, _ = MODELS[name]
    model = make()
    engine = BookKeeping(model, cross_entropy)
    inputs, targets = torch.zeros(0, *shape), torch.zeros(0, dtype=torch.int64)
    found = engine.gradients(inputs, targets)
    assert found.norms().shape == found.losses.shape == (0,)
    assert found.norms().dtype == torch.float64
    assert found.outputs.shape[0] == 0
    assert found.outputs.ndim == 2
    total = found.weighted_sum(torch.zeros(0))
    assert [part.shape for part in total] == [parameter.shape for parameter in model.parameters()]
    assert not any(part.any() for part in total)


class Views(nn.Module):
    """Reshapes in the way that torch refuses for no records."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x.view(x.size(0), -1))


def test_no_records_for_a_model_that_cannot_take_none():
    found = BookKeeping(Views(), energy).gradients(torch.zeros(0, 2, 2), torch.zeros(0))
    assert found.outputs.shape == (0, 2)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("name", [*MODELS, "embedding"])
def test_a_record_that_is_not_finite_spoils_only_itself(name, poison):
    torch.manual_seed(3)
    if name == "embedding":
        model, loss = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2)), energy
        inputs, targets = TOKENS, TARGETS.float()
        spoilt = targets.clone()
        spoilt[1] = poison
        bad = BookKeeping(model, loss).gradients(inputs, spoilt)
    else:
        make, shape, classes = MODELS[name]
        model, loss = make(), cross_entropy
        inputs, targets = normal(5, *shape).float(), torch.arange(5) % classes
        spoilt = inputs.clone()
        spoilt[1] *= poison
        bad = BookKeeping(model, loss).gradients(spoilt, targets)
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5], dtype=torch.float64)
    good = BookKeeping(model, loss).gradients(inputs, targets)
    others = torch.tensor([0, 2, 3, 4])
    torch.testing.assert_close(bad.norms()[others], good.norms()[others])
    if poison != 1e30:
        assert not bad.norms()[1].isfinite()
    torch.testing.assert_close(bad.weighted_sum(weights), good.weighted_sum(weights))


@pytest.mark.parametrize("convolution", [False, True])
def test_positions_that_cancel_do_not_make_a_record_look_shorter(convolution):
    """Output gradients of neighbours are opposite, their inputs nearly the same: the gradient is a remainder."""
    positions, width, n = 16, 64, 40
    generator = torch.Generator().manual_seed(5)
    base = torch.randn(n, 1, width, generator=generator)
    noise = torch.randn(n, positions, width, generator=generator) * torch.logspace(-9, 0, n)[:, None, None]
    inputs = (base + noise).requires_grad_(False)
    signs = torch.ones(positions)
    signs[1::2] = -1

    def loss(outputs, targets):
        return (outputs * (signs[:, None] if not convolution else signs)).flatten(1).sum(1) * targets

    if convolution:
        model, inputs = nn.Conv1d(width, 64, 1, bias=False), inputs.transpose(1, 2).contiguous()
    else:
        model = nn.Linear(width, 64, bias=False)
    found = BookKeeping(model, loss).gradients(inputs, torch.ones(n))
    assert not isinstance(found._parts[0], Rows), "this attacks Gram matrices"
    exact = naive(model.double(), loss, inputs.double(), torch.ones(n, dtype=torch.float64))
    exact_norms = torch.stack([row[0].norm() for row in exact])
    assert (found.norms() >= exact_norms * (1 - 1e-6)).all()
    for k in range(n):  # what is released is no longer than what was reported, either
        alone = found.weighted_sum(F.one_hot(torch.tensor(k), n))
        assert alone[0].double().norm() <= found.norms()[k] * (1 + 1e-6)
    largest = (inputs.flatten(1).norm(dim=1) * 8 * 4).double()  # sum_t |a_t||g_t| is about that
    assert (found.norms() <= exact_norms + 0.01 * largest).all()


def test_the_number_of_records_does_not_choose_the_form_of_anybodys_gradient():
    """Gram matrices lengthen the norms of records whose positions cancel: one record must not choose them for all."""
    model = nn.Linear(64, 64, bias=False)
    grads = torch.full((30, 64), 300.0)
    grads[1::2] *= -1
    grads[0, 0] += 1

    def clipped(records):
        everyone = grads.expand(records, 30, 64)
        found = BookKeeping(model, lambda outputs, grads: (outputs * grads).sum((1, 2))).gradients(
            torch.ones(records, 30, 64), everyone
        )
        return found.weighted_sum((1 / found.norms()).clamp(max=1))[0]

    assert (clipped(2048) - clipped(2047)).norm() < 1.001  # 32 MiB of gradients, and a little less


@pytest.mark.parametrize("sizes", [None, [1, 2, 1], [1, 1, 2]], ids=str)
def test_lookups_that_cancel_do_not_drown_those_of_others(sizes):
    """A record, or a unit of two, looks up a row with huge opposite gradients: its own gradient is 0."""
    model = nn.Embedding(7, 3)
    tokens, grads = torch.tensor([[5, 5], [5, 5], [5, 1], [5, 5]]), torch.ones(4, 2, 3)
    groups = None if sizes is None else Groups.of(np.repeat(np.arange(3), sizes), np.ones(3), torch.device("cpu"))
    huge = 1e30 * torch.tensor([1.0, -1.0])
    if sizes is None:
        grads[1] = huge[:, None]
    else:
        first = sum(sizes[: sizes.index(2)])
        grads[first], grads[first + 1] = huge[0], huge[1]
        tokens[first : first + 2] = 5
    found = BookKeeping(model, lambda outputs, grads: (outputs * grads).sum((1, 2))).gradients(tokens, grads, groups)
    weights = (1 / found.norms()).clamp(max=1)
    others = torch.ones(4, dtype=torch.bool)
    others[1 if sizes is None else slice(first, first + 2)] = False
    alone = BookKeeping(model, lambda outputs, grads: (outputs * grads).sum((1, 2))).gradients(
        tokens[others], grads[others]
    )
    rest = alone.weighted_sum((1 / alone.norms()).clamp(max=1))[0]
    torch.testing.assert_close(found.weighted_sum(weights)[0], rest)


def test_unused_parameters_and_losses_without_gradient_give_zeros():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.used(x)

    check(Partly(), normal(5, 4), TARGETS)
    model = nn.Linear(4, 2).double()
    engine = BookKeeping(model, lambda outputs, targets: targets)
    found = engine.gradients(normal(5, 4), TARGETS)
    assert not found.norms().any()
    total = found.weighted_sum(TARGETS)
    assert [part.shape for part in total] == [(2, 4), (2,)]
    assert not any(part.any() for part in total)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm=1.0"),
        (nn.Embedding(4, 4, sparse=True), "sparse=True"),
        (nn.Embedding(4, 4, scale_grad_by_freq=True), "scale_grad_by_freq=True"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layers_that_cannot_be_served_are_named(layer, reason):
    model = nn.Sequential(nn.Linear(4, 4), layer)
    with pytest.raises(NotPerRecord, match=reason):
        BookKeeping(model, energy)
    assert "book-keeping cannot serve" in BookKeeping.unsupported(model)
    assert BookKeeping.unsupported(model.requires_grad_(False)) is None


def test_wrong_shapes_are_named():
    model = nn.Linear(4, 2).double()
    with pytest.raises(ValueError, match=r"loss must give one number per record$"):
        BookKeeping(model, lambda outputs, targets: outputs.mean()).gradients(normal(5, 4), TARGETS)
    engine = BookKeeping(model, energy)
    with pytest.raises(ValueError, match=r"weights must be one number per record$"):
        engine.gradients(normal(5, 4), TARGETS).weighted_sum(torch.ones(4))


@pytest.mark.parametrize("width", [1, 100, 2047, 2048, 2049, 100_000, 3_000_001])
def test_norms_of_long_rows_are_not_short(width):
    """128 roundings is what the trainer allows for; a plain float32 sum of 3 million equal squares is off by 2^17."""
    for values in (torch.full((1, width), 0.1), normal(1, width)):
        exact = values.double().norm()
        assert abs(float(_norms(values)) / float(exact) - 1) < 32 * 2.0**-23
