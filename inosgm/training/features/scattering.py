"""The scattering transform of images (Bruna and Mallat 2013): fixed features that need no training and no budget.

Every image is convolved with Morlet wavelets of two scales and eight angles, and the modulus of the result is averaged:

    S0 = x * phi        S1 = |x * psi_a| * phi        S2 = ||x * psi_a| * psi_b| * phi,   b of a larger scale than a

which is 1 + 16 + 64 = 81 numbers for each channel and each fourth row and column of an image.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCALES = 2
ANGLES = 8
PATHS = 1 + SCALES * ANGLES + ANGLES**2 * math.comb(SCALES, 2)
"""Averages of each channel: those of order 0, 1 and 2."""
STRIDE = 2**SCALES
"""Pixels between two averages, and pixels by which an image is reflected beyond each of its sides."""
LEAST_SIDE = 2 * STRIDE

WIDTH = 0.8
"""Standard deviation, in pixels, of the envelope of the finest wavelet along its wave."""
FREQUENCY = 3 * math.pi / 4
"""Radians per pixel of the finest wavelet."""
SLANT = 4 / ANGLES
"""Width of an envelope along its wave in multiples of its width across: more angles resolve directions more finely."""
REACH = 9.0
"""Standard deviations at which an envelope is cut: exp(-9**2 / 2) is 3e-18, below the precision of float64."""


class Scattering(nn.Module):
    """The scattering transform of images of one size: two scales, eight angles, orders 0 to 2.

    An image is reflected by 4 pixels beyond each side and repeated periodically from there. Averages are taken at rows
    and columns 0, 4, 8, ..., so an image of H x W pixels becomes ceil(H / 4) x ceil(W / 4) averages: 8 x 8 for
    CIFAR-10, 7 x 7 for MNIST. The paths of a channel are ordered by order, scales (fine to coarse) and angles.

    **Guarantee.** The features of an image are a function of this image alone, bit for bit: images are transformed one
    at a time, so neither the batch nor its size has an influence, and normalisation uses the image's own statistics.

    Args:
        height: Rows of an image, at least 8.
        width: Columns of an image, at least 8.
        groups: The paths of an image, over all its channels, are normalised in this many groups to mean 0 and variance
            1 (group normalisation without learnt scale); None leaves them as they are.

    Raises:
        ValueError: for images that are smaller, and for groups that do not divide 81.

    >>> Scattering(32, 32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 243, 8, 8])
    """

    wavelets: Tensor
    row_averages: Tensor
    column_averages: Tensor

    def __init__(self, height: int, width: int, groups: int | None = 27) -> None:
        super().__init__()
        if min(height, width) < LEAST_SIDE:
            raise ValueError(f"images must have at least {LEAST_SIDE} rows and columns, got {height} x {width}")
        if groups is not None and (groups < 1 or PATHS % groups):
            raise ValueError(f"groups must divide the {PATHS} paths of a channel, got {groups}")
        self.groups = groups
        shape = (height + 2 * STRIDE, width + 2 * STRIDE)
        spectra = [
            [np.fft.fft2(_periodic(_morlet(scale, angle), shape)) for angle in range(ANGLES)] for scale in range(SCALES)
        ]
        self.register_buffer("wavelets", torch.from_numpy(np.array(spectra).astype(np.complex64)), persistent=False)
        for name, side in (("row_averages", height), ("column_averages", width)):
            self.register_buffer(name, torch.from_numpy(_averages(side)), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of a batch of images: records x (channels * 81) x rows x columns.

        Args:
            images: Records x channels x rows x columns.

        Raises:
            ValueError: for images of another size.
        """
        size = tuple(side - 2 * STRIDE for side in self.wavelets.shape[2:])
        if images.ndim != 4 or tuple(images.shape[2:]) != size:
            raise ValueError(f"images must be records x channels x {size[0]} x {size[1]}, got {tuple(images.shape)}")
        shape = (images.shape[1] * PATHS, len(self.row_averages), len(self.column_averages))
        features = images.new_empty((len(images), *shape), dtype=torch.float32)
        for image, row in zip(images, features, strict=True):
            row.copy_(self._scattered(image.float()))
        return features

    def _scattered(self, image: Tensor) -> Tensor:
        """Return the features of one image."""
        padded = F.pad(image[None], (STRIDE,) * 4, mode="reflect")[0]
        averages = [self._averaged(padded[:, None])]
        coarser: list[Tensor] = []
        spectrum = torch.fft.fft2(padded)[:, None]
        for scale, wavelets in enumerate(self.wavelets):
            modulus = torch.fft.ifft2(spectrum * wavelets).abs()
            averages.append(self._averaged(modulus))
            for coarse in self.wavelets[scale + 1 :]:
                twice = torch.fft.ifft2(torch.fft.fft2(modulus)[:, :, None] * coarse).abs()
                coarser.append(self._averaged(twice.flatten(1, 2)))
        features = torch.cat(averages + coarser, dim=1).flatten(0, 1)
        return features if self.groups is None else F.group_norm(features[None], self.groups)[0]

    def _averaged(self, maps: Tensor) -> Tensor:
        """Return local averages of maps at every fourth row and column of the image."""
        return self.row_averages @ (maps @ self.column_averages.T)


def _morlet(scale: int, angle: int) -> np.ndarray:
    """Return a Morlet wavelet at the whole numbers around 0: a wave in a Gaussian envelope, with sum 0."""
    width, direction = WIDTH * 2**scale, math.pi * angle / ANGLES
    reach = math.ceil(REACH * width / SLANT)
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    along = rows * math.cos(direction) + columns * math.sin(direction)
    across = columns * math.cos(direction) - rows * math.sin(direction)
    envelope = np.exp(-(along**2 + (SLANT * across) ** 2) / (2 * width**2)) * SLANT / (2 * math.pi * width**2)
    wave = envelope * np.exp(1j * FREQUENCY / 2**scale * along)
    result: np.ndarray = wave - envelope * (wave.sum() / envelope.sum())
    return result


def _periodic(centred: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return a filter around 0 as one on a torus, whose pixel 0 is the first."""
    reach = len(centred) // 2
    rows, columns = (np.arange(-reach, reach + 1) % side for side in shape)
    filtered = np.zeros(shape, dtype=centred.dtype)
    np.add.at(filtered, (rows[:, None], columns), centred)
    return filtered


def _averages(side: int) -> np.ndarray:
    """Return the Gaussian averages along a side as a matrix: one row for each average, one column for each pixel."""
    width = WIDTH * 2 ** (SCALES - 1)
    reach = math.ceil(REACH * width)
    matrix = np.zeros((math.ceil(side / STRIDE), side + 2 * STRIDE))
    for row, weights in enumerate(matrix):
        pixels = np.arange(-reach, reach + 1)
        np.add.at(weights, (STRIDE * (row + 1) + pixels) % len(weights), np.exp(-((pixels / width) ** 2) / 2))
    matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix.astype(np.float32)
