"""The scattering transform equals its definition, and the features of an image depend on this image alone."""

import math

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d

from inosgm.training.features import Scattering

REACH = 24
"""Pixels on each side of 0 at which filters of the reference are evaluated: 7.5 standard deviations of the widest."""


def convolved(image, kernel):
    """Convolve a periodic image with a filter around 0, from the definition."""
    return convolve2d(np.pad(image, REACH, mode="wrap"), kernel, mode="valid")


def gaussian(u, v, width, slant=1.0):
    return slant / (2 * np.pi * width**2) * np.exp(-(u**2 + slant**2 * v**2) / (2 * width**2))


def filters():
    """Return the wavelets by scale and angle and the average, as functions on the plane at whole numbers."""
    y, x = np.mgrid[-REACH : REACH + 1, -REACH : REACH + 1].astype(float)
    wavelets = {}
    for j in (0, 1):
        for angle in range(8):
            theta = np.pi * angle / 8
            u, v = np.cos(theta) * y + np.sin(theta) * x, -np.sin(theta) * y + np.cos(theta) * x
            envelope = gaussian(u, v, 0.8 * 2**j, slant=0.5)
            wave = np.exp(1j * 0.75 * np.pi / 2**j * u)
            beta = (wave * envelope).sum() / envelope.sum()
            wavelets[j, angle] = (wave - beta) * envelope
    return wavelets, gaussian(x, y, 1.6)


def reference(image):
    """Return the transform of one channel, as the docstring defines it."""
    wavelets, phi = filters()
    padded = np.pad(image, 4, mode="reflect")

    def averaged(values):
        return convolved(values, phi)[4:-4:4, 4:-4:4]

    first = {path: np.abs(convolved(padded, psi)) for path, psi in wavelets.items()}
    second = [np.abs(convolved(first[0, a], wavelets[1, b])) for a in range(8) for b in range(8)]
    return np.array([averaged(values) for values in [padded, *first.values(), *second]])


@pytest.mark.parametrize("shape", [(32, 32), (28, 28), (10, 17)])
def test_equals_a_reference_written_from_the_definition(shape):
    images = np.random.default_rng(1).random((1, 1 if shape == (32, 32) else 2, *shape)).astype(np.float32)
    found = Scattering(*shape, groups=None)(torch.from_numpy(images))[0].numpy()
    wanted = np.concatenate([reference(channel.astype(float)) for channel in images[0]])
    assert found.shape == wanted.shape == (81 * images.shape[1], math.ceil(shape[0] / 4), math.ceil(shape[1] / 4))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max(), rtol=0)
    assert np.abs(found - wanted).max() < 1e-5


def test_features_of_an_image_do_not_depend_on_the_batch():
    generator = torch.Generator().manual_seed(2)
    images = torch.rand(7, 3, 32, 32, generator=generator)
    transform = Scattering(32, 32)
    together = transform(images)
    assert (together.dtype, together.shape) == (torch.float32, (7, 243, 8, 8))
    for k in range(7):
        assert torch.equal(transform(images[k : k + 1])[0], together[k])
    others = images.clone()
    others[1:] = 1e6
    assert torch.equal(transform(others)[0], together[0])
    assert torch.equal(transform(images.flip(0)).flip(0), together)


def test_normalisation_uses_the_statistics_of_one_image():
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    plain, normalised = Scattering(32, 32, groups=None)(images), Scattering(32, 32)(images)
    groups = plain.double().reshape(2, 27, -1)
    wanted = (groups - groups.mean(2, keepdim=True)) / (groups.var(2, keepdim=True, unbiased=False) + 1e-5).sqrt()
    assert torch.allclose(normalised.double().reshape(2, 27, -1), wanted, atol=1e-4)


def test_a_constant_image_has_averages_of_order_0_only():
    features = Scattering(12, 12, groups=None)(torch.full((1, 1, 12, 12), 0.5))
    assert torch.allclose(features[0, 0], torch.tensor(0.5))
    assert features[0, 1:].abs().max() < 1e-6


def test_sizes_and_groups_are_checked():
    with pytest.raises(ValueError, match="at least 8 rows and columns, got 7 x 32"):
        Scattering(7, 32)
    with pytest.raises(ValueError, match="groups must divide the 81 paths of a channel, got 10"):
        Scattering(32, 32, groups=10)
    with pytest.raises(ValueError, match=r"records x channels x 32 x 32, got \(2, 3, 28, 28\)"):
        Scattering(32, 32)(torch.zeros(2, 3, 28, 28))
