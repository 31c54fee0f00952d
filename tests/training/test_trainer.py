import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from inosgm import (
    AutomaticClipping,
    BudgetExceeded,
    ClipToShare,
    HardTail,
    Ledger,
    LinearTail,
    NoTail,
    Owners,
    Plan,
    RandomOrder,
    certify,
    importance_weights,
    plan_scale,
    plan_uniform,
)
from inosgm.mechanism.noise import streams
from inosgm.mechanism.sampling import PoissonSampler
from inosgm.training import BookKeeping, Functional, OneByOne, Trainer

N = 60
DRAWN = np.random.default_rng(0)
X, Y = DRAWN.normal(size=(N, 6)).astype(np.float32), DRAWN.integers(0, 3, size=N)
LABELS = np.where(Y == 0, "strict", "open")
HELD_OUT = (DRAWN.normal(size=(N, 6)).astype(np.float32), Y.copy(), LABELS)
OWNERS = Owners(of_record=LABELS, epsilon={"strict": 1.0, "open": 8.0}, delta=1e-5)


def plan(steps=5, noise_scale=1e-9, rate=0.5, **more):
    sizes = [int((label == LABELS).sum()) for label in ("open", "strict")]
    return Plan(
        sample_rates=[rate, rate / 2], sensitivities=[0.7, 0.2], sizes=sizes, labels=["open", "strict"],
        noise_scale=noise_scale, steps=steps, **more,
    )  # fmt: skip


def network(seed=0, kind=None):
    torch.manual_seed(seed)
    return (kind or (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))))()


def trainer(the_plan=None, model=None, optimizer=torch.optim.SGD, loss=None, lr=0.5, **more):
    model = network() if model is None else model
    more = {"owners": LABELS, "key": 3, **more}
    loss = nn.CrossEntropyLoss() if loss is None else loss
    return Trainer(the_plan or plan(), model, loss, optimizer(model.parameters(), lr=lr), **more)


def parameters_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def naive_gradients(model, positions):
    losses, rows = [], []
    for x, y in zip(torch.from_numpy(X[positions]).double(), torch.from_numpy(Y[positions]), strict=True):
        loss = F.cross_entropy(model(x[None]), y[None])
        losses.append(loss.item())
        rows.append(torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]).numpy())
    return np.array(losses), np.array(rows).reshape(len(rows), -1)


@pytest.mark.parametrize("most", [None, 7, 1])
@pytest.mark.parametrize("engine", [None, BookKeeping, Functional, OneByOne])
@pytest.mark.parametrize("tail", [NoTail(), LinearTail(4.0), HardTail(3.0)])
def test_a_step_releases_the_weighted_sum_of_clipped_gradients(tail, engine, most):
    made = trainer(model=network().double(), tail=tail, engine=engine, max_physical_batch=most)
    the_plan, index = made.plan, (LABELS == "strict").astype(int)
    positions = PoissonSampler(the_plan.sample_rates, index).draw(streams(3, 0)[0])
    losses, gradients = naive_gradients(made.model, positions)
    bounds = the_plan.sensitivities[index[positions]]
    rho = importance_weights(losses, bounds, tail, ids=positions)
    clipped = gradients * np.minimum(1, bounds / np.linalg.norm(gradients, axis=1))[:, None]
    value = torch.cat([part.flatten() for part in made.step(X, Y).value]).numpy()
    np.testing.assert_allclose(value, rho @ clipped, atol=1e-7)
    assert positions.size > 20


def test_the_sum_is_divided_by_a_public_constant_and_given_to_the_optimizer():
    made, by_hand = trainer(optimizer=torch.optim.Adam), network()
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.5)
    for _ in range(3):
        value = made.step(X, Y).value
        for parameter, total in zip(by_hand.parameters(), value, strict=True):
            parameter.grad = total / made.plan.expected_batch
        optimizer.step()
    assert torch.equal(parameters_of(made.model), parameters_of(by_hand))


def test_a_schedule_makes_a_step_after_each_step():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
    made = Trainer(plan(), model, F.cross_entropy, optimizer, owners=LABELS, schedule=schedule)
    made.fit(X, Y, progress=False)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


class Pairs(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.from_numpy(X[index]), int(Y[index])


def test_all_forms_of_data_give_the_same_bits(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    forms = {
        "numpy": (X, Y),
        "torch": (torch.from_numpy(X), torch.from_numpy(Y)),
        "float64": (X.astype(np.float64), Y.astype(np.uint8)),
        "memory-mapped": (mapped, Y),
        "dataset": (Pairs(),),
        "tensors": (TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),),
        "pair": ((X, Y),),
    }
    found = {}
    for name, data in forms.items():
        made = trainer(tail=LinearTail(4.0))
        made.fit(*data, progress=False)
        found[name] = parameters_of(made.model)
    assert all(torch.equal(found["numpy"], other) for other in found.values()), found


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, left, right):
        return self.left(left) + self.right(right)


