"""Noisy sums of cells that are not public: only those above a threshold are released."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.mechanism.noise import GaussianNoise, Noise
from inosgm.mechanism.secure_generator import Generator
from inosgm.mechanism.streaming import Streaming

NEARLY_NO_NOISE = 0.05
"""Noise multiplier that stands for no noise. With rate q, a sampled Gaussian of this multiplier has q of its mass at
losses above 100, as good as infinite for every epsilon that anybody grants."""


def threshold_of(
    sensitivities: np.ndarray, noise_scale: float, risks: np.ndarray, noise: Noise = GaussianNoise()
) -> float:
    """Return the threshold that a cell with a single record exceeds with at most the risk of the record's owner.

    The sum of such a cell is at most the sensitivity C of the owner, so its noisy sum exceeds C + sigma z(1 - risk)
    with at most that probability. The largest over all owners serves all of them.

    Args:
        sensitivities: That of each owner.
        noise_scale: The standard deviation of the noise on each sum.
        risks: The probability that each owner accepts.
        noise: The kind of noise.

    >>> threshold_of(np.array([1.0]), 2.0, np.array([0.5]))
    1.0
    """
    return float(np.max(sensitivities + noise.exceeded(noise_scale, risks)))


class ThresholdedSums(Streaming):
    """A mechanism whose cells are named by the records themselves, so that the names are private as well.

    **Guarantee.** Let D' be D with one more record of an owner. If its name occurs in D, the released values are a
    function of the sums of the same cells with Gaussian noise, which costs what `INOSGM` says. If not, D' has one more
    cell, whose sum is at most the owner's sensitivity: it is released with at most the owner's risk (`threshold_of`),
    and otherwise the released values have the same distribution as for D. The second case is a mechanism that shows the
    record with that probability and nothing else, which is the sampled Gaussian with the risk as its rate and no noise.
    Both together are at most the composition of both. The risk has to be paid for in addition: `NEARLY_NO_NOISE` is the
    multiplier of that charge.

    A subclass calls `name_cells` with all names of the data before it makes a sum.
    """

    risks: np.ndarray
    """The probability that each owner accepts; a subclass sets it before it calls the base."""

    _names: tuple[str, ...] = ()

    def name_cells(self, names: Sequence[str]) -> None:
        """Set the names of the cells: all that occur in the data. NOT PRIVATE."""
        self._names = tuple(names)
        self._cells = _validate.count("cells", max(2, len(self._names)))

    @property
    def threshold(self) -> float:
        """The threshold, in units of the sums: public."""
        return threshold_of(self._plan.sensitivities, self._plan.noise_scale, self.risks, self._noise)

    def _noisy(self, total: Any, noise: Generator) -> dict[str, np.ndarray]:
        """Return the noisy sums above the threshold by name; nothing else of a cell leaves this method."""
        values = np.asarray(super()._noisy(total, noise))
        above = np.flatnonzero(values[: len(self._names)] > self.threshold)
        return {self._names[cell]: values[cell] for cell in above.tolist()}

    def _bound(self, total: Any, value: Any) -> Any:
        """Add the names of all cells: the same sums of other names are other data."""
        names = json.dumps(self._names).encode()
        return super()._bound(total, value), np.frombuffer(names, dtype=np.uint8)
