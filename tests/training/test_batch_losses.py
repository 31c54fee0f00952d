"""Losses of the user's own batches, and models with the interface of Hugging Face."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from inosgm import Plan
from inosgm.training import BookKeeping, Functional, OneByOne, Trainer

N = 60
MADE = torch.Generator().manual_seed(0)
TEXTS = {
    "input_ids": torch.randint(1, 20, (N, 5), generator=MADE),
    "attention_mask": torch.ones(N, 5, dtype=torch.int64),
    "labels": torch.arange(N) % 3,
}
LABELS = ["all"] * N
PLAN = Plan(sample_rates=[0.5], sensitivities=[0.7], sizes=[N], labels=["all"], noise_scale=0.1, steps=3)


class Output(OrderedDict):
    """An output as Hugging Face's models give it: a dict whose entries are attributes as well."""

    __getattr__ = OrderedDict.__getitem__


class Texts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, input_ids, attention_mask, labels=None):
        kept = attention_mask[..., None].to(self.head.weight.dtype)
        logits = self.head((self.words(input_ids) * kept).sum(1) / kept.sum(1).clamp(min=1))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return Output(logits=logits, cache=object()) if loss is None else Output(loss=loss, logits=logits)


class Items(Dataset):
    def __init__(self, columns=TEXTS):
        self.columns = columns

    def __len__(self):
        return N

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}


def entropy(model, batch):
    outputs = model(batch["input_ids"], batch["attention_mask"])
    return F.cross_entropy(outputs.logits, batch["labels"], reduction="none")


def trainer(loss=None, model=None, **more):
    model = Texts() if model is None else model
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.5)
    return Trainer(PLAN, model, loss, optimizer, **{"owners": LABELS, "key": 3, **more})


def weights(made):
    return torch.cat([value.flatten() for value in made.model.state_dict().values()])


def trained(made, data):
    made.fit(data, progress=False)
    return weights(made)


FORMS = {
    "columns": lambda: TEXTS,
    "a data set": Items,
    "a list": lambda: list(Items()),
    "label": lambda: (
        {name.removesuffix("s"): column for name, column in TEXTS.items() if name == "labels"}
        | {name: column for name, column in TEXTS.items() if name != "labels"}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_dicts_with_labels_are_inputs_and_targets(form):
    inputs = {name: column for name, column in TEXTS.items() if name != "labels"}
    expected = trainer(nn.CrossEntropyLoss())
    expected.fit(inputs, TEXTS["labels"], progress=False)
    assert torch.equal(trained(trainer(nn.CrossEntropyLoss()), FORMS[form]()), weights(expected))


@pytest.mark.parametrize("most", [None, 8])
@pytest.mark.parametrize("engine", [None, BookKeeping, Functional, OneByOne])
def test_losses_of_a_batch_train_as_the_loss_of_its_outputs(engine, most):
    how = {"engine": engine, "max_physical_batch": most}
    one = trained(trainer(nn.CrossEntropyLoss(), **how), TEXTS)
    other = trainer(losses=entropy, **how)
    torch.testing.assert_close(trained(other, TEXTS), one, rtol=1e-5, atol=1e-6)
    assert type(other.engine) is (engine or BookKeeping)
    assert set(other.model.state_dict()) == {"words.weight", "head.weight", "head.bias"}


def test_several_losses_and_several_calls():
    def losses(model, batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="none") + 0.1 * (model(x.flip(1)) - model(x)).square().sum(1)

    def small():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))

    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
    results = {}
    for engine in (None, OneByOne):
        made = trainer(model=small(), losses=losses, engine=engine)
        made.fit(x, TEXTS["labels"].numpy(), progress=False)
        results[engine] = weights(made)
    torch.testing.assert_close(results[None], results[OneByOne], rtol=1e-4, atol=1e-6)


def test_a_batch_of_one_tensor_and_evaluations_without_predictions():
    x = (torch.rand(N, 1, generator=torch.Generator().manual_seed(2)) > 0.5).float()
    made = trainer(model=nn.Linear(1, 1), losses=lambda model, batch: (model(batch) - batch).square()[:, 0])
    curve = made.fit(x, held_out=x.clone(), progress=False)
    assert curve.last.loss is not None
    assert curve.last.accuracy is None
    assert made.diagnose(x).learnt_and_clipped is None


def test_scores_get_the_batch():
    seen = []

    def score(outputs, batch, losses):
        seen.append(set(batch))
        return -outputs["losses"]

    trainer(losses=entropy, score=score).step(TEXTS)
    assert seen[-1] == set(TEXTS)