@pytest.mark.parametrize("columns", [(X[:, :4], X[:, 4:]), {"left": X[:, :4], "right": X[:, 4:]}])
def test_models_of_several_inputs(columns):
    made = trainer(model=network(kind=TwoInputs))
    made.fit(columns, Y, progress=False)
    assert made.evaluate(columns, Y, owners=LABELS).records == N


def test_three_methods_are_one_code_path():
    budgets = dict(steps=3, expected_batch=20, clip_norm=0.5)
    for made_plan, tail in (
        (plan_uniform(OWNERS, **budgets), NoTail()),
        (plan_scale(OWNERS, **budgets), NoTail()),
        (plan_scale(OWNERS, **budgets), lambda p: LinearTail(p.tail_length(0.4))),
    ):
        model = network()
        made = Trainer(made_plan, model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), tail=tail)
        curve = made.fit(X, Y, held_out=HELD_OUT, progress=False)
        assert curve.steps == (0, 1, 2, 3)
        assert set(curve.owners) == {"open", "strict"}
        assert type(made.engine) is BookKeeping


class Reshaped(nn.Module):
    """Fails on a batch of no records, as much code does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x.view(x.shape[0], -1))


def test_empty_batches_release_noise_alone():
    made = trainer(plan(rate=1e-9, noise_scale=1.0, steps=20), model=network(kind=Reshaped))
    values = [torch.cat([part.flatten() for part in made.step(X, Y).value]) for _ in range(20)]
    assert 0.7 < torch.cat(values).std() < 1.3  # 420 normals: outside by chance once in 1e15
    assert made.released == 20


def test_broken_records_are_left_out():
    broken = X.copy()
    broken[::3] = np.nan
    broken[1::3, 0] = 1e38
    for most in (None, 5):
        made = trainer(tail=LinearTail(4.0), max_physical_batch=most)
        made.fit(broken, Y, progress=False)
        assert parameters_of(made.model).isfinite().all()


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = nn.Linear(6, 3), nn.Dropout(0.5)

    def forward(self, x):
        return self.layer(self.drop(x))


@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
def test_masks_are_the_same_when_norms_are_taken_and_when_gradients_are_summed(engine):
    """A record alone in its part: its clipped gradient is exactly C long, if both passes saw the same mask."""
    model = network(kind=Dropping)
    bounds = Plan(sample_rates=[1.0], sensitivities=[1e-3], sizes=[2], noise_scale=1e-30, steps=30)
    for most in (None, 1):
        made = trainer(bounds, model=model, owners=[0, 0], engine=engine, max_physical_batch=most)
        same = np.repeat(X[:1], 2, axis=0)
        for _ in range(30):
            total = torch.cat([part.flatten() for part in made.mechanism.release((same, Y[:1].repeat(2))).value])
            assert total.norm() <= 2e-3 * (1 + 1e-5)
            assert total.norm() >= 1e-3 or most is None
            assert total.norm() >= 1.4e-3 * 0.5


class Fickle(Dataset):
    """Augments with numbers that nobody seeds: a record is another one whenever it is fetched."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.from_numpy(X[index]) * float(DRAWN.choice([1e-6, 100.0])), int(Y[index])


def test_a_record_that_changes_between_the_passes_is_still_bounded():
    bounds = Plan(sample_rates=[1.0], sensitivities=[1e-3], sizes=[N], noise_scale=1e-30, steps=20)
    made = trainer(bounds, owners=[0] * N, max_physical_batch=7)
    for _ in range(20):
        total = torch.cat([part.flatten() for part in made.mechanism.release(Fickle()).value])
        assert total.norm() <= 1e-3 * N * (1 + 1e-5)


