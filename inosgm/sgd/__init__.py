"""INOSGM that is SGD: gradients as contributions, losses as scores, any optimizer after the noise."""

from inosgm.sgd.curve import LearningCurve
from inosgm.sgd.diagnostics import Diagnostics
from inosgm.sgd.gradients import BookKeeping, Engine, Functional, OneByOne, fixed
from inosgm.sgd.metrics import Evaluation
from inosgm.sgd.trainer import Trainer

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
