"""INOSGM that is SGD: gradients as contributions, losses as scores, any optimizer after the noise."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.training.callbacks import CheckpointEvent as CheckpointEvent
    from inosgm.training.callbacks import EvaluationEvent as EvaluationEvent
    from inosgm.training.callbacks import StepEvent as StepEvent
    from inosgm.training.curve import LearningCurve as LearningCurve
    from inosgm.training.diagnostics import Diagnostics as Diagnostics
    from inosgm.training.gradients import BookKeeping as BookKeeping
    from inosgm.training.gradients import Engine as Engine
    from inosgm.training.gradients import Functional as Functional
    from inosgm.training.gradients import OneByOne as OneByOne
    from inosgm.training.gradients import fixed as fixed
    from inosgm.training.metrics import Evaluation as Evaluation
    from inosgm.training.trainer import Trainer as Trainer
    from inosgm.training.workers import Workers as Workers

_NAMES_OF = {
    "callbacks": ["CheckpointEvent", "EvaluationEvent", "StepEvent"],
    "curve": ["LearningCurve"],
    "diagnostics": ["Diagnostics"],
    "gradients": ["BookKeeping", "Engine", "Functional", "OneByOne", "fixed"],
    "metrics": ["Evaluation"],
    "trainer": ["Trainer"],
    "workers": ["Workers"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
