import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

from inosgm.datasets.names import LENGTH, VOCABULARY, encode
from inosgm.training.models import MODELS, make

SHAPES = {
    "logistic_regression": (1, 28, 28),
    "mlp": (21,),
    "mnist_cnn": (1, 28, 28),
    "cifar_cnn": (3, 32, 32),
    "resnet18": (3, 16, 16),
    "char_lstm": (LENGTH,),
}


def records(name, n):
    if name == "char_lstm":
        words = ["Abe", "Featherstonehaugh", "Li", "O'Brien", "Satō-Müller"]
        return torch.stack([torch.from_numpy(encode(words[i % 5])) for i in range(n)])
    return torch.from_numpy(np.random.default_rng(0).random((n, *SHAPES[name]), dtype=np.float32))


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "classes", "shape", "options", "count"),
    [
        ("logistic_regression", 10, (1, 28, 28), {}, 784 * 10 + 10),
        ("mlp", 3, (21,), {}, (21 + 1) * 47 + 2 * (47 + 1) * 47 + (47 + 1) * 3),
        ("mlp", 10, (1, 28, 28), {"widths": [32], "activation": "tanh"}, 785 * 32 + 33 * 10),
        ("mnist_cnn", 10, (1, 28, 28), {}, 26_010),
        ("cifar_cnn", 10, (3, 32, 32), {}, 550_570),
        ("cifar_cnn", 100, (3, 32, 32), {}, 550_570 + 90 * 129),
        ("resnet18", 10, (3, 32, 32), {}, 11_173_962),  # with batch normalisation the well-known number is the same
        ("resnet18", 1000, (3, 224, 224), {"large_images": True}, 11_689_512),  # torchvision's
        ("char_lstm", 18, (20,), {}, 60 * 64 + (64 + 1) * 512 + (128 + 1) * 512 + 129 * 18),
    ],
)
def test_parameters_are_as_many_as_by_hand(name, classes, shape, options, count):
    assert size(make(name, classes=classes, input_shape=shape, seed=0, **options)) == count


@pytest.mark.parametrize("name", MODELS)
class TestEveryModel:
    def test_a_record_gets_its_outputs_whoever_else_is_there(self, name):
        model, batch = make(name, classes=7, input_shape=SHAPES[name], seed=0), records(name, 5)
        with torch.no_grad():
            outputs = model(batch)
            assert outputs.shape == (5, 7)
            for i in range(5):
                torch.testing.assert_close(model(batch[i : i + 1])[0], outputs[i], rtol=1e-5, atol=1e-5)
            assert model(batch[:0]).shape == (0, 7)

    def test_a_seed_decides_and_torch_goes_on_as_before(self, name):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        one, again, other, fresh, another = (
            make(name, classes=3, input_shape=SHAPES[name], seed=seed).state_dict() for seed in (1, 1, 2, None, None)
        )
        assert torch.equal(torch.get_rng_state(), before)
        assert all(torch.equal(one[key], again[key]) for key in one)
        assert any(not torch.equal(one[key], other[key]) for key in one)
        assert any(not torch.equal(fresh[key], another[key]) for key in one)

    def test_every_parameter_gets_a_gradient(self, name):
        model = make(name, classes=3, input_shape=SHAPES[name], seed=0)
        nn.functional.cross_entropy(model(records(name, 4)), torch.tensor([0, 1, 2, 0])).backward()
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


class TestCharLSTM:
    def test_padding_has_no_influence(self):
        model = make("char_lstm", classes=4, input_shape=(LENGTH,), seed=0)
        codes = records("char_lstm", 1)
        longer = torch.cat([codes, torch.zeros(1, 7, dtype=torch.int64)], dim=1)
        with torch.no_grad():
            torch.testing.assert_close(model(codes), model(longer))
            torch.testing.assert_close(model(codes), model(codes[:, :3]))
            assert torch.isfinite(model(torch.zeros_like(codes))).all()

    def test_its_lstm_is_that_of_torch(self):
        model = make("char_lstm", classes=4, input_shape=(LENGTH,), seed=0)
        plain = nn.LSTM(64, 128, batch_first=True)
        plain.load_state_dict(model.lstm.state_dict())
        codes = records("char_lstm", 2)[1:, :17]
        with torch.no_grad():
            expected = model.linear(plain(model.embedding(codes))[0][:, -1])
            torch.testing.assert_close(model(codes), expected)

    def test_other_vocabularies(self):
        model = make("char_lstm", classes=2, input_shape=(5,), vocabulary=7, embedding=3, hidden=4)
        assert size(model) == 7 * 3 + 4 * 16 + 5 * 16 + 5 * 2
        assert VOCABULARY == 60