def test_norms_are_stretched_for_the_coarsest_parameter():
    """A float32 layer behind a float64 one: what the trainer clips by must allow for float32 roundings."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 5).double(), nn.Linear(5, 3)

        def forward(self, x):
            return self.last(self.first(x.double()).float())

    made = trainer(model=network(kind=Mixed), engine=OneByOne)
    batch = made.mechanism.measure((X, Y), None, Y, 0)[0]
    plain = made.engine.gradients(torch.from_numpy(X).double(), torch.from_numpy(Y)).norms().numpy()
    assert (batch.norms() >= plain * (1 + 1e-5)).all()


def test_half_precision_parameters_are_refused():
    with pytest.raises(TypeError, match="autocast"):
        trainer(model=network().bfloat16())


def test_random_numbers_of_the_user_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trainer(model=network(kind=Dropping), key=1)
    torch.manual_seed(5)
    made = trainer(model=network(0, Dropping))
    torch.manual_seed(5)
    made.fit(X, Y, progress=False)
    assert torch.equal(torch.rand(3), expected)


def test_nothing_is_left_on_the_model():
    model = network()
    made = trainer(model=model)
    made.fit(X, Y, progress=False)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
        assert module.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    model.eval()
    made.evaluate(X, Y)
    assert not model.training


def test_a_score_of_ones_own():
    seen = []

    def score(outputs, targets, losses):
        seen.append(outputs.shape)
        return -losses

    loss_first = trainer(tail=HardTail(4.0))
    loss_last = trainer(tail=HardTail(4.0), score=score)
    assert not torch.equal(loss_first.step(X, Y).value[0], loss_last.step(X, Y).value[0])
    assert seen[0][1] == 3
    with pytest.raises(ValueError, match="score must give one number per record"):
        trainer(score=lambda outputs, targets, losses: losses.sum()).step(X, Y)


def test_a_score_that_compares_records_is_refused():
    refused(ValueError, "one record at a time", score=lambda outputs, targets, losses: losses - losses.mean())
    refused(ValueError, "one record at a time", score=lambda outputs, targets, losses: losses.argsort().argsort())


@pytest.mark.parametrize(
    "score",
    [
        lambda outputs, targets, losses: -losses if (losses > 20).any() else losses,
        lambda outputs, targets, losses: losses / losses.max().clamp(min=20),
        lambda outputs, targets, losses: losses if outputs.abs().max() < 20 else -losses,
    ],
)
def test_a_large_loss_does_not_change_the_scores_of_others(score):
    """Synthetic records have no such losses, so only what a score calls shows that it looks at the batch."""
    made = trainer(score=score, model=network(kind=lambda: nn.Linear(6, 3)))
    made.check(X, Y)
    far, wrong = X.copy(), Y.copy()
    far[0] *= 1e4
    wrong[0] = int(made.model(torch.from_numpy(far[:1])).argmin())
    everybody, owners = np.arange(len(X)), np.zeros(len(X), dtype=np.int64)
    _, beside = made.mechanism.measure((far, wrong), everybody, owners, 0)
    _, alone = made.mechanism.measure((far, wrong), everybody[1:], owners[1:], 0)
    assert np.allclose(np.asarray(beside)[1:], np.asarray(alone), rtol=1e-5)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([NoTail(), LinearTail(3.0), HardTail(2.0)]), st.sampled_from([None, 3]), st.integers(0, 9))
def test_no_record_moves_the_sum_by_more_than_its_sensitivity(tail, most, seed):
    made = trainer(tail=tail, max_physical_batch=most, model=network(seed))
    assert certify(made, (X, Y), evaluations=40, seed=seed).holds(1e-4)


@pytest.mark.parametrize("clipping", [ClipToShare(), AutomaticClipping()])
def test_other_clippings_and_orders(clipping):
    made = trainer(tail=LinearTail(3.0), clipping=clipping, order=RandomOrder(1))
    assert certify(made, (X, Y), evaluations=60).holds(1e-4)


def test_the_certifier_sees_through_a_loss_that_mixes_records():
    def contrast(outputs, targets):
        return F.cross_entropy(outputs - outputs.mean(0), targets, reduction="none")

    made = trainer(loss=contrast, engine=OneByOne)
    with pytest.raises(ValueError, match="independently"):
        trainer(loss=contrast).step(X, Y)
    made.fit(X, Y, progress=False)  # record by record there is nothing to mix


def refused(error, message, *data, **more):
    ledger = Ledger(owners=OWNERS)
    with pytest.raises(error, match=message):
        trainer(plan(noise_scale=5.0), ledger=ledger, key=None, **more).step(*(data or (X, Y)))
    assert ledger.history() == ()


def test_what_cannot_be_trained_is_refused_before_anything_is_spent():
    refused(ValueError, "BatchNorm1d", model=nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))
    mixing = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    refused(ValueError, "BatchNorm1d", model=mixing, engine=OneByOne)
    refused(ValueError, "per record", loss=lambda outputs, targets: outputs.sum(), engine=BookKeeping)
    refused(ValueError, "per record", loss=lambda outputs, targets: outputs.sum())
    refused(ValueError, "one record per owner", X[:10], Y[:10])
    refused(ValueError, "equally long", X, Y[:10])
    refused(TypeError, "data must be inputs and targets", X)
    refused(RuntimeError, "shape", X[:, :3], Y)


def test_wrong_arguments_are_named():
    model, other = network(), network()
    sgd = torch.optim.SGD
    with pytest.raises(ValueError, match="owners must be given"):
        Trainer(plan(), model, F.cross_entropy, sgd(model.parameters()))
    with pytest.raises(ValueError, match=r"does not update '0\.weight'"):
        trainer(model=model, optimizer=lambda parameters, lr: sgd(list(parameters)[2:], lr))
    with pytest.raises(ValueError, match="does not update"):
        trainer(model=model, optimizer=lambda parameters, lr: sgd(other.parameters(), lr))
    with pytest.raises(ValueError, match="parameters of the model only"):
        trainer(model=model, optimizer=lambda ps, lr: sgd([*ps, *other.parameters()], lr))
    with pytest.raises(TypeError, match="closure"):
        trainer(model=model, optimizer=torch.optim.LBFGS)
    optimizer = sgd(model.parameters(), lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(TypeError, match="spend budget"):
        Trainer(plan(), model, F.cross_entropy, optimizer, owners=LABELS, schedule=plateau)
    foreign = torch.optim.lr_scheduler.StepLR(sgd(other.parameters(), lr=1.0), 1)
    with pytest.raises(ValueError, match="belong to the optimizer"):
        Trainer(plan(), model, F.cross_entropy, optimizer, owners=LABELS, schedule=foreign)
    with pytest.raises(ValueError, match="max_physical_batch"):
        trainer(max_physical_batch=0)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="none has requires_grad"):
        trainer(model=model)


class KeptInEvaluation(nn.Module):
    """The usual way to fine-tune under a frozen norm."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6).requires_grad_(False), nn.Linear(6, 3)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.head(self.norm(x))


