"""Norms and sums of gradients are computed in float32 or better, whatever the forward pass is computed in."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from inosgm import Plan, audit_mechanism, certify
from inosgm.mechanism.inspection import Inspection
from inosgm.training import BookKeeping, Functional, OneByOne, Trainer
from inosgm.training.gradients import engine_for, layers, per_record, precision
from inosgm.training.gradients.per_record import Rows

pytestmark = pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # RMSNorm under autocast
BF16, F16 = torch.bfloat16, torch.float16
ROUNDING = 1e-3
"""A float32 sum of 4,096 records is off by some 4e-4 of one sensitivity (LIMITATIONS, Training)."""


class Normed(nn.Module):
    """A layer under a rule of Opacus between two layers that autocast runs in half precision."""

    def __init__(self, layer=None):
        super().__init__()
        self.before = nn.Conv1d(3, 3, 1).requires_grad_(False)
        self.layer = nn.InstanceNorm1d(3, affine=True) if layer is None else layer
        self.after = nn.Linear(24, 2).requires_grad_(False)
        self.after.weight.data.mul_(100)  # gradients are longer than the clip norm

    def forward(self, x):
        return self.after(self.layer(self.before(x)).flatten(1))


def first_output(outputs, targets):
    return outputs[:, 0]


def similar(records):
    """Return records that are nearly alike, so that their gradients add up to a long sum."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 3, 8, generator=generator) + 0.01 * torch.randn(records, 3, 8, generator=generator)
    return x, torch.zeros(records, dtype=torch.long)


def trainer(records, layer=None, steps=1, **more):
    torch.manual_seed(0)
    model = more.pop("model", None) or Normed(layer)
    plan = Plan(sample_rates=[1.0], sensitivities=[1.0], sizes=[records], noise_scale=1.0, steps=steps)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.0)
    return Trainer(plan, model, first_output, optimizer, owners=[0] * records, key=1, **more)


def worst_move(made, data, sizes):
    """Return the most that the sum moves when a record is added to a batch of one of some sizes."""
    worst, before = 0.0, None
    for size in sizes:
        total = torch.cat([part.double().flatten() for part in Inspection(made).sums(data, [np.arange(size)])[0]])
        worst = worst if before is None else max(worst, float((total - before).norm()))
        before = total
    return worst


