"""Training runs from configurations: build, train, evaluate, compare, revise."""

from inosgm.runs.building import Training, build
from inosgm.runs.comparing import Comparison, compare
from inosgm.runs.training import Evaluated, Result, evaluate, revise, train

__all__ = ["Comparison", "Evaluated", "Result", "Training", "build", "compare", "evaluate", "revise", "train"]
