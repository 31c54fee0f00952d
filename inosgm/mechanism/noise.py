"""Where coins and noise come from (the operating system, or a key), and the kinds of noise."""

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import array_api_compat
import numpy as np
from scipy.special import ndtri

from inosgm._internal import keys
from inosgm._internal.trees import tree_map
from inosgm._internal.validate import Array
from inosgm.mechanism.discrete_gaussian import discrete_gaussian
from inosgm.mechanism.secure_generator import Generator, SecureGenerator

_GRID_BITS = 20
"""A standard deviation of discrete noise is 2^20 to 2^21 units of its grid."""

_SMOOTHING = 16
"""By how much the variance of discrete noise exceeds the plan's, in units of its grid: t^2 in `DiscreteNoise`."""


def streams(key: int | None, step: int) -> tuple[Generator, Generator]:
    """Return one generator for the coins and one for the noise of a step.

    Without a key both are cryptographic, with a new secret of the operating system at every call, so that no copy of a
    mechanism ever repeats noise. A `SecretKey`, which a run directory or a store has drawn, gives cryptographic
    generators as well. With any other key they are numpy's PCG64DXSM and a function of (key, step): a retried step
    repeats itself. Such a run is reproducible, and not private against whoever knows the key.

    >>> streams(7, step=3)[1].normal() == streams(7, step=3)[1].normal()
    True
    """
    return _generator(key, step, keys.COINS), _generator(key, step, keys.NOISE)


def choices(key: int | None, step: int) -> np.random.Generator:
    """Return the generator of what is chosen at random between steps, such as a group; it knows no data."""
    return _fast(key, step, keys.CHOICES)


def _generator(key: int | None, step: int, child: tuple[int, ...]) -> Generator:
    if key is None:
        return SecureGenerator(os.urandom(32))
    if isinstance(key, keys.SecretKey):
        return SecureGenerator(keys.stream_secret(key, step, child))
    return _fast(key, step, child)


def _fast(key: int | None, step: int, child: tuple[int, ...]) -> np.random.Generator:
    # numpy takes any ISeedSequence; its type hints name SeedSequence only.
    return np.random.Generator(np.random.PCG64DXSM(keys.step_sequence(key, step, child)))  # type: ignore[arg-type]


def key_beside(key: int) -> int:
    """Return the key of what is released beside the steps of a key: its noise is its own."""
    return keys.Purpose.SIDE_KEY.key_from(key)


def name_of_noise(key: int) -> str:
    """Return a job id that stands for the noise of a key: two jobs with the same noise are the same job."""
    text = key.to_text() if isinstance(key, keys.SecretKey) else str(key)
    return "key-" + keys.Purpose.NOISE_NAME.hex(text)


@dataclass(frozen=True)
class Noise(ABC):
    """A kind of noise: `GaussianNoise` or `DiscreteNoise`."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether sums must be made in fixed point, so that one record moves them by its sensitivity exactly."""

    @abstractmethod
    def add(self, total: Any, scale: float, generator: Generator) -> Any:
        """Return sums with independent noise of a standard deviation on every coordinate, on the device of each."""

    @abstractmethod
    def exceeded(self, scale: float, risks: np.ndarray) -> np.ndarray:
        """Return what the noise on one coordinate exceeds with at most these probabilities."""


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """Gaussian noise in floating point: as fast as it gets, and exact only for real numbers.

    The low bits of a float can betray the value that noise was added to (Mironov 2012), and sums in floating point
    depend on their order (Casacuberta et al. 2022); `DiscreteNoise` has neither weakness.

    >>> GaussianNoise().add(np.zeros(2), 1.0, np.random.default_rng(0)).round(1)
    array([ 0.1, -0.1])
    """

    @property
    def exact(self) -> bool:
        """False: sums are made in floating point."""
        return False

    def add(self, total: Any, scale: float, generator: Generator) -> Any:
        """Add independent N(0, scale^2) to every coordinate, on the device where it is, in float32 or better."""
        return tree_map(lambda array: _noisy(array, scale, generator), total)

    def exceeded(self, scale: float, risks: np.ndarray) -> np.ndarray:
        """Return the quantiles of a Gaussian."""
        return np.asarray(-scale * ndtri(risks))


