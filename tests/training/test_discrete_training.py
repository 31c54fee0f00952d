"""Training with discrete noise: gradients in fixed point, sums that never move too far, values on a public grid."""

import numpy as np
import pytest
import torch
from torch import nn

from inosgm import (
    AutomaticClipping,
    DiscreteNoise,
    GaussianNoise,
    LinearTail,
    Owners,
    Plan,
    Trainer,
    certify,
    plan_sample,
)
from inosgm.mechanism.inspection import Inspection
from inosgm.training.gradients import BookKeeping, Functional

RECORDS = 40


def data(seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(RECORDS, 5, generator=generator) * scale, torch.arange(RECORDS) % 3


def trainer(*, sensitivities=(1.0, 0.3), noise_scale=0.5, steps=3, rate=1.0, model=None, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)) if model is None else model
    plan = Plan(
        sample_rates=[rate, rate],
        sensitivities=sensitivities,
        sizes=[RECORDS // 2, RECORDS // 2],
        noise_scale=noise_scale,
        steps=steps,
    )
    options = {"noise": DiscreteNoise(), "tail": LinearTail(plan.tail_length(0.4)), "key": 7, **options}
    return Trainer(
        plan, model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1), owners=[0, 1] * 20, **options
    )


def flat(tensors):
    return torch.cat([tensor.reshape(-1).to(torch.float64) for tensor in tensors])


def test_released_gradients_lie_on_a_public_grid():
    found = trainer(rate=0.5)
    for _ in range(3):
        for value in found.step(*data()).value:
            assert value.dtype == torch.float64
            assert bool(((value * 2.0**21) % 1 == 0).all())


@pytest.mark.parametrize("engine", [None, Functional])
@pytest.mark.parametrize("most", [None, 7])
def test_sums_are_those_of_the_float_path(engine, most):
    """Parity, to the rounding of float32, in one part and in several."""
    everybody = [np.arange(RECORDS), np.arange(0, RECORDS, 3), np.arange(0)]
    options = {"engine": engine, "max_physical_batch": most}
    exact = Inspection(trainer(**options)).sums(data(), everybody)
    floats = Inspection(trainer(noise_scale=0.5, **{**options, "noise": GaussianNoise(), "engine": None})).sums(
        data(), everybody
    )
    for one, other in zip(exact, floats, strict=True):
        assert [part.shape for part in one] == [part.shape for part in other]
        assert flat(one).numpy() == pytest.approx(flat(other).numpy(), abs=1e-4)


def moved(found, records):
    """Return how far each record moves the sum of all, over the sensitivity of its owner."""
    everybody = np.arange(RECORDS)
    batches = [everybody, *(np.delete(everybody, record) for record in range(RECORDS))]
    whole, *without = (flat(total) for total in Inspection(found).sums(records, batches))
    bounds = found.plan.sensitivities[np.array([0, 1] * 20)]
    return np.array([float((whole - some).norm()) for some in without]) / bounds


def test_a_record_never_moves_a_sum_by_more_than_it_may():
    """Casacuberta et al. in training: sums of float32 around 10 are rounded to 1e-6, above an owner's 3e-7.

    In fixed point no record moves a sum by more than it may.
    """
    wide = {"sensitivities": (1.0, 3e-7)}
    assert moved(trainer(noise=GaussianNoise(), **wide), data(2, scale=9.0)).max() > 1.5
    assert moved(trainer(**wide), data(2, scale=9.0)).max() <= 1
    assert moved(trainer(), data(3)).max() <= 1


def test_the_certifier_finds_nothing():
    assert certify(trainer(steps=1), data(), evaluations=40).holds(tolerance=0.0)


def test_a_run_is_resumed_with_the_same_noise_and_no_other(tmp_path):
    owners = Owners(of_record=["a", "b"] * 20, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    plan = plan_sample(owners, steps=3, expected_batch=20, clip_norm=1.0)

    def fitted(noise, **options):
        torch.manual_seed(1)
        model = nn.Linear(5, 3)
        found = Trainer(plan, model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1), noise=noise)
        found.fit(*data(), run=tmp_path / "run", checkpoint_every=1, progress=False, **options)
        return found

    fitted(DiscreteNoise(), steps=1)
    assert (tmp_path / "run" / "key").read_text().startswith("aes ")  # a secret key: cryptographic streams
    with pytest.raises(ValueError, match="noise"):
        fitted(GaussianNoise())
    assert fitted(DiscreteNoise()).released == 3


def test_what_has_no_sums_in_fixed_point_is_refused_before_anything_is_spent():
    with pytest.raises(TypeError, match="OneByOne or Functional"):
        trainer(engine=BookKeeping)
    with pytest.raises(TypeError, match="ScaleClipped"):
        trainer(clipping=AutomaticClipping())
    with pytest.raises(TypeError, match="noise must be"):
        trainer(noise="discrete")
    with pytest.raises(TypeError, match="several views"):
        trainer(views=2)
    with pytest.raises(ValueError, match="sensitivities must"):
        trainer(sensitivities=(1.0, 1e-15))
