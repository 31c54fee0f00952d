"""Random numbers that records share: drawn once per logical batch, whatever parts it is run in."""

import random
from collections import UserList

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset

from inosgm import Plan, audit_mechanism, certify
from inosgm.audit import canaries
from inosgm.groups import plan_asc
from inosgm.owners import Owners
from inosgm.sgd import BookKeeping, Functional, OneByOne, Trainer, descent
from inosgm.sgd.batches import PickedApart
from inosgm.sgd.gradients import engine_for
from inosgm.sgd.gradients.chance import Chance, chance_in_evaluation, chance_of
from inosgm.sgd.randomness import seed_of_part
from inosgm.steering import AdaptiveShares

SIGNS = np.array([1, -1, -1, 1] * 10 + [1, 1, 1], dtype=np.float32)
"""In pairs, gradients cancel; shifted by one record, pairs pull the same way."""


class Masked(nn.Module):
    """One weight, whose gradient is the record times a random number that `mask` draws in training mode."""

    def __init__(self):
        super().__init__()
        self.weight, self.drop = nn.Linear(1, 1, bias=False), nn.Dropout(0.5)
        self.generator, self.numpy, self.calls = torch.Generator(), np.random.default_rng(0), 0
        self.masks = UserList()  # what a pass appends to a plain list of the model is taken away again

    def forward(self, x):
        mask = self.mask(x) if self.training else 1.0
        self.masks.append(mask)
        return self.weight(x) * mask

    def mask(self, x):
        raise NotImplementedError


def model_of(mask):
    return type("OneOf", (Masked,), {"mask": mask})()


def by_row(self, x):
    return self.drop(torch.ones_like(x))


def encoding(self, x):
    """Dropout on a positional encoding."""
    return self.drop(torch.ones(8)).mean() / 2


def depth(self, x):
    """Stochastic depth in batch mode, as torchvision draws it, of eight branches."""
    return torch.empty(1, 8).bernoulli_(0.5).mean(1, keepdim=True)


def layer_drop(self, x):
    """Layer dropout, as transformers draws it."""
    return 1.0 if torch.rand([]) >= 0.5 else 0.25


def idle(self, x):
    """Layer dropout with probability 0, which draws all the same, beside dropout."""
    return by_row(self, x) if torch.rand([]) >= 0.0 else 0.0 * x


def idle_alone(self, x):
    return 1.0 if torch.rand([]) >= 0.0 else 0.0


def both(self, x):
    return by_row(self, x) * encoding(self, x)


def both_in_place(self, x):
    return by_row(self, x) * depth(self, x)


def mostly_shared(self, x):
    return torch.rand([]) + 1e-2 * torch.rand(len(x), 1)


def mostly_shared_in_place(self, x):
    return torch.empty(1).uniform_() + 1e-2 * torch.rand(len(x), 1)


def rarely(self, x):
    """Layer dropout with probability 5 %, beside dropout."""
    return by_row(self, x) if torch.rand([]) >= 0.05 else 0.0 * x


def first_of_rows(self, x):
    return torch.rand(len(x))[0]


def in_a_loop(self, x):
    return torch.cat([torch.rand(1, 1) for _ in x])


def in_chunks(self, x):
    return torch.cat([self.drop(torch.ones_like(some)) for some in x.split(2)])


def from_a_table(self, x):
    return torch.rand(4096, 1)[: len(x)]


def of_python(self, x):
    return (1.0 + random.random()) / 2


def of_python_without_effect(self, x):
    return 1.0 if random.random() < 2 else 0.0


def of_numpy(self, x):
    return 1.0 + float(np.random.rand())  # noqa: NPY002 what models do


def of_its_own(self, x):
    return torch.rand(1, generator=self.generator)


def of_numpy_of_its_own(self, x):
    return float(self.numpy.random())


def by_call(self, x):
    self.calls += 1
    return 1.0 + self.calls % 3


def nothing(self, x):
    return 1.0


def first_output(outputs, targets):
    return outputs[:, 0]


ONE = torch.ones(3, 1), torch.zeros(3, dtype=torch.long)

