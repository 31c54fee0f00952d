"""Notices parameters that somebody else than the trainer has changed between two of its steps."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


class ParameterWatch:
    """Remembers by torch's counts of writes, and by addresses, how the trainer has left the parameters.

    An update by `loss.backward(); optimizer.step()` on training records would reach the model without noise and without
    a charge. Counts and addresses cost a fraction of a microsecond for each parameter, so they are compared at every
    step. Writes through `.data`, which torch does not count, are not noticed, and neither are those to frozen
    parameters and buffers, which may be computed from released values between steps.

    Args:
        model: The user's model, for the names of its parameters.

    >>> model = nn.Linear(2, 1)
    >>> watch = ParameterWatch(model)
    >>> watch.take(list(model.parameters()))
    >>> _ = nn.init.zeros_(model.bias)
    >>> watch.require_unchanged()
    Traceback (most recent call last):
    ...
    ValueError: parameters must be changed by the trainer only, but 'bias' was changed by something else since ...
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._parameters: Sequence[Tensor] = ()
        self._marks: list[tuple[int, int]] = []

    def take(self, parameters: Sequence[Tensor]) -> None:
        """Remember how parameters are now."""
        self._parameters = parameters
        self._marks = list(map(_mark, parameters))

    def forget(self) -> None:
        """Accept any change up to the next `take`."""
        self._parameters, self._marks = (), []

    def unchanged(self) -> bool:
        """Return whether no write was counted since, and no parameter has other memory."""
        return list(map(_mark, self._parameters)) == self._marks

    def require_unchanged(self) -> None:
        """Raise for a parameter that was changed since.

        Raises:
            ValueError: naming it.
        """
        if self.unchanged():
            return
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        pairs = zip(self._parameters, self._marks, strict=True)
        changed = next(parameter for parameter, mark in pairs if _mark(parameter) != mark)
        raise ValueError(
            f"parameters must be changed by the trainer only, but {names.get(id(changed), 'one of them')!r} was "
            "changed by something else since its last step: an update of your own, such as loss.backward() and "
            "optimizer.step(), would put records into the model without noise and without a charge. Resume from a "
            "checkpoint; if the change is a function of public or released values only, call "
            "trainer.accept_parameters() first"
        )

    @contextmanager
    def own(self) -> Iterator[None]:
        """Accept the changes that are made inside, if there was none before."""
        unchanged = self.unchanged()
        try:
            yield
        finally:
            if unchanged:
                self.take(self._parameters)


def _mark(parameter: Tensor) -> tuple[int, int]:
    return parameter._version, parameter.data_ptr()
