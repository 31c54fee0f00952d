"""What callbacks of a training run are told: public things only."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inosgm.mechanism.mechanism import Release
from inosgm.training.metrics import Evaluation


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """A step was made.

    Attributes:
        step: The number of steps of the run that are done.
        steps: How many there will be.
        learning_rate: That of the optimizer's first group in the next step.
        release: What was released: the noisy sums and their cost. Batches, losses and gradients are private.
    """

    step: int
    steps: int
    learning_rate: float
    release: Release


@dataclass(frozen=True, kw_only=True)
class EvaluationEvent:
    """The model was evaluated on held-out records.

    Attributes:
        step: The number of steps of the run that are done.
        evaluation: What the model is worth on them, with `metrics` of one's own.
    """

    step: int
    evaluation: Evaluation


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent:
    """A checkpoint was written.

    Attributes:
        step: The number of steps of the run that are done.
        run: The directory of the run. Its file `key` is secret until the run is finished.
    """

    step: int
    run: Path


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Functions that are called while a trainer makes steps; None is not called.

    An exception of one ends training there, and is passed on. Callbacks may read the model, which is a function of
    released values; if one changes a parameter, the next step is refused.
    """

    on_step: Callable[[StepEvent], object] | None = None
    on_evaluate: Callable[[EvaluationEvent], object] | None = None
    on_checkpoint: Callable[[CheckpointEvent], object] | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise TypeError(f"{name} must be a function of one argument, got {given!r}")
