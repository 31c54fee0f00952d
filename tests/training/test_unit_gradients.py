"""Gradients of units against the naive loop, and training with units and with several views of a record."""

import pickle

import numpy as np
import pytest
import torch
from gradient_models import ENTROPY, MODELS, case, naive
from torch import nn
from torch.utils.data import Dataset

from inosgm import (
    INOSGM,
    Ledger,
    LinearTail,
    Owners,
    Plan,
    Trainer,
    UnitMean,
    UnitSum,
    audit_mechanism,
    certify,
    plan_sample,
)
from inosgm._internal.trees import tree_map
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.units import RecordsOfUnits
from inosgm.training.gradients import BookKeeping, Functional, OneByOne, one_by_one
from inosgm.training.gradients.convolution import Windows
from inosgm.training.gradients.groups import Groups, grouped
from inosgm.training.gradients.per_record import Rows
from inosgm.training.workers import Workers

RAGGED, EVEN = [0, 0, 0, 1, 2, 2, 2, 2, 2], [0, 0, 1, 1, 2, 2]


def expected(model, inputs, targets, groups, shares, weights):
    """Norms and the weighted sum of units, from one backward pass per record."""
    vectors = []
    for unit, share in enumerate(shares.tolist()):
        ones = torch.tensor([share if group == unit else 0.0 for group in groups])
        vectors.append(naive(model, ENTROPY, inputs, targets, ones)[1])
    norms = torch.stack([torch.stack([part.square().sum() for part in vector]).sum().sqrt() for vector in vectors])
    total = [
        sum(w * part for w, part in zip(weights.tolist(), parts, strict=True)) for parts in zip(*vectors, strict=True)
    ]
    return norms, total


def repeated(name, count):
    model, inputs, targets = case(name)
    places = torch.arange(count) % 5
    return model, *tree_map(lambda column: column[places], (inputs, targets))


def check(engine, name, groups, shares, tolerance=2e-5):
    model, inputs, targets = repeated(name, len(groups))
    units = Groups.of(np.array(groups), np.array(shares), torch.device("cpu"))
    weights = torch.linspace(0.2, 1.5, len(shares), dtype=torch.float64)
    found = engine(model, ENTROPY).gradients(inputs, targets, units)
    norms, total = expected(model, inputs, targets, groups, np.array(shares), weights)
    torch.testing.assert_close(found.norms(), norms, rtol=tolerance, atol=tolerance)
    assert (found.norms() >= norms * (1 - 1e-6)).all()  # never below, but for roundings
    for one, other in zip(found.weighted_sum(weights), total, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=tolerance)
    assert found.losses.shape == (len(groups),)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "LSTM"])
def test_book_keeping_gives_the_gradients_of_units(name):
    check(BookKeeping, name, RAGGED, [1 / 3, 1.0, 1 / 5])
    check(BookKeeping, name, EVEN, [1.0, 1.0, 1.0])


SKEWED = np.repeat(np.arange(9), [1, 1, 17, 1, 2, 1, 3, 6, 1]).tolist()


@pytest.mark.parametrize("name", ["MLP", "MNIST CNN", "Linear on sequences", "Transformer", "tied", "bare parameters"])
def test_units_of_very_different_sizes_are_put_into_classes(name):
    check(BookKeeping, name, SKEWED, (1 / np.bincount(SKEWED)).tolist())


@pytest.mark.parametrize(
    "sizes",
    [np.random.default_rng(0).zipf(1.6, 60).clip(max=80), [9] * 54 + [10, 11, 12, 13, 14, 16]],
    ids=["zipf", "9"],
)
def test_classes_lose_no_unit_and_waste_few_places(sizes):
    """The second sizes would be cut into one class of themselves, again and again."""
    index = np.repeat(np.arange(60), sizes)
    groups = Groups.of(index, np.arange(60) / 60, torch.device("cpu"))
    classes = groups.classes(lambda size: size < 12)
    units, records = (torch.cat([entry[i] for entry in classes]) for i in range(2))
    assert units.sort().values.tolist() == list(range(60))
    assert records.sort().values.tolist() == list(range(index.size))
    for places, own, some in classes:
        assert max(some.sizes) <= 2 * min(some.sizes)
        assert len({(size == 1, size < 12) for size in some.sizes}) == 1  # one form
        assert (groups.index[own] == places[some.index]).all()
        assert (some.shares == groups.shares[places]).all()