class TestOfTheUser:
    @pytest.fixture(autouse=True)
    def module(self, tmp_path, monkeypatch):
        code = "\n".join(
            [
                "from torch import nn",
                "def tiny(classes, input_shape, bias=True):",
                "    return nn.Linear(input_shape[0], classes, bias=bias)",
                "def nothing(**options): pass",
                "number = 3",
            ]
        )
        (tmp_path / "users_models.py").write_text(code)
        (tmp_path / "users_broken.py").write_text("import no_such_library")
        monkeypatch.syspath_prepend(tmp_path)
        yield
        for name in ("users_models", "users_broken"):
            sys.modules.pop(name, None)

    def test_is_found_by_its_import_path(self):
        model = make("users_models:tiny", classes=2, input_shape=(5,), seed=1, bias=False)
        assert size(model) == 10
        again = make("users_models:tiny", classes=2, input_shape=[5], seed=1, bias=False)
        assert torch.equal(model.weight, again.weight)

    @pytest.mark.parametrize(
        ("name", "error", "message"),
        [
            ("users_models:huge", ValueError, "users_models has no 'huge'"),
            ("users_modles:tiny", ValueError, "there is no module 'users_modles'"),
            ("users_models.deep:tiny", ValueError, "there is no module 'users_models.deep'"),
            ("users_models:", ValueError, "users_models has no ''"),
            (":tiny", ValueError, "package.module:function"),
            ("users_models:number", TypeError, "must name a function, got a int"),
            ("users_models:nothing", TypeError, "must return a torch.nn.Module, got a NoneType"),
            ("users_broken:tiny", ModuleNotFoundError, "no_such_library"),
        ],
    )
    def test_what_is_wrong_is_said(self, name, error, message):
        with pytest.raises(error, match=message):
            make(name, classes=2, input_shape=(5,))


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("vgg", (1, 28, 28), {}, "model must be one of logistic_regression, mlp, .*got 'vgg'"),
        ("mlp", (21,), {"width": 3}, "model mlp does not take these options: .*'width'"),
        ("mlp", (21,), {"activation": "gelu"}, "activation must be one of relu, tanh, got 'gelu'"),
        ("mnist_cnn", (1, 8, 8), {}, r"larger images for mnist_cnn, got \(1, 8, 8\)"),
        ("cifar_cnn", (3, 4, 4), {}, r"larger images for cifar_cnn, got \(3, 4, 4\)"),
        ("mnist_cnn", (21,), {}, r"images .*mnist_cnn, got \(21,\)"),
        ("resnet18", (21,), {}, r"images .*resnet18, got \(21,\)"),
        ("char_lstm", (1, 28, 28), {}, "a row of codes for char_lstm"),
        ("mlp", (21,), {"seed": -1}, "seed must be a whole number >= 0, got -1"),
    ],
)
def test_refusals(name, shape, options, message):
    with pytest.raises(ValueError, match=message):
        make(name, classes=10, input_shape=shape, **options)


def test_the_sizes_of_the_papers_cnn():
    model, sides = make("mnist_cnn", classes=10, input_shape=(1, 28, 28)), []
    x = torch.zeros(1, 1, 28, 28)
    for layer in model:
        x = layer(x)
        sides.append(x.shape[-1])
    assert [sides[i] for i in (0, 2, 3, 5)] == [14, 13, 5, 4]
    assert math.prod(x.shape) == 10