def test_a_norm_that_is_kept_in_evaluation_mode_is_in_it_when_gradients_are_taken():
    model = KeptInEvaluation()
    assert model.norm.training  # as it was made
    trainer(model=model).fit(X, Y, progress=False)
    assert not model.norm.training
    assert not model.norm.running_mean.any()


def test_a_layer_that_is_put_in_later_is_looked_at():
    model = nn.Sequential(nn.Linear(6, 5), nn.Identity(), nn.Linear(5, 3))
    ledger = Ledger(owners=OWNERS)
    made = trainer(plan(noise_scale=5.0), model=model, ledger=ledger, key=None)
    made.step(X, Y)
    model[1] = nn.BatchNorm1d(5, affine=False)
    with pytest.raises(ValueError, match="BatchNorm1d"):
        made.step(X, Y)
    assert sum(charge.steps for charge in ledger.history()) == made.released == 1


class Masked(nn.Module):
    """Mixes records only if it is given a mask."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x, mask=None):
        return self.layer(x if mask is None else x * mask / mask.mean())


def test_data_of_another_form_is_tried_anew():
    ledger = Ledger(owners=OWNERS)
    made = trainer(plan(noise_scale=5.0), model=Masked(), ledger=ledger, key=None)
    made.step({"x": X}, Y)
    for data, error in (
        (({"x": X, "mask": X[:, :1]}, Y), ValueError),
        (({"x": X[:, :4]}, Y), RuntimeError),
        (({"x": X}, Y + 1), ValueError),
    ):
        with pytest.raises(error):
            made.step(*data)
    assert sum(charge.steps for charge in ledger.history()) == made.released == 1


def test_modes_and_hooks_that_change_are_looked_at():
    model = KeptInEvaluation()
    made = trainer(model=model)
    made.step(X, Y)
    model.train = lambda mode=True: nn.Module.train(model, mode)
    with pytest.raises(ValueError, match="BatchNorm1d"):
        made.step(X, Y)
    model = network()
    made = trainer(model=model)
    made.step(X, Y)
    model[1].register_forward_hook(lambda module, given, output: output - output.mean(0))
    with pytest.raises(ValueError, match="independently"):
        made.step(X, Y)


class Factors(nn.Module):
    """A recommender: one number per record in every column."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(5, 3), nn.Embedding(7, 3)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(1, keepdim=True)


def test_columns_of_single_numbers():
    drawn = np.random.default_rng(5)
    columns = {"user": drawn.integers(0, 5, N), "item": drawn.integers(0, 7, N)}
    made = trainer(model=Factors(), loss=nn.MSELoss())
    made.fit(columns, X[:, :1], progress=False)
    assert type(made.engine) is BookKeeping