@pytest.mark.parametrize("size", [20, 24])
def test_norms_of_units_do_not_depend_on_the_sizes_of_others(size):
    """Records of a unit cancel here, which Gram matrices lengthen norms for: one unit must not choose them for all."""
    model = nn.Linear(64, 64, bias=False)

    def clipped(sizes):
        groups = Groups.of(np.repeat(np.arange(len(sizes)), sizes), np.ones(len(sizes)), torch.device("cpu"))
        grads = torch.full((sum(sizes), 64), 300.0)
        grads[1::2] *= -1
        grads[::4, 0] += 1
        found = BookKeeping(model, lambda outputs, grads: (outputs * grads).sum(1)).gradients(
            torch.ones(sum(sizes), 64), grads, groups
        )
        return found.weighted_sum((1 / found.norms()).clamp(max=1))[0]

    before = clipped([size] * 100)
    for other in (1, 18, 22, 24, 60):
        assert (clipped([size] * 100 + [other]) - before).norm() < 1.0001


@pytest.mark.parametrize("name", ["MLP", "MNIST CNN", "LSTM", "bare parameters", "dict"])
def test_the_loop_gives_the_gradients_of_units(name, monkeypatch):
    check(OneByOne, name, RAGGED, [1 / 3, 1.0, 1 / 5])
    monkeypatch.setattr(one_by_one, "KEPT_BYTES", 0)  # gradients are computed twice
    check(OneByOne, name, RAGGED, [1 / 3, 1.0, 1 / 5])


@pytest.mark.parametrize("name", ["MLP", "MNIST CNN", "Transformer"])
def test_the_mapped_engine_gives_the_gradients_of_units(name):
    check(Functional, name, RAGGED, [1 / 3, 1.0, 1 / 5])


@pytest.mark.parametrize("gram", [True, False])
@pytest.mark.parametrize("conv_groups", [1, 2])
def test_windows_of_units_in_both_forms(gram, conv_groups):
    """Gram matrices and instantiated gradients agree with the sums of the rows of records."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=conv_groups)
    part = Windows.of(layer, torch.randn(9, 4, 6, 5, generator=generator), torch.randn(9, 6, 3, 3, generator=generator))
    units = Groups.of(np.array(RAGGED), np.ones(3), torch.device("cpu"))
    found = grouped(part, units)
    sums = units.summed(part.rows())
    torch.testing.assert_close(found.rows(), sums, rtol=1e-4, atol=1e-5)
    norms = sums.flatten(1).norm(dim=1).double()
    factors = (found if gram else Rows(found.rows())).factors()[0]
    torch.testing.assert_close(factors.double().norm(dim=1), norms, rtol=1e-3, atol=1e-4)
    weights = torch.tensor([0.5, 2.0, 1.0])
    torch.testing.assert_close(
        found.weighted_sum(weights), (weights @ sums.flatten(1)).view(sums.shape[1:]), atol=1e-4, rtol=1e-4
    )
    torch.testing.assert_close(found.take(torch.tensor([2, 0])).rows(), sums[[2, 0]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", [BookKeeping, Functional, OneByOne])
@pytest.mark.parametrize("groups", [RAGGED, SKEWED], ids=["ragged", "skewed"])
def test_a_broken_record_breaks_its_unit_only(engine, groups):
    count, place = max(groups) + 1, groups.index(2)
    model, inputs, targets = repeated("MLP", len(groups))
    inputs[place] = float("nan")
    units = Groups.of(np.array(groups), np.ones(count), torch.device("cpu"))
    found = engine(model, ENTROPY).gradients(inputs, targets, units)
    assert found.norms().isfinite().tolist() == [unit != 2 for unit in range(count)]
    inputs[place] = 0.5
    ones = torch.ones(count, dtype=torch.float64)
    ones[2] = 0
    others = engine(model, ENTROPY).gradients(inputs, targets, units).weighted_sum(ones)
    for one, other in zip(found.weighted_sum(ones), others, strict=True):
        torch.testing.assert_close(one, other)


def test_parts_hold_whole_units():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, 40)
    units = RecordsOfUnits(
        positions=rng.permutation(counts.sum()), groups=np.repeat(np.arange(40), counts), rule=UnitMean()
    )
    parts = units.parts(7)
    assert max(part.positions.size for part in parts) <= 7
    assert np.concatenate([part.positions for part in parts]).tolist() == units.positions.tolist()
    assert np.concatenate([part.counts for part in parts]).tolist() == counts.tolist()
    assert all(part.groups[0] == 0 for part in parts)
    assert [part.positions.size for part in units.parts(None)] == [counts.sum()]
    assert units.of_units(0, 0).parts(7) == []
    with pytest.raises(ValueError, match="records_per_unit must be at most 3"):
        units.parts(3)


RNG = np.random.default_rng(1)
UNIT = np.repeat(np.arange(40), RNG.integers(1, 7, 40))[:100]
UNIT = RNG.permutation(UNIT)  # the records of a unit lie anywhere
OWNER = UNIT % 2
X = torch.from_numpy(RNG.normal(size=(UNIT.size, 4))).float()
Y = torch.from_numpy(RNG.integers(0, 3, UNIT.size))


def persons():
    return Owners(of_record=OWNER, epsilon={0: 1.0, 1: 4.0}, delta=1e-5, unit_of_record=UNIT, unit_name="person")


def model_of(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def trainer_of(owners=None, plan=None, model=None, **options):
    owners = persons() if owners is None else owners
    if plan is None:
        plan = plan_sample(owners, steps=4, expected_batch=10, clip_norm=0.5)
    model = model_of() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, owners=owners, **options)


def silent_plan(owners, **change):
    given = {"sample_rates": [1, 1], "sensitivities": [0.05, 0.1], "noise_scale": 1e-9, "steps": 2}
    return Plan(**{**given, "sizes": owners.sizes, "unit_name": owners.unit_name, **change})


@pytest.mark.parametrize("rule", [UnitMean(), UnitSum(score=np.max), UnitMean(records_per_unit=2)], ids=str)
def test_a_step_is_that_of_the_naive_loop(rule):
    """Sums of gradients of units, clipped, ordered by the units' scores and weighted."""
    owners, tail = persons(), LinearTail(1.0)
    trainer = trainer_of(plan=silent_plan(owners), tail=tail, unit_rule=rule, key=5)
    model = model_of()
    gradients = torch.stack([torch.cat([part.flatten() for part in row]) for row in per_record(model)])
    losses = ENTROPY(model(X), Y).detach()
    plain = GivenRows(silent_plan(owners), owners, tail=tail, unit_rule=rule, key=5)
    data = torch.cat([gradients, losses[:, None]], 1).double()
    one = torch.cat([part.flatten() for part in trainer.step(X, Y).value])
    torch.testing.assert_close(one, plain.release(data).value.float(), atol=2e-5, rtol=1e-4)


