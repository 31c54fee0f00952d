"""Training runs from configurations: build, train, evaluate, compare, revise; and many of them, as jobs."""

from inosgm.runs.building import Training, build
from inosgm.runs.comparing import ComparisonStudy, compare
from inosgm.runs.comparison import Comparison, MethodRuns
from inosgm.runs.expense import Expense, expenses
from inosgm.runs.methods import METHODS, methods_of
from inosgm.runs.seeds import Seeds, Study, train_seeds
from inosgm.runs.source import Source, read
from inosgm.runs.summary import Summary
from inosgm.runs.task import TrainingTask
from inosgm.runs.training import Evaluated, Result, evaluate, revise, train

__all__ = [
    "METHODS",
    "Comparison",
    "ComparisonStudy",
    "Evaluated",
    "Expense",
    "MethodRuns",
    "Result",
    "Seeds",
    "Source",
    "Study",
    "Summary",
    "Training",
    "TrainingTask",
    "build",
    "compare",
    "evaluate",
    "expenses",
    "methods_of",
    "read",
    "revise",
    "train",
    "train_seeds",
]
