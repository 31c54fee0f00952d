"""An exponential moving average of the weights: a function of what was released, so it costs no budget."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from inosgm._internal import validate as _validate


class WeightAverage:
    """The exponential moving average of a model's trainable parameters over steps.

    It begins with the parameters after the first step. After step t, average = d average + (1 - d) parameters with
    d = min(decay, (1 + t) / (10 + t)): the first ones soon lose their weight.

    Args:
        model: Whose trainable parameters are averaged.
        decay: In (0, 1), such as 0.99.

    >>> model = nn.Linear(1, 1)
    >>> average = WeightAverage(model, 0.9)
    >>> for step in (1, 2):
    ...     _ = nn.init.constant_(model.weight, step)
    ...     average.update(step)
    >>> with average.swapped():
    ...     model.weight.item()
    1.75
    >>> model.weight.item()
    2.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = _validate.number("ema", decay)
        if not 0 < self._decay < 1:
            raise ValueError(f"ema must be the decay of an average, in (0, 1) such as 0.99, got {decay!r}")
        self._model = model
        self._values: dict[str, Tensor] = {}

    @property
    def state(self) -> dict[str, Tensor]:
        """The averages, by the names of the parameters; none before the first update."""
        return self._values

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over averages.

        Raises:
            ValueError: for those of other parameters.
        """
        named = self._trainable()
        if state and state.keys() != named.keys():
            raise ValueError("the average of the run is about other parameters: was it begun with another model?")
        self._values = {name: state[name].to(named[name], copy=True) for name in state}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the parameters after so many steps."""
        now = self._trainable()
        if now.keys() != self._values.keys():
            self._values = {name: value.clone() for name, value in now.items()}
            return
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self._values.values()), list(now.values()), 1 - decay)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Let the model have the averages as its parameters for a while; memory stays where it is."""
        named = self._trainable()
        parameters = [named[name] for name in self._values]
        kept = [parameter.clone() for parameter in parameters]
        for parameter, value in zip(parameters, self._values.values(), strict=True):
            parameter.copy_(value)
        try:
            yield
        finally:
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)

    def _trainable(self) -> dict[str, Tensor]:
        """Return the trainable parameters as views whose writes torch does not count: swapping is no update."""
        return {name: value.data for name, value in self._model.named_parameters() if value.requires_grad}
