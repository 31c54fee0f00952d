"""Batches of a data set's records: collate_fn, padding, and micro-batches that are loaded ahead."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from inosgm import Ledger, Owners, Plan, plan_scale
from inosgm.training import OneByOne, Trainer

N = 40
LENGTHS = [3 + (7 * index) % 5 for index in range(N)]
PLAN = Plan(sample_rates=[0.5], sensitivities=[0.7], sizes=[N], labels=["all"], noise_scale=0.1, steps=3)


class Texts(Dataset):
    """Records of several lengths, which may be augmented by random numbers."""

    def __init__(self, augmented=False):
        self.augmented = augmented

    def __len__(self):
        return N

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        ids = torch.randint(1, 20, (LENGTHS[index],), generator=made)
        if self.augmented:
            ids = torch.where(torch.rand(len(ids)) < 0.3, 1, ids)
        return {"input_ids": ids, "label": index % 3}


def padded(items, left=False):
    columns = [item["input_ids"].flip(0) if left else item["input_ids"] for item in items]
    ids = pad_sequence(columns, batch_first=True)
    ids = ids.flip(1) if left else ids
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([i["label"] for i in items])}


class Mean(nn.Module):
    """The mean over the record's own positions, with dropout or without."""

    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.drop, self.head = nn.Embedding(20, 6), nn.Dropout(dropout), nn.Linear(6, 3)

    def forward(self, input_ids, attention_mask):
        kept = attention_mask[..., None].to(self.head.weight.dtype)
        return self.head(self.drop((self.words(input_ids) * kept).sum(1)) / kept.sum(1).clamp(min=1))


class Unmasked(Mean):
    """The mean over all positions, padded ones included: it depends on how long the longest record is."""

    def forward(self, input_ids, attention_mask):
        return self.head(self.words(input_ids).mean(1))


class Last(Mean):
    """The last position, which is padding for all but the longest records."""

    def forward(self, input_ids, attention_mask):
        return self.head(self.words(input_ids)[:, -1])


