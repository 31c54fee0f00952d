"""What an engineer has at hand and cannot be trained with is refused in words, before anything is charged."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, StackDataset, Subset, TensorDataset

from inosgm import Plan
from inosgm.training import BookKeeping, Functional, OneByOne, Trainer
from inosgm.training.batches import as_data

N = 30
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) % 2
PLAN = Plan(sample_rates=[0.5], sensitivities=[0.7], sizes=[N], labels=["all"], noise_scale=0.1, steps=2)


class Charges:
    """A ledger that must not be charged."""

    def charge(self, cost):
        pytest.fail("charged")


class Items(Dataset):
    def __init__(self, item):
        self.item = item

    def __len__(self):
        return N

    def __getitem__(self, index):
        return self.item(index)


def trainer(loss, model=None, **more):
    model = nn.Linear(4, 1) if model is None else model
    return Trainer(PLAN, model, loss, torch.optim.SGD(model.parameters(), lr=0.1), owners=["all"] * N, key=1, **more)


def refused(error, message, loss, *data, model=None, **more):
    with pytest.raises(error, match=message) as caught:
        trainer(loss, model, ledger=Charges(), **more).fit(*data, progress=False)
    return caught


@pytest.mark.parametrize("engine", [None, BookKeeping, Functional, OneByOne])
@pytest.mark.parametrize(
    "loss",
    [nn.MSELoss(), nn.BCEWithLogitsLoss(), F.l1_loss, partial(F.huber_loss, delta=2.0)],
    ids=["mse", "bce", "l1", "huber"],
)
def test_one_output_against_targets_without_an_axis(loss, engine):
    refused(ValueError, r"the outputs of a record have shape \(1,\).*y\[:, None\]", loss, X, Y.float(), engine=engine)
    flat = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    refused(ValueError, r"the targets of a record have.*y\[:, 0\]", loss, X, Y[:, None].float(), model=flat)
    trainer(loss, engine=engine).fit(X, Y[:, None].float(), progress=False)
    trainer(loss, flat).fit(X, Y.float(), progress=False)


def test_shapes_that_a_loss_of_classes_takes_are_left_alone():
    trainer(nn.CrossEntropyLoss(), nn.Linear(4, 2)).fit(X, Y, progress=False)
    trainer(nn.MSELoss(), nn.Linear(4, 3)).fit(X, torch.zeros(N, 3), progress=False)


@pytest.mark.parametrize("targets", [Y[:, None], Y[:, None].numpy(), Y[:, None].bool()])
def test_whole_numbers_as_targets_of_a_binary_loss(targets):
    refused(
        TypeError,
        r"targets of BCEWithLogitsLoss must be floating-point.*y\.float\(\)",
        nn.BCEWithLogitsLoss(),
        X,
        targets,
    )


def test_a_list_of_tensors():
    refused(TypeError, r"got a list of them: torch\.stack\(x\)", nn.MSELoss(), list(X), Y.float())
    refused(TypeError, r"got a list of them: np\.stack\(x\)", nn.MSELoss(), list(X.numpy()), Y.float())
    refused(TypeError, "got a list of them", nn.MSELoss(), list(X))


def test_items_that_are_dicts_or_no_pairs():
    item = Items(lambda index: {"x": X[index], "y": Y[index]})
    refused(TypeError, "gives dicts with the keys 'x', 'y'", nn.CrossEntropyLoss(), item)
    refused(TypeError, "must give pairs of inputs and target", nn.CrossEntropyLoss(), Items(lambda index: X[index]))
    refused(TypeError, "must give pairs", nn.CrossEntropyLoss(), Items(lambda index: (X[index], X[index], Y[index])))


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.Linear])
def test_images_of_bytes(kind):
    images = np.random.default_rng(0).integers(0, 255, size=(N, 1, 4, 4), dtype=np.uint8)
    first = nn.Conv2d(1, 2, 4) if kind is nn.Conv2d else nn.Flatten()
    model = nn.Sequential(first, nn.Flatten(), nn.Linear(2 if kind is nn.Conv2d else 16, 2))
    error = refused(
        TypeError, r"are uint8, as images come from files: give.*x / 255", nn.CrossEntropyLoss(), images, Y, model=model
    )
    assert "uint8 (1, 4, 4)" in error.value.__notes__[-1]
    trainer(nn.CrossEntropyLoss(), model).fit(images.astype(np.float32) / 255, Y, progress=False)


def test_a_data_set_beside_targets():
    x, y = torch.rand(8, 4), torch.arange(8) % 2
    pairs = TensorDataset(x, y)
    for data in ((pairs, y), (Subset(pairs, range(8)), y), (list(zip(x, y, strict=True)), y), (x, pairs)):
        with pytest.raises(TypeError, match="give it alone"):
            as_data(data)
        with pytest.raises(TypeError, match="StackDataset"):
            as_data(data, whole=True)
    inputs, targets = as_data((ArrayOfAFile(), y))
    assert isinstance(inputs, ArrayOfAFile)
    assert targets is y
    assert isinstance(as_data((StackDataset(Subset(x, range(8)), y),)), StackDataset)


class ArrayOfAFile:
    """An array that is no numpy array, as h5py has them."""

    shape = (8, 4)

    def __len__(self):
        return 8

    def __getitem__(self, positions):
        return np.zeros((8, 4), dtype=np.float32)[positions]


def test_a_data_loader():
    data = TensorDataset(X, Y)
    refused(TypeError, r"got a DataLoader.*pass loader\.dataset", nn.CrossEntropyLoss(), DataLoader(data, batch_size=4))
    trainer(nn.CrossEntropyLoss(), nn.Linear(4, 2)).fit(DataLoader(data).dataset, progress=False)
    with pytest.raises(TypeError, match="got a DataLoader"):
        trainer(nn.CrossEntropyLoss(), nn.Linear(4, 2)).evaluate(DataLoader(data))