def test_targets_are_looked_at_before_anything_is_spent():
    refused(ValueError, "classes 0 to 2.*start at 1", X, Y + 1)
    refused(ValueError, "classes 0 to 2", X, Y + 1, loss=F.cross_entropy)
    refused(TypeError, "targets must be numbers", X, LABELS)
    refused(TypeError, "write CrossEntropyLoss", loss=nn.CrossEntropyLoss)
    made = trainer(loss=nn.CrossEntropyLoss(ignore_index=7))
    made.step(X, np.where(Y == 1, 7, Y).tolist())


def test_a_schedule_that_ends_before_the_plan_is_refused():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    short = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=4)
    with pytest.raises(ValueError, match="must last for the 5 steps"):
        Trainer(plan(), model, F.cross_entropy, optimizer, owners=LABELS, schedule=short)


def test_the_form_of_a_record_is_shown_where_a_model_cannot_take_it():
    with pytest.raises(TypeError, match="are uint8") as error:
        trainer().step((X * 9).astype(np.uint8), Y)
    assert any("a record has inputs uint8 (6,) and targets int64 ()" in note for note in error.value.__notes__)
    with pytest.raises(RuntimeError) as error:
        trainer().evaluate(X[:, :5], Y)
    assert error.value.__notes__ == ["(a record to evaluate has inputs float32 (5,) and targets int64 ())"]


def test_what_cannot_be_trained_with_begins_no_run(tmp_path):
    with pytest.raises(RuntimeError) as error:
        trainer().fit(X[:, :5], Y, held_out=(HELD_OUT[0][:, :5], HELD_OUT[1]), run=tmp_path / "run", progress=False)
    assert any("a record has inputs float32 (5,)" in note for note in error.value.__notes__)
    assert not (tmp_path / "run").exists()


def test_held_out_data_sets_may_have_owners():
    curve = trainer().fit(X, Y, held_out=(TensorDataset(*map(torch.from_numpy, HELD_OUT[:2])), LABELS), progress=False)
    assert set(curve.owners) == {"open", "strict"}


def test_frozen_parameters_stay():
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    made = trainer(model=model)
    made.fit(X, Y, progress=False)
    assert torch.equal(model[0].weight, before)
    assert len(made.engine.parameters) == 2


def test_layers_that_are_unfrozen_are_trained_from_then_on():
    model = network()
    model[0].requires_grad_(False)
    made = trainer(model=model)
    made.step(X, Y)
    model[0].requires_grad_(True)
    before = model[0].weight.detach().clone()
    assert len(made.step(X, Y).value) == 4
    assert not torch.equal(model[0].weight, before)


def test_fix_replaces_what_mixes_records():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    made = trainer(model=model, fix=True)
    made.fit(X, Y, progress=False)
    assert isinstance(model[1], nn.GroupNorm)


def test_training_pays_once_and_never_more_than_is_granted():
    made_plan = plan_scale(OWNERS, steps=4, expected_batch=20, clip_norm=0.5)
    ledger = Ledger(owners=OWNERS)
    made = trainer(made_plan, ledger=ledger, key=None)
    made.fit(X, Y, progress=False)
    assert sum(charge.steps for charge in ledger.history()) == 4
    assert made.spent() == pytest.approx(ledger.spent())
    with pytest.raises(RuntimeError, match="all 4 steps"):
        made.step(X, Y)
    with pytest.raises(BudgetExceeded):
        trainer(made_plan, ledger=ledger, key=None).step(X, Y)


def test_regression_and_binary_losses():
    target = X[:, :1]
    model = nn.Linear(6, 1)
    made = trainer(model=model, loss=nn.MSELoss())
    made.fit(X, target, progress=False)
    found = made.evaluate(X, target, owners=LABELS)
    assert found.accuracy is None
    assert found.by_owner["open"].loss > 0
    binary = (Y == 0).astype(np.float32)[:, None]
    made = trainer(model=nn.Linear(6, 1), loss=nn.BCEWithLogitsLoss())
    made.fit(X, binary, progress=False)
    assert 0 <= made.evaluate(X, binary).accuracy <= 1


def test_half_precision_forward():
    made = trainer(autocast=torch.bfloat16)
    exact = trainer()
    half, whole = (torch.cat([part.flatten() for part in one.step(X, Y).value]) for one in (made, exact))
    assert half.dtype == torch.float32
    assert not torch.equal(half, whole)
    torch.testing.assert_close(half, whole, rtol=0.1, atol=0.1)


def test_diagnostics_of_training_data_are_marked_private():
    made = trainer()
    assert made.diagnose(X, Y).private
    assert not made.diagnose(*HELD_OUT[:2], owners=LABELS).private