class Zeroed(Unmasked):
    """A head of zeros, whose losses do not show yet what they depend on."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.head.weight)


class Charges:
    """A ledger that must not be charged."""

    def charge(self, cost):
        pytest.fail("charged")


def trainer(model=None, loss=None, plan=PLAN, **more):
    model = Mean() if model is None else model
    loss = nn.CrossEntropyLoss() if loss is None and "losses" not in more else loss
    how = {"owners": ["all"] * N, "key": 3, "collate_fn": padded, **more}
    return Trainer(plan, model, loss, torch.optim.SGD(model.parameters(), lr=0.5), **how)


def weights(made):
    return torch.cat([value.flatten() for value in made.model.state_dict().values()])


def fitted(made, data):
    made.fit(data, progress=False)
    return weights(made)


def test_records_of_several_lengths_train_as_if_they_were_all_of_one():
    def longest(items):
        batch = padded(items)
        more = 8 - batch["input_ids"].shape[1]
        return {name: F.pad(part, (0, more)) if part.ndim == 2 else part for name, part in batch.items()}

    one = fitted(trainer(collate_fn=longest), Texts())
    for how in ({}, {"max_physical_batch": 4}, {"engine": OneByOne, "max_physical_batch": 4}):
        torch.testing.assert_close(fitted(trainer(**how), Texts()), one, rtol=1e-4, atol=1e-6)


def test_padding_on_the_left():
    def left(items):
        return padded(items, left=True)

    torch.testing.assert_close(
        fitted(trainer(collate_fn=left), Texts()), fitted(trainer(), Texts()), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(ValueError, match="must not depend on its padding"):
        trainer(Unmasked(), collate_fn=left, ledger=Charges()).fit(Texts(), progress=False)


@pytest.mark.parametrize("kind", [Unmasked, Last, Zeroed])
def test_a_loss_that_depends_on_padding_is_refused_before_anything_is_charged(kind):
    made = trainer(kind(), ledger=Charges())
    before = weights(made)
    with pytest.raises(ValueError, match=r"must not depend on its padding.*mask padded positions"):
        made.fit(Texts(), progress=False)
    assert not made.steps_done
    assert torch.equal(weights(made), before)


def by_position(model, batch):
    logits = model.head(model.words(batch["input_ids"]))
    targets = torch.where(batch["attention_mask"] > 0, batch["input_ids"] % 3, -100)
    losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return losses, (targets >= 0).sum(1)


def test_losses_by_position_are_averaged_over_the_records_own_positions():
    def over_all(model, batch):
        return by_position(model, batch)[0].mean(1)

    def over_own(model, batch):
        losses, own = by_position(model, batch)
        return losses.sum(1) / own.clamp(min=1)

    with pytest.raises(ValueError, match="must not depend on its padding"):
        trainer(losses=over_all, ledger=Charges()).fit(Texts(), progress=False)
    fitted(trainer(losses=over_own), Texts())


def test_a_score_that_depends_on_padding_is_refused():
    def longest(outputs, batch, losses):
        return losses + batch["input_ids"].shape[1]

    def losses(model, batch):
        logits = model(batch["input_ids"], batch["attention_mask"])
        return F.cross_entropy(logits, batch["labels"], reduction="none")

    with pytest.raises(ValueError, match="must not depend on its padding"):
        trainer(losses=losses, score=longest, ledger=Charges()).fit(Texts(), progress=False)


def mixed(items):
    """Mixup: a record becomes a mean of two."""
    x = torch.stack([item[0] for item in items])
    return (x + x.flip(0)) / 2, torch.tensor([item[1] for item in items])


def standardised(items):
    x = torch.stack([item[0] for item in items])
    return x - x.mean(0), torch.tensor([item[1] for item in items])


def turned(items):
    x = torch.stack([item[0] for item in items])
    return x.flip(0), torch.tensor([item[1] for item in items])


def drawing(items):
    return torch.stack([item[0] for item in items]) + torch.randn(()), torch.tensor([item[1] for item in items])


def drawing_elsewhere(items):
    return torch.stack([item[0] for item in items]) + random.random(), torch.tensor([item[1] for item in items])


def dropping(items):
    return torch.stack([item[0] for item in items[:3]]), torch.tensor([item[1] for item in items[:3]])


def with_text(items):
    return {
        "x": torch.stack([item[0] for item in items]),
        "text": ["a"] * len(items),
        "labels": torch.zeros(len(items)),
    }


class Points(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.randn(4, generator=torch.Generator().manual_seed(index)), index % 3


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (mixed, "must make the same of a record"),
        (standardised, "must make the same of a record"),
        (turned, "must make the same of a record"),
        (drawing, "must not draw"),
        (drawing_elsewhere, "must not draw"),
        (dropping, "first axis is the record"),
        (with_text, "holds str"),
    ],
)
def test_a_collate_function_that_looks_at_more_than_a_record_is_refused(collate, message):
    made = trainer(nn.Linear(4, 3), collate_fn=collate, ledger=Charges())
    state = torch.get_rng_state(), random.getstate()
    with pytest.raises((TypeError, ValueError), match=message):
        made.fit(Points(), progress=False)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]


def test_records_of_several_lengths_without_a_collate_function_are_refused_before_anything_is_charged():
    owners = Owners(of_record=["all"] * N, epsilon={"all": 2.0}, delta=1e-5)
    ledger = Ledger(owners=owners)

    class Ragged(Texts):
        def __getitem__(self, index):
            return torch.zeros(4 if index < N - 1 else 5), index % 3

    made = trainer(nn.Linear(4, 3), plan=plan_scale(owners, steps=5, expected_batch=20, clip_norm=1.0),
                   owners=owners, collate_fn=None, ledger=ledger)  # fmt: skip
    with pytest.raises(ValueError, match=r"records of one shape.*collate_fn"):
        made.fit(Ragged(), progress=False)
    assert not any(ledger.spent().values())


def test_columns_need_no_collate_function():
    with pytest.raises(TypeError, match="the data is in columns"):
        trainer(nn.Linear(4, 3)).fit(torch.zeros(N, 4), torch.zeros(N, dtype=torch.int64), progress=False)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_loading_ahead_gives_the_same_bits_whatever_the_number_of_workers(dropout):
    models = [Mean(dropout) for _ in range(3)]
    state = torch.get_rng_state()
    one, two, three = (
        fitted(trainer(model, max_physical_batch=5, num_workers=workers), Texts(augmented=True))
        for workers, model in enumerate(models)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, two)
    assert torch.equal(one, three)


def test_loading_ahead_goes_on_after_an_error_and_with_other_data():
    class Failing(Texts):
        failing = False

        def __getitem__(self, index):
            if self.failing:
                raise OSError("unreadable")
            return super().__getitem__(index)

    expected = trainer(max_physical_batch=5)
    for _ in range(3):
        expected.step(Texts())
    made, data = trainer(max_physical_batch=5, num_workers=2), Texts()
    made.step(data)
    made.step(Texts())  # other workers
    made.step(data)
    made._gradients.ahead.close()
    assert torch.equal(weights(made), weights(expected))
    broken = trainer(max_physical_batch=5, num_workers=1)
    failing = Failing()
    broken.check(failing)
    failing.failing = True
    with pytest.raises(OSError, match="unreadable"):
        broken.step(failing)


def test_a_run_can_be_opened_again_while_workers_are_there(tmp_path):
    from inosgm.training.run import Run

    made = trainer(max_physical_batch=5, num_workers=1)
    with Run(tmp_path / "run"):
        made.step(Texts())  # its workers have inherited the lock
    with Run(tmp_path / "run"):
        made._gradients.ahead.close()


def test_workers_need_parts():
    with pytest.raises(ValueError, match="num_workers=2 needs max_physical_batch"):
        trainer(num_workers=2)
    with pytest.raises(ValueError, match="num_workers"):
        trainer(num_workers=-1)
