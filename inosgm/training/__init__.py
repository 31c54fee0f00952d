"""INOSGM that is SGD: gradients as contributions, losses as scores, any optimizer after the noise."""

from inosgm.training.curve import LearningCurve
from inosgm.training.diagnostics import Diagnostics
from inosgm.training.gradients import BookKeeping, Engine, Functional, OneByOne, fixed
from inosgm.training.metrics import Evaluation
from inosgm.training.trainer import Trainer

__all__ = [
    "BookKeeping",
    "Diagnostics",
    "Engine",
    "Evaluation",
    "Functional",
    "LearningCurve",
    "OneByOne",
    "Trainer",
    "fixed",
]
