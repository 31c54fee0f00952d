"""Features of a frozen module depend on one record each: modules that mix, remember or draw are refused."""

import numpy as np
import pytest
import torch
from torch import nn

from inosgm.training.features import Scattering, make, require_frozen, transform

RECORDS = np.random.default_rng(0).random((6, 3, 8, 8)).astype(np.float32)


class CentredBatch(nn.Module):
    """Subtracts the mean of the batch."""

    def forward(self, x):
        return (x - x.mean(0)).flatten(1)


class Remembering(nn.Module):
    """Adds what it saw before."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, 8, 8))

    def forward(self, x):
        self.seen += x.sum(0)
        return x.flatten(1) + self.seen.sum()


class StillTraining(nn.BatchNorm2d):
    """A normalisation that stays in training mode."""

    def train(self, mode=True):
        return super().train(True)


class Noisy(nn.Module):
    """Draws in evaluation mode as well."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True).flatten(1)


def no_module(input_shape):
    return {}


def network():
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 36, 5)]
    return nn.Sequential(*layers)


def test_a_network_is_run_in_evaluation_mode_one_record_at_a_time():
    module = network().train()
    require_frozen(module, RECORDS)
    features = transform(module, RECORDS)
    assert all(layer.training for layer in module.modules())
    assert (features.dtype, features.shape) == (np.float32, (6, 5))
    with torch.no_grad():
        np.testing.assert_allclose(features, module.eval()(torch.from_numpy(RECORDS)).numpy(), atol=1e-5)
    others = RECORDS.copy()
    others[1:] = 7
    assert np.array_equal(transform(module, others)[0], features[0])
    assert np.array_equal(transform(module, RECORDS[::-1])[::-1], features)


def test_scattering_is_one_of_them():
    module = make("scattering", input_shape=(3, 8, 8), groups=None)
    require_frozen(module, RECORDS)
    assert np.array_equal(transform(module, RECORDS), Scattering(8, 8, groups=None)(torch.from_numpy(RECORDS)).numpy())


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (CentredBatch(), "says something else about a record"),
        (nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()), "says something else"),
        (nn.Sequential(StillTraining(3), nn.Flatten()), "changes"),
        (Remembering(), "changes"),
        (Noisy(), "draws random numbers"),
    ],
)
def test_a_module_whose_features_are_no_function_of_one_record_is_refused(module, words):
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(ValueError, match=words):
        require_frozen(module, RECORDS)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_module_that_writes_only_for_some_records_is_refused_and_restored():
    class Later(Remembering):
        def forward(self, x):
            return super().forward(x) if x.sum() > 1e6 else x.flatten(1)

    module, records = Later(), np.concatenate([RECORDS, np.full((1, 3, 8, 8), 1e6, np.float32)])
    require_frozen(module, records)
    with pytest.raises(ValueError, match="must leave the model as it was"):
        transform(module, records)
    assert not module.seen.any()


def test_nothing_that_a_module_stores_reaches_the_next_record():
    class Storing(nn.Module):
        last, count, seen = None, 0, ()

        def forward(self, x):
            features = x.flatten(1) + (0 if self.last is None else self.last) + self.count + len(self.seen)
            self.last, self.count, self.seen = x.flatten(1), self.count + 1, (*self.seen, x)
            return features

    module = Storing()
    assert np.array_equal(transform(module, RECORDS), RECORDS.reshape(6, -1))
    assert (module.last, module.count, module.seen) == (None, 0, ())


def test_bad_features_and_modules_are_refused():
    with pytest.raises(ValueError, match=r"must be scattering, or package.module:function, got 'wavelets'"):
        make("wavelets", input_shape=(3, 8, 8))
    with pytest.raises(ValueError, match=r"needs images .* got records of shape \(30,\)"):
        make("scattering", input_shape=(30,))
    with pytest.raises(ValueError, match="features scattering does not take these options"):
        make("scattering", input_shape=(3, 8, 8), scales=3)
    with pytest.raises(TypeError, match=r"must return a torch.nn.Module, got a dict"):
        make(f"{__name__}:no_module", input_shape=(3, 8, 8))
    with pytest.raises(ValueError, match="a row for each record, got shape"):
        transform(nn.Flatten(0), RECORDS)
    with pytest.raises(ValueError, match="finite"):
        transform(nn.Flatten(), np.full_like(RECORDS, np.nan))
