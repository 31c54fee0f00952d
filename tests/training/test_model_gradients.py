"""Every engine against one backward per record in float64, on the models that ship with the library."""

import pytest
import torch
from gradient_models import ENTROPY, naive

from inosgm.training import BookKeeping, Functional, OneByOne
from inosgm.training.gradients import engine_for
from inosgm.training.models import make

SHAPES = {
    "logistic_regression": (1, 9, 9),
    "mlp": (21,),
    "mnist_cnn": (1, 28, 28),
    "cifar_cnn": (3, 16, 16),
    "resnet18": (3, 8, 8),
    "char_lstm": (7,),
}


def batch(name, n):
    drawn = torch.Generator().manual_seed(1)
    if name == "char_lstm":
        x = torch.randint(1, 20, (n, *SHAPES[name]), generator=drawn)
        x[:, 5:] = 0  # padding
    else:
        x = torch.randn(n, *SHAPES[name], generator=drawn)
    return x, torch.randint(0, 4, (n,), generator=drawn)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_the_models_that_ship(name):
    model = make(name, classes=4, input_shape=SHAPES[name], seed=0).double()
    x, y = batch(name, 4)
    weights = torch.tensor([0.3, 0.0, 1.0, 0.7], dtype=torch.float64)
    norms, total = naive(model, ENTROPY, x, y, weights)
    x = x.double() if x.is_floating_point() else x
    for kind in (BookKeeping, Functional, OneByOne):
        engine = kind(model, ENTROPY)
        found = engine.gradients(x, y)
        torch.testing.assert_close(found.norms(), norms, rtol=1e-7, atol=1e-10)
        for part, expected in zip(found.weighted_sum(weights), total, strict=True):
            torch.testing.assert_close(part, expected, rtol=1e-7, atol=1e-9)
        none = engine.gradients(x[:0], y[:0])
        assert none.norms().shape == none.losses.shape == (0,)
        assert all(not part.any() for part in none.weighted_sum(weights[:0]))


@pytest.mark.parametrize("name", SHAPES)
def test_book_keeping_serves_the_models_that_ship(name):
    model = make(name, classes=4, input_shape=SHAPES[name], seed=0)
    assert type(engine_for(model, ENTROPY, *batch(name, 1))) is BookKeeping
