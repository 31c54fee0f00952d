"""Training runs from configurations: build, train, evaluate, compare, revise; and many of them, as jobs."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.experiments.building import Training as Training
    from inosgm.experiments.building import build as build
    from inosgm.experiments.comparison_results import Comparison as Comparison
    from inosgm.experiments.comparison_results import MethodRuns as MethodRuns
    from inosgm.experiments.comparison_study import ComparisonStudy as ComparisonStudy
    from inosgm.experiments.comparison_study import compare as compare
    from inosgm.experiments.expense import Expense as Expense
    from inosgm.experiments.expense import expenses as expenses
    from inosgm.experiments.input_files import Source as Source
    from inosgm.experiments.input_files import read as read
    from inosgm.experiments.methods import methods_of as methods_of
    from inosgm.experiments.seeds import Seeds as Seeds
    from inosgm.experiments.seeds import SeedStudy as SeedStudy
    from inosgm.experiments.seeds import train_seeds as train_seeds
    from inosgm.experiments.summary import Summary as Summary
    from inosgm.experiments.sweeps import SweepStudy as SweepStudy
    from inosgm.experiments.sweeps import sweep as sweep
    from inosgm.experiments.task import TrainingTask as TrainingTask
    from inosgm.experiments.training import Evaluated as Evaluated
    from inosgm.experiments.training import TrainedRun as TrainedRun
    from inosgm.experiments.training import evaluate as evaluate
    from inosgm.experiments.training import revise as revise
    from inosgm.experiments.training import train as train
    from inosgm.methods.registry import METHODS as METHODS

_NAMES_OF = {
    "building": ["Training", "build"],
    "comparison_study": ["ComparisonStudy", "compare"],
    "comparison_results": ["Comparison", "MethodRuns"],
    "expense": ["Expense", "expenses"],
    "methods": ["METHODS", "methods_of"],
    "seeds": ["SeedStudy", "Seeds", "train_seeds"],
    "input_files": ["Source", "read"],
    "summary": ["Summary"],
    "sweeps": ["SweepStudy", "sweep"],
    "task": ["TrainingTask"],
    "training": ["Evaluated", "TrainedRun", "evaluate", "revise", "train"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