KINDS = {
    nothing: Chance.NONE,
    by_row: Chance.PER_RECORD,
    encoding: Chance.SHARED,
    depth: Chance.SHARED,
    layer_drop: Chance.SHARED,
    idle: Chance.PER_RECORD,
    idle_alone: Chance.PER_RECORD,
    both: Chance.MIXED,
    both_in_place: Chance.MIXED,
    mostly_shared: Chance.MIXED,
    mostly_shared_in_place: Chance.MIXED,
    rarely: Chance.MIXED,
    first_of_rows: Chance.MIXED,
    in_a_loop: Chance.MIXED,
    in_chunks: Chance.MIXED,
    from_a_table: Chance.MIXED,
    of_python: Chance.UNSEEDED,
    of_python_without_effect: Chance.UNSEEDED,
    of_numpy: Chance.UNSEEDED,
    of_its_own: Chance.UNSEEDED,
    of_numpy_of_its_own: Chance.UNSEEDED,
    by_call: Chance.UNSEEDED,
}


def name_of(mask):
    return mask.__name__


def trainer(mask, records, steps=1, noise_scale=1e-9, most=2, **more):
    model = model_of(mask)
    plan = Plan(sample_rates=[1.0], sensitivities=[1.0], sizes=[records], noise_scale=noise_scale, steps=steps)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    more = {"owners": [0] * records, "key": 5, "max_physical_batch": most, **more}
    return Trainer(plan, model, first_output, optimizer, **more)


def records_of(signs):
    x = np.asarray(signs, dtype=np.float32)[:, None]
    return x, np.zeros(len(x), dtype=np.int64)


def released(mask, signs, steps, **more):
    """Return the released sums of some steps, of a model that stays as it is."""
    made = trainer(mask, len(signs), steps, **more)
    return np.array([float(made.step(*records_of(signs)).value[0]) for _ in range(steps)]), made


# what a model draws


@pytest.mark.parametrize("mask", KINDS, ids=name_of)
def test_what_is_drawn_in_one_forward_pass(mask):
    model = model_of(mask)
    before = random.getstate(), torch.get_rng_state()
    assert chance_of(BookKeeping, model, first_output, *ONE) is KINDS[mask]
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize("mask", KINDS, ids=name_of)
def test_engines_that_draw_for_every_record(mask):
    assert chance_of(OneByOne, model_of(mask), first_output, *ONE) is Chance.PER_RECORD
    if mask in (encoding, both, by_row, first_of_rows, in_a_loop):
        assert chance_of(Functional, model_of(mask), first_output, *ONE) is Chance.PER_RECORD
    if KINDS[mask] is Chance.UNSEEDED:  # which torch cannot give to every record
        assert chance_of(Functional, model_of(mask), first_output, *ONE) is Chance.UNSEEDED


def test_a_model_that_takes_no_synthetic_records():
    class Picky(Masked):
        mask = encoding

        def forward(self, x):
            if not (x == 7).all():
                raise ValueError("only sevens")
            return super().forward(x)

    sevens = torch.full((2, 1), 7.0)
    assert chance_of(BookKeeping, Picky(), first_output, sevens, torch.zeros(2)) is Chance.SHARED


def test_numbers_that_a_loss_draws():
    def loss(outputs, targets):
        return outputs[:, 0] * torch.rand([])

    assert chance_of(BookKeeping, model_of(nothing), loss, *ONE) is Chance.SHARED


@pytest.mark.parametrize(
    ("mask", "alone", "in_parts"),
    [
        (nothing, BookKeeping, BookKeeping),
        (by_row, BookKeeping, BookKeeping),
        (encoding, BookKeeping, BookKeeping),
        (depth, BookKeeping, BookKeeping),
        (both, BookKeeping, Functional),
        (both_in_place, BookKeeping, OneByOne),
        (of_python_without_effect, BookKeeping, OneByOne),
    ],
    ids=lambda value: value.__name__,
)
def test_the_engine_that_is_chosen(mask, alone, in_parts):
    for expected, parts in ((alone, False), (in_parts, True)):
        assert type(engine_for(model_of(mask), first_output, *ONE, in_parts=parts)) is expected


@pytest.mark.parametrize(
    "mask", [mask for mask in KINDS if KINDS[mask] in (Chance.MIXED, Chance.UNSEEDED)], ids=name_of
)
def test_an_engine_of_ones_own_choice_is_refused_where_it_would_draw_for_parts(mask):
    data = records_of(np.ones(5))
    with pytest.raises(ValueError, match=r"max_physical_batch.*OneByOne"):
        trainer(mask, 5, engine=BookKeeping).check(*data)
    trainer(mask, 5, engine=BookKeeping, most=None).check(*data)
    trainer(mask, 5, engine=OneByOne).check(*data)
    if KINDS[mask] is Chance.UNSEEDED:
        with pytest.raises(ValueError, match=r"max_physical_batch.*OneByOne"):
            trainer(mask, 5, engine=Functional).check(*data)


# the attack