def test_training_goes_on_and_owners_of_dicts_are_told_from_targets():
    held_out = ({name: column.clone() for name, column in TEXTS.items()}, np.array(LABELS))
    for loss, losses in ((None, entropy), (nn.CrossEntropyLoss(), None)):
        whole = trainer(loss, losses=losses)
        curve = whole.fit(TEXTS, held_out=held_out, progress=False)
        assert set(curve.last.by_owner) == {"all"}
        parts = trainer(loss, losses=losses)
        parts.fit(TEXTS, steps=1, progress=False)
        parts.fit(TEXTS, progress=False)
        assert torch.equal(weights(parts), weights(whole))


class Remembering:
    """Losses that keep a mean over batches, and subtract it."""

    def __init__(self):
        self.mean = torch.zeros(())

    def __call__(self, model, batch):
        losses = entropy(model, batch)
        with torch.no_grad():
            self.mean.lerp_(losses.mean().detach(), 0.1)
        return losses - self.mean


def writing(model, batch):
    with torch.no_grad():
        model.head.bias.add_(batch["labels"].sum())
    return entropy(model, batch)


def centred(model, batch):
    losses = entropy(model, batch)
    return losses - losses.mean()


def contrasting(model, batch):
    logits = model(batch["input_ids"], batch["attention_mask"]).logits
    return F.cross_entropy(logits @ logits.T, torch.arange(len(logits)), reduction="none")


ATTACKS = {
    "mixes": (centred, ValueError, "model and loss must process each record independently"),
    "contrasts": (contrasting, ValueError, "model and loss must process each record independently"),
    "remembers": (Remembering(), ValueError, "changes"),
    "writes": (writing, ValueError, "changes its parameter"),
    "Hugging Face's mean": (
        lambda m, b: m(**b).loss,
        ValueError,
        "losses must give one number per record.*one for the",
    ),
    "several": (lambda m, b: m(b["input_ids"], b["attention_mask"]).logits, ValueError, "gives several: average"),
    "fewer": (lambda m, b: entropy(m, b)[1:], ValueError, "losses must give one number per record.*more or fewer"),
    "an output": (lambda m, b: m(b["input_ids"], b["attention_mask"]), ValueError, "losses must give a tensor"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_losses_that_do_not_look_at_records_alone_are_refused_before_anything_is_charged(attack):
    class Charges:
        def charge(self, cost):
            pytest.fail("charged")

    losses, error, message = ATTACKS[attack]
    made = trainer(losses=losses, ledger=Charges())
    before = weights(made)
    with pytest.raises(error, match=message):
        made.fit(TEXTS, progress=False)
    assert not made.steps_done
    assert torch.equal(weights(made), before)


def test_losses_that_begin_to_write_in_training_are_noticed():
    class Late:
        def __init__(self):
            self.total = torch.zeros(1)

        def __call__(self, model, batch):
            if self.writes:
                self.total += batch["labels"].sum()
            return entropy(model, batch)

    losses = Late()
    losses.writes = False
    made = trainer(losses=losses)
    made.step(TEXTS)
    before = weights(made)
    losses.writes = True
    with pytest.raises(ValueError, match="must leave the model as it was"):
        made.step(TEXTS)
    assert torch.equal(weights(made), before)
    assert not losses.total


def test_what_is_no_loss_is_refused():
    for how, message in (
        ({}, "loss must be given.*or losses="),
        ({"loss": nn.CrossEntropyLoss(), "losses": entropy}, "loss and losses exclude each other"),
        ({"losses": nn.CrossEntropyLoss}, r"losses must be a function of \(model, batch\)"),
        ({"losses": lambda batch: batch}, r"losses must be a function of \(model, batch\), but .* given as loss="),
    ):
        with pytest.raises(TypeError, match=message):
            trainer(**how)

    class Learnt(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, model, batch):
            return self.scale * entropy(model, batch)

    with pytest.raises(ValueError, match="make them parameters of the model"):
        trainer(losses=Learnt())
    with pytest.raises(TypeError, match="optimizer"):
        Trainer(PLAN, Texts(), nn.CrossEntropyLoss(), owners=LABELS)


def test_dicts_without_labels_are_refused_with_a_remedy():
    inputs = {name: column for name, column in TEXTS.items() if name != "labels"}
    for data in (inputs, Items(inputs)):
        with pytest.raises(TypeError, match=r"the keys 'attention_mask', 'input_ids', and 'labels'.*give losses="):
            trainer(nn.CrossEntropyLoss()).fit(data, progress=False)


@pytest.mark.parametrize("losses", [None, entropy])
def test_a_real_model_of_hugging_face(losses):
    transformers = pytest.importorskip("transformers", reason="needs transformers, of the extra 'peers'")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=8, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    made = trainer(None if losses else nn.CrossEntropyLoss(), model, losses=losses)
    before = weights(made)
    made.step(TEXTS)
    assert not torch.equal(weights(made), before)
    found = made.evaluate({name: column.clone() for name, column in TEXTS.items()})
    assert (found.accuracy is None) == (losses is not None)