@dataclass(frozen=True)
class DiscreteNoise(Noise):
    """Discrete Gaussian noise, sampled exactly, on sums in fixed point: a guarantee for real computers.

    A released number is a whole number of units u, a power of two that is 2^-21 to 2^-20 of the noise scale. It is a
    sample of the discrete Gaussian on these multiples of u whose centre is the sum, with the variance
    u^2 (ceil(scale^2 / u^2) + 16). Nothing else of the sum enters, so that no bit of it is left to be seen.

    **Guarantee.** Whatever is proven for Gaussian noise of the same scale holds for this one: every epsilon of a plan,
    a ledger or a filter, whatever the sampling, composition and adaptivity. Proof: let Y be the sum with Gaussian noise
    of variance r^2, in units, and round Y at random, to the whole number X with probability proportional to
    exp(-(X - Y)^2 / 2 t^2), t^2 = 16. That is a function of Y and fresh coins, so X is as private as Y. And X has,
    up to a factor of exp(+-1e-136) on every probability, the discrete Gaussian distribution of variance r^2 + t^2:
    completing the square gives exactly that, but for the normaliser of the rounding, which the Poisson summation
    formula says is t sqrt(2 pi) (1 +- 2.1 exp(-2 pi^2 t^2)) for every Y. With d numbers and T steps epsilon grows by
    2 d T 1e-136 at most. docs/how_it_works.md has the proof in full.

    >>> value = DiscreteNoise().add(np.zeros(2), 1.0, np.random.default_rng(0))
    >>> value.round(1), (value * 2**20) % 1
    (array([-1.3,  1.3]), array([0., 0.]))
    """

    @property
    def exact(self) -> bool:
        """True: sums are made in fixed point."""
        return True

    def add(self, total: Any, scale: float, generator: Generator) -> Any:
        """Return samples of the discrete Gaussian with these centres, in float64; tensors in their own precision."""
        return tree_map(lambda array: _discrete(array, scale, generator), total)

    def exceeded(self, scale: float, risks: np.ndarray) -> np.ndarray:
        """Return the quantiles of the Gaussian of its variance, and one unit.

        The density decreases, so the sum of P(x) over whole x >= y is at most the integral from y - 1 on.
        """
        unit, variance = _grid(scale)
        return np.asarray(unit - unit * math.sqrt(variance) * ndtri(risks))


def _grid(scale: float) -> tuple[float, int]:
    """Return the unit of discrete noise of a scale, and its variance in units."""
    unit = math.ldexp(1.0, math.frexp(scale)[1] - 1 - _GRID_BITS)
    return unit, math.ceil((Fraction(scale) / Fraction(unit)) ** 2) + _SMOOTHING


def _discrete(array: Array, scale: float, generator: Generator) -> Array:
    torch = array_api_compat.is_torch_array(array)
    plain = array.detach().cpu().numpy() if torch else np.asarray(array)
    unit, variance = _grid(scale)
    centres = plain.astype(np.float64).reshape(-1) / unit  # exact: the unit is a power of two
    whole = np.rint(centres)
    centres -= whole  # exact: what is left of a float64 when whole numbers are taken away is one
    words = generator.words if isinstance(generator, SecureGenerator) else generator.bit_generator.random_raw
    # From 2^53 units on the sum of two whole numbers is rounded: a function of the exact one.
    values = ((whole + discrete_gaussian(variance).sample(centres, words)) * unit).reshape(plain.shape)
    if not torch:
        return values
    import torch as library

    kind = library.promote_types(array.dtype, library.float32)
    return library.from_numpy(values).to(device=array.device, dtype=kind)


def _noisy(array: Array, scale: float, generator: Generator) -> Array:
    if not array_api_compat.is_torch_array(array):
        return array + scale * generator.standard_normal(array.shape)
    import torch

    array = array.detach().to(torch.promote_types(array.dtype, torch.float32))
    # torch's own generator on the CPU knows only 2^32 seeds, and none of its generators is cryptographic
    if array.device.type == "cpu" or isinstance(generator, SecureGenerator):
        precision = np.float64 if array.dtype == torch.float64 else np.float32
        noise = torch.from_numpy(generator.standard_normal(tuple(array.shape), dtype=precision)).to(array.device)
    else:
        source = torch.Generator(array.device).manual_seed(int(generator.integers(2**63)))
        noise = torch.randn(array.shape, generator=source, dtype=array.dtype, device=array.device)
    return array.add(noise, alpha=scale)