@pytest.mark.parametrize("mask", [encoding, depth, layer_drop], ids=name_of)
def test_a_record_without_a_gradient_moves_nothing(mask):
    """A record of zeros comes first, and every pair becomes another one."""
    without, made = released(mask, SIGNS, 12, engine=BookKeeping)
    with_record, _ = released(mask, [0, *SIGNS], 12, engine=BookKeeping)
    np.testing.assert_allclose(with_record, without, atol=1e-4)
    assert without.std() > 0.3  # masks are drawn, anew at every step
    assert made._chance is Chance.SHARED


@pytest.mark.parametrize(
    ("mask", "engine"), [(mostly_shared, Functional), (mostly_shared_in_place, OneByOne), (of_python, OneByOne)]
)
def test_engines_that_draw_for_every_record_give_every_record_a_number_of_its_own(mask, engine):
    """The norm of a gradient is the number that was drawn for its record, from an interval of length 0.5 at least."""
    random.seed(0)
    made = trainer(mask, 43, most=16, engine=OneByOne if mask is of_python else None)
    norms = made.contributions(records_of(np.ones(43))).norms()
    assert isinstance(made.engine, engine)
    assert all(part.std() > 0.1 for part in np.split(norms, [16, 32]))


@pytest.mark.parametrize("mask", [nothing, idle, idle_alone, by_row, encoding], ids=name_of)
def test_models_that_can_be_run_in_parts_are(mask):
    sums, made = released(mask, SIGNS, 3, engine=BookKeeping, most=10)
    assert np.isfinite(sums).all()
    assert made._chance is KINDS[mask]


def test_one_mask_for_all_parts_and_another_at_the_next_step():
    made = trainer(encoding, 12, 8)
    made.check(*records_of(np.ones(12)))
    seen = []
    for _ in range(8):
        made.model.masks.clear()
        made.step(*records_of(np.ones(12)))
        drawn = {float(mask) for mask in made.model.masks}
        assert (len(made.model.masks), len(drawn)) == (12, 1)
        seen += drawn
    assert len(set(seen)) > 3


def test_masks_of_records_are_those_of_the_seed_of_their_part():
    """What was made with a key before is made again."""
    made = trainer(by_row, 7, most=3)
    made.check(*records_of(np.ones(7)))
    made.model.masks.clear()
    made.step(*records_of(np.ones(7)))
    for part, (size, mask) in enumerate(zip((3, 3, 1), made.model.masks, strict=False)):
        torch.manual_seed(seed_of_part(5, 0, part))
        assert torch.equal(mask, nn.functional.dropout(torch.ones(size, 1), 0.5))


def test_a_model_that_begins_to_draw_later():
    class Later(Masked):
        begun = False

        def mask(self, x):
            return encoding(self, x) if self.begun else 1.0

    def made(signs, begun):
        made = trainer(nothing, len(signs), 8, engine=BookKeeping)
        made.model.__class__ = Later
        sums = []
        for step in range(8):
            made.model.begun = begun and step >= 2
            sums.append(float(made.step(*records_of(signs)).value[0]))
        return np.array(sums), made

    without, one = made(SIGNS, True)
    with_record, _ = made([0, *SIGNS], True)
    assert one._chance is Chance.SHARED
    np.testing.assert_allclose(with_record, without, atol=1e-4)
    assert without[2:].std() > 0.2
    assert made(SIGNS, False)[1]._chance is Chance.NONE


def test_a_model_that_draws_with_some_records_only_is_refused():
    class Choosy(Masked):
        def mask(self, x):
            return encoding(self, x) if bool((x > 5).any()) else 1.0

    made = trainer(nothing, 4, 2, engine=BookKeeping)
    made.model.__class__ = Choosy
    made.step(*records_of(np.ones(4)))
    with pytest.raises(ValueError, match="leave max_physical_batch out"):
        made.step(*records_of([1, 9, 1, 1]))


# other things that draw


class Augmented(Dataset):
    """Adds a number from torch's generator to every record, and remembers which."""

    def __init__(self, signs):
        self.signs, self.added = signs, []

    def __len__(self):
        return len(self.signs)

    def __getitem__(self, index):
        self.added.append(float(torch.rand([])))
        return torch.tensor([self.signs[index] + self.added[-1]]), 0


class AtOnce(Augmented):
    """Draws one number for all records that it is asked for at once."""

    def __getitems__(self, indices):
        self.added.append(float(torch.rand([])))
        return [(torch.tensor([self.signs[index] + self.added[-1]]), 0) for index in indices]