class GivenRows(INOSGM):
    """Sums gradients that were made before, beside which there are losses."""

    def contributions(self, batch):
        return batch[:, :-1]

    def scores(self, batch):
        return batch[:, -1]


def per_record(model):
    for record in range(len(X)):
        loss = ENTROPY(model(X[record : record + 1]), Y[record : record + 1]).sum()
        yield torch.autograd.grad(loss, list(model.parameters()))


def weights_of(trainer):
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def test_micro_batches_do_not_split_units():
    rule = UnitMean(records_per_unit=3)
    whole = trainer_of(unit_rule=rule, key=3)
    parts = trainer_of(unit_rule=rule, key=3, max_physical_batch=5)
    whole.fit(X, Y, progress=False)
    parts.fit(X, Y, progress=False)
    torch.testing.assert_close(weights_of(whole), weights_of(parts), atol=1e-5, rtol=1e-4)


def test_shards_hold_whole_units_and_sum_to_the_same():
    rule = UnitMean(records_per_unit=3, score=lambda scores: float(scores.max()))
    whole = trainer_of(unit_rule=rule, key=3, tail=LinearTail(1.0))
    shards = trainer_of(unit_rule=rule, key=3, tail=LinearTail(1.0), workers=Workers(shards=3), max_physical_batch=6)
    whole.fit(X, Y, progress=False)
    shards.fit(X, Y, progress=False)
    torch.testing.assert_close(weights_of(whole), weights_of(shards), atol=1e-5, rtol=1e-4)


def test_what_ranks_are_told_can_be_sent():
    rule = UnitMean(score=lambda scores: float(scores.max()))
    units = RecordsOfUnits(positions=np.arange(6), groups=np.array([0, 0, 1, 2, 2, 2]), rule=rule)
    sent = pickle.loads(pickle.dumps(units.unscored()))
    assert (sent.groups == units.groups).all()
    assert (sent.shares == units.shares).all()


def test_parts_that_are_too_small_are_refused_by_public_numbers():
    with pytest.raises(ValueError, match="unit_rule must limit the records of a unit with max_physical_batch"):
        trainer_of(max_physical_batch=64)
    with pytest.raises(
        ValueError, match="max_physical_batch must be at least 12, the records_per_unit times the views"
    ):
        trainer_of(max_physical_batch=8, unit_rule=UnitMean(records_per_unit=3), views=4, augment=jitter)