WAYS = {
    "bfloat16": (BF16, None),
    "float16": (F16, None),
    "bfloat16 of the user's own": (None, BF16),
    "both": (BF16, BF16),
}


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
def test_a_record_moves_the_sum_by_its_sensitivity(engine, way, parts):
    """The attack: 4,096 similar records, whose sum in bfloat16 is a multiple of 16 sensitivities.

    Of 18 such sums in a row, two neighbours differ by 16; of 300 records with the slow engine, some of four by 2.
    """
    autocast, ambient = WAYS[way]
    sizes = range(296, 300) if engine is OneByOne else range(4078, 4096)
    data = similar(sizes[-1])
    made = trainer(sizes[-1], engine=engine, autocast=autocast, max_physical_batch=-(-sizes[-1] // parts))
    with nullcontext() if ambient is None else torch.autocast("cpu", dtype=ambient):
        assert 0.9 < worst_move(made, data, sizes) < 1 + ROUNDING


LAYERS = {
    "Linear": lambda: nn.Linear(8, 8),
    "Conv1d": lambda: nn.Conv1d(3, 3, 3, padding=1),
    "GroupNorm": lambda: nn.GroupNorm(1, 3),
    "LayerNorm": lambda: nn.LayerNorm(8),
    "RMSNorm": lambda: nn.RMSNorm(8),
    "InstanceNorm": lambda: nn.InstanceNorm1d(3, affine=True),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("ambient", [None, BF16])
def test_norms_are_not_below_what_is_summed(layer, ambient):
    """The norm of a record alone is that of its own sum, for each rule; in half precision both are the same numbers."""
    x, y = similar(5)
    torch.manual_seed(0)
    model = Normed(LAYERS[layer]())
    with nullcontext() if ambient is None else torch.autocast("cpu", dtype=ambient):
        found = BookKeeping(model, first_output, autocast=None if ambient else BF16).gradients(x, y)
        for record in range(5):
            alone = found.weighted_sum(torch.eye(5)[record])
            assert all(part.dtype == torch.float32 for part in alone)
            length = torch.cat([part.double().flatten() for part in alone]).norm()
            assert found.norms()[record] >= length * (1 - 1e-6)


class Products(TorchDispatchMode):
    """Notes the types of all matrix products, and of rows that are reduced to norms."""

    NAMES = ("mm", "bmm", "mv", "addmm", "baddbmm", "dot", "linalg_vector_norm", "convolution_backward")

    def __init__(self):
        super().__init__()
        self.types = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.overloadpacket.__name__ in self.NAMES:
            self.types.update(leaf.dtype for leaf in args if isinstance(leaf, torch.Tensor))
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
def test_no_product_of_a_sum_is_in_half_precision(engine, layer):
    x, y = similar(5)
    made = engine(Normed(LAYERS[layer]()), first_output)
    with torch.autocast("cpu", dtype=BF16):
        found = made.gradients(x, y)
        with Products() as products:
            found.norms()
            found.weighted_sum(torch.ones(5, dtype=torch.float64))
    assert products.types <= {torch.float32, torch.float64}


def test_rows_in_half_precision_are_refused():
    for dtype in (BF16, F16):
        with pytest.raises(TypeError, match="float32"):
            Rows(torch.ones(3, 2, dtype=dtype))


class Scaled(nn.Module):
    """A layer of a user's, with a rule that is registered with Opacus and computes in half precision."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.weight


def test_a_rule_of_a_users_own_that_computes_in_half_precision_is_not_used(monkeypatch):
    from opacus.grad_sample import GradSampleModule

    def rule(layer, inputs, output_grads):
        return {layer.weight: (inputs[0].bfloat16() * output_grads.bfloat16()).sum(1)}

    monkeypatch.setitem(GradSampleModule.GRAD_SAMPLERS, Scaled, rule)
    x, y = similar(5)
    with pytest.raises(TypeError, match="bfloat16"):
        BookKeeping(Normed(Scaled()), first_output).gradients(x, y)
    assert type(engine_for(Normed(Scaled()), first_output, x, y)) is Functional


@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
def test_engines_refuse_to_train_parameters_in_half_precision(engine):
    with pytest.raises(TypeError, match="bfloat16"):
        engine(nn.Linear(2, 2).bfloat16(), first_output)


def test_a_model_that_is_turned_into_half_precision_between_steps_is_refused():
    made = trainer(8, steps=2)
    made.step(*similar(8))
    made.model.bfloat16()
    with pytest.raises(TypeError, match="float32 or float64"):
        made.step(*similar(8))
    assert made.released == 1


class Adapted(nn.Module):
    """A frozen base in bfloat16, and an adapter of low rank in float32."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(24, 16).bfloat16().requires_grad_(False)
        self.down, self.up = nn.Linear(24, 2, bias=False), nn.Linear(2, 16, bias=False)
        self.head = nn.Linear(16, 2).bfloat16().requires_grad_(False)
        self.head.weight.data.mul_(100)

    def forward(self, x):
        x = x.flatten(1)
        hidden = self.base(x.bfloat16()) + self.up(self.down(x)).bfloat16()
        return self.head(hidden)


@pytest.mark.parametrize("autocast", [None, BF16])
@pytest.mark.parametrize("engine", [BookKeeping, Functional])
def test_adapters_of_a_frozen_base_in_half_precision(engine, autocast):
    made = trainer(4096, engine=engine, autocast=autocast, model=Adapted())
    assert 0.9 < worst_move(made, similar(4096), range(4050, 4096)) < 1 + ROUNDING


PRECISIONS = {"highest": 2.0**-24, "high": 2.0**-11, "medium": 2.0**-8}


@pytest.fixture
def restored():
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
@pytest.mark.parametrize("name", PRECISIONS)
def test_norms_allow_for_products_that_torch_may_round(restored, engine, name):
    """Each of the two factors of a product is longer by one rounding at most: (1 + u)^2."""
    x, y = similar(5)
    made = trainer(5, engine=engine, layer=nn.Linear(8, 8))
    plain = made.mechanism.measure((x, y), None, y, 0)[0].norms()
    torch.set_float32_matmul_precision(name)
    assert (
        made.mechanism.measure((x, y), None, y, 0)[0].norms()
        >= plain * (1 - 1e-6) * (1 + PRECISIONS[name]) ** 2 / (1 + 2.0**-24) ** 2
    ).all()


@pytest.mark.skipif(
    not hasattr(torch.backends.mkldnn, "matmul"), reason="torch 2.9 and later have a setting per backend"
)
def test_precisions_may_be_set_by_backend():
    """`torch.get_float32_matmul_precision` raises once a backend has a setting of its own."""
    x, y = similar(5)
    made = trainer(5, layer=nn.Linear(8, 8))
    plain = made.mechanism.measure((x, y), None, y, 0)[0].norms()
    for operation in (torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv):
        before, operation.fp32_precision = operation.fp32_precision, "bf16"
        try:
            found = made.mechanism.measure((x, y), None, y, 0)[0].norms()
        finally:
            operation.fp32_precision = before
        if operation is torch.backends.mkldnn.matmul:
            assert (found >= plain * (1 + 2.0**-8)).all()


def test_oneDNN_may_be_told_by_the_environment(monkeypatch):
    x, y = similar(5)
    plain = trainer(5).mechanism.measure((x, y), None, y, 0)[0].norms()
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    precision._of_environment.cache_clear()  # which a process reads once
    try:
        assert (trainer(5).mechanism.measure((x, y), None, y, 0)[0].norms() >= plain * (1 + 2.0**-8)).all()
    finally:
        monkeypatch.undo()
        precision._of_environment.cache_clear()


def test_sums_of_convolutions_may_be_rounded_where_norms_are_not():
    """Positions that cancel: what rounding leaves of them is no longer than the norm allows."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 2, 3, generator=generator)
    inputs[:, 1] = inputs[:, 0]
    output_grads = torch.randn(4, 2, 5, generator=generator)
    output_grads[:, 1] = -output_grads[:, 0] * (1 + 1e-3)
    allowed = per_record.gram_squares(inputs, output_grads, 2.0**-24, 2.0**-8).sqrt()
    rounded = torch.bmm(output_grads.bfloat16().double().transpose(1, 2), inputs.bfloat16().double())
    assert (
        rounded.flatten(1).norm(dim=1) > per_record.gram_squares(inputs, output_grads, 2.0**-24, 2.0**-24).sqrt()
    ).any()
    assert (rounded.flatten(1).norm(dim=1) <= allowed).all()


@pytest.mark.parametrize("sizes", [(1e18, 1e-23), (1e-23, 1e18)])
def test_products_that_underflow_are_not_lost(sizes):
    """Squares of 2e-23 are 0 in float32, so that Gram matrices said 1e-19 of a gradient of 5e-3."""
    generator = torch.Generator().manual_seed(0)
    inputs, output_grads = (size * (1 + torch.rand(3, 4, 64, generator=generator)) for size in sizes)
    made = per_record.Outer(inputs, output_grads)
    true = torch.bmm(output_grads.double().transpose(1, 2), inputs.double()).flatten(1).norm(dim=1)
    assert (per_record.norms_of([made.factors()]) >= true).all()
    usual = per_record.Outer(inputs / sizes[0], output_grads / sizes[1])
    exact = torch.bmm(usual.output_grads.double().transpose(1, 2), usual.inputs.double()).flatten(1).norm(dim=1)
    assert torch.allclose(per_record.norms_of([usual.factors()]), exact, rtol=1e-5)


def test_norms_of_rows_that_do_not_lie_together_in_memory():
    """One large number and many small ones: added up one by one, each of them is lost to a rounding."""
    rows = torch.full((3, 2048), 2.9e-8**0.5)
    rows[:, 0] = 1
    for layout in (rows, rows.t().contiguous().t()):
        norms = per_record.norms_of([(layout,)])
        assert (norms * (1 + 2.0**-16) >= layout.double().norm(dim=1)).all()


@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
@pytest.mark.parametrize("most", [None, 2])
def test_a_weight_that_float32_holds_only_roughly(engine, most):
    """A gradient of 4e36 and a sensitivity of 5e-9: the factor 1.25e-45 is rounded to 1.4e-45."""
    model = nn.Linear(1, 1, bias=False)
    sizes = {"sample_rates": [1.0], "sensitivities": [5e-9], "sizes": [3], "noise_scale": 1e-9, "steps": 1}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    options = {"owners": [0] * 3, "key": 1, "engine": engine, "max_physical_batch": most}
    made = Trainer(Plan(**sizes), model, first_output, optimizer, **options)
    data = torch.tensor([[4e36], [1.0], [0.0]]), torch.zeros(3, dtype=torch.long)
    for positions, longest in (([0], 5e-9), ([0, 1], 1e-8), ([0, 1, 2], 1e-8)):
        total = Inspection(made).sums(data, [np.array(positions)])[0][0]
        assert abs(float(total)) <= longest * (1 + 1e-6)


def test_certify_and_the_audit_see_a_sum_in_half_precision(monkeypatch):
    """Rules as they were: rows in bfloat16, which are summed in that and widened at the end."""
    data = similar(130)

    def made():
        return trainer(130, autocast=BF16)

    assert certify(made(), data, evaluations=300).holds(ROUNDING)
    monkeypatch.setattr(Rows, "__post_init__", lambda rows: None)
    monkeypatch.setattr(layers, "wide", lambda values: values)
    monkeypatch.setattr(per_record, "_norms", lambda rows, norms=per_record._norms: norms(rows).float())
    assert certify(made(), data, evaluations=300).ratio > 1.1
    found = audit_mechanism(made(), 0, runs=4000, data=data)
    assert found.contradicts
    assert next(row for row in found.rows if row.canary == "worst record of the data").bound.contradicts