@pytest.mark.parametrize("mask", [nothing, by_row, encoding], ids=name_of)
@pytest.mark.parametrize("kind", [Augmented, AtOnce, lambda signs: Subset(Augmented(signs), range(len(signs)))])
def test_augmentations_are_of_the_record_whatever_the_model_draws(mask, kind):
    """Parts of two records: no two of nine records share a number, and the second pass repeats those of the first."""
    data = kind(np.ones(9, dtype=np.float32))
    made = trainer(mask, 9, steps=2, engine=BookKeeping)
    made.step(data)
    source = data.dataset if isinstance(data, Subset) else data
    source.added.clear()
    made.step(data)
    assert len(source.added) == 18
    assert len(set(source.added)) == 9
    assert source.added[:9] == source.added[9:]


def test_losses_that_steer_come_from_records_that_are_augmented_one_by_one():
    data, made = AtOnce(np.ones(9, dtype=np.float32)), trainer(nothing, 9, most=None)
    losses = made._losses_of(data, np.arange(9))
    assert len(set(losses)) == 9


def test_a_data_set_that_draws_nothing_is_asked_for_many_records_at_once():
    asked = []

    class Quiet(AtOnce):
        def __getitems__(self, indices):
            asked.append(len(indices))
            return [(torch.tensor([self.signs[index]]), 0) for index in indices]

    data = Quiet(np.ones(9))
    assert len(PickedApart()(data, [0, 1, 2])) == 3
    assert asked == [3]


def test_a_score_that_draws_is_refused_in_parts():
    def torch_ties(outputs, targets, losses):
        return losses + 1e-9 * torch.rand([])

    def python_ties(outputs, targets, losses):
        return losses + 1e-9 * random.random()

    for score in (torch_ties, python_ties):
        trainer(nothing, 5, score=score, most=None).check(*records_of(np.ones(5)))
        with pytest.raises(ValueError, match="score must not draw"):
            trainer(nothing, 5, score=score).check(*records_of(np.ones(5)))


class Always(nn.Module):
    """Draws in evaluation mode, too."""

    def __init__(self, shared):
        super().__init__()
        self.layer, self.shared = nn.Linear(2, 3), shared

    def forward(self, x):
        return self.layer(x) + (torch.rand(3) if self.shared else torch.rand(len(x), 3))


def test_losses_that_steer_may_not_share_random_numbers():
    """They are released, from the model in evaluation mode, in parts of 1,024 records."""
    labels = np.arange(60) % 3
    owners = Owners(of_record=labels, epsilon={0: 2.0, 1: 1.0, 2: 1.0}, delta=1e-5)
    plan = plan_asc(owners, steps=8, expected_batch=12, clip_norm=1.0, every=4)
    data = np.ones((60, 2), dtype=np.float32), labels
    for shared in (False, True):
        model = Always(shared)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steering = AdaptiveShares(plan, every=4, temperature=1.0)
        made = Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, owners=owners, steering=steering)
        if shared:
            with pytest.raises(ValueError, match="evaluation mode"):
                made.check(*data)
        else:
            made.check(*data)
    assert chance_in_evaluation(Masked(), first_output, *ONE) is Chance.NONE


# what certify and the audit see


@pytest.mark.parametrize(("mask", "key"), [(encoding, None), (encoding, 5), (depth, 5), (layer_drop, 5)])
def test_certify_sees_masks_that_parts_do_not_share(monkeypatch, mask, key):
    data = records_of(SIGNS[:40])

    def made():
        return trainer(mask, 40, key=key, engine=BookKeeping)

    assert certify(made(), data, evaluations=40).holds(1e-4)
    monkeypatch.setattr(descent, "seed_of_batch", lambda key, step: None)  # as it was: every part has its own seed
    assert certify(made(), data, evaluations=40).ratio > 1.5


def test_certify_leaves_out_dropout_of_records():
    data = records_of(SIGNS[:40])
    made = trainer(by_row, 40, most=8)
    assert certify(made, data, evaluations=60).holds(1e-4)
    assert made.model.drop.training


def test_the_audit_sees_masks_that_parts_do_not_share(monkeypatch):
    monkeypatch.setattr(canaries, "EVALUATIONS", 40)
    data = records_of(SIGNS[:40])

    def made():
        return trainer(encoding, 40, noise_scale=1.0)

    assert not audit_mechanism(made(), 0, runs=2000, data=data).contradicts
    monkeypatch.setattr(descent, "seed_of_batch", lambda key, step: None)
    assert audit_mechanism(made(), 0, runs=2000, data=data).contradicts