def test_a_run_with_units_is_resumed(tmp_path):
    rule = UnitMean(records_per_unit=2, score=np.max)
    whole = trainer_of(unit_rule=rule, key=3, tail=LinearTail(1.0))
    whole.fit(X, Y, progress=False)
    first = trainer_of(unit_rule=rule, key=3, tail=LinearTail(1.0))
    first.fit(X, Y, progress=False, run=tmp_path / "run", steps=2)
    then = trainer_of(unit_rule=rule, key=3, tail=LinearTail(1.0), model=model_of(9))
    then.fit(X, Y, progress=False, run=tmp_path / "run")
    assert torch.equal(weights_of(whole), weights_of(then))
    assert Ledger(tmp_path / "run" / "ledger").unit == "add/remove of person"
    other = trainer_of(unit_rule=UnitMean(records_per_unit=3), key=3, tail=LinearTail(1.0))
    with pytest.raises(ValueError, match="unit_rule"):
        other.fit(X, Y, progress=False, run=tmp_path / "run")


def test_budgets_of_units_are_kept_and_diagnosed():
    trainer = trainer_of()
    trainer.fit(X, Y, progress=False)
    spent = trainer.spent()
    assert spent[0] <= 1.0
    assert spent[1] <= 4.0
    assert trainer.diagnose(X, Y).private


def test_no_person_moves_a_sum_of_gradients_by_more_than_its_sensitivity():
    owners = persons()
    mechanism = trainer_of(plan=silent_plan(owners), tail=LinearTail(1.0), unit_rule=UnitSum())
    found = certify(mechanism, (X, Y), evaluations=60)
    assert found.holds(1e-3)
    assert found.ratio > 0.5
    noisy = trainer_of(plan=silent_plan(owners, noise_scale=0.1))
    assert not audit_mechanism(noisy, owner=1, data=(X, Y), runs=2000).contradicts


def jitter(record):
    return record + 0.1 * torch.randn_like(record)


def test_views_are_one_clipped_mean():
    """With a transform that does nothing, K views are one: the mean of K equal gradients."""
    plain = Owners(of_record=OWNER, epsilon={0: 1.0, 1: 4.0}, delta=1e-5)
    one, four = trainer_of(plain, key=2), trainer_of(plain, key=2, views=4, augment=lambda record: record)
    one.fit(X, Y, progress=False)
    four.fit(X, Y, progress=False)
    torch.testing.assert_close(weights_of(one), weights_of(four), atol=1e-5, rtol=1e-4)


def test_views_differ_are_repeated_and_come_from_a_data_set_as_well():
    plain = Owners(of_record=OWNER, epsilon={0: 1.0, 1: 4.0}, delta=1e-5)
    runs = [trainer_of(plain, key=2, views=4, augment=jitter, max_physical_batch=most) for most in (None, None, 9)]
    for run in runs:
        run.fit(X, Y, progress=False)
    assert torch.equal(weights_of(runs[0]), weights_of(runs[1]))
    seen = []

    class Noisy(Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, index):
            seen.append(index)
            return jitter(X[index]), Y[index]

    trainer = trainer_of(plain, plan=silent_plan(plain, steps=1), views=3)
    trainer.fit(Noisy(), progress=False)
    assert seen[-9:] == [97, 97, 97, 98, 98, 98, 99, 99, 99]
    units = trainer_of(plan=silent_plan(persons()), views=2, augment=jitter, unit_rule=UnitMean(records_per_unit=2))
    sums = Inspection(units).sums((X, Y), [np.arange(3)])
    assert all(part.isfinite().all() for part in sums[0])


def test_a_transform_sees_one_record_and_keeps_its_shape():
    seen = []

    def watched(record):
        seen.append(tuple(record.shape))
        return record.flip(0)

    plain = Owners(of_record=OWNER, epsilon={0: 1.0, 1: 4.0}, delta=1e-5)
    trainer_of(plain, plan=silent_plan(plain, steps=1), views=2, augment=watched).step(X, Y)
    assert seen == [(4,)] * (1 + 2 * len(X))  # one is tried before anything is drawn
    ledger = Ledger(owners=plain)
    wrong = trainer_of(plain, augment=lambda record: record[:2], ledger=ledger)
    with pytest.raises(ValueError, match="augment must return a tensor of the shape of its input"):
        wrong.step(X, Y)
    assert not ledger.history()
    with pytest.raises(TypeError, match="augment must be a function"):
        trainer_of(plain, augment="flip")
    with pytest.raises(ValueError, match="views must be a whole number >= 1"):
        trainer_of(plain, views=0)
