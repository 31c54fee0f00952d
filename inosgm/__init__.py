"""Private sums in which every data owner keeps its own budget and the records that matter most keep their weight.

Names are resolved when they are first used, so that `import inosgm` costs nothing that is not needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from inosgm.accounting import PLD as PLD
    from inosgm.accounting import RDP as RDP
    from inosgm.accounting import Segment as Segment
    from inosgm.audit import Audit as Audit
    from inosgm.audit import MechanismAudit as MechanismAudit
    from inosgm.audit import audit_mechanism as audit_mechanism
    from inosgm.audit import lira as lira
    from inosgm.baselines import plan_in_turn as plan_in_turn
    from inosgm.baselines import plan_left_out as plan_left_out
    from inosgm.baselines import plan_lowered as plan_lowered
    from inosgm.baselines import plan_undersampled as plan_undersampled
    from inosgm.certifier import Certificate as Certificate
    from inosgm.certifier import certify as certify
    from inosgm.clipping import AutomaticClipping as AutomaticClipping
    from inosgm.clipping import Clipping as Clipping
    from inosgm.clipping import ClipToShare as ClipToShare
    from inosgm.clipping import PerSampleAdaptive as PerSampleAdaptive
    from inosgm.clipping import ScaleClipped as ScaleClipped
    from inosgm.config import TrainingConfig as TrainingConfig
    from inosgm.contributions import Cells as Cells
    from inosgm.contributions import Concatenated as Concatenated
    from inosgm.contributions import Contributions as Contributions
    from inosgm.contributions import Dense as Dense
    from inosgm.cost import Cost as Cost
    from inosgm.course import Course as Course
    from inosgm.filters import plan_individual as plan_individual
    from inosgm.groups import plan_asc as plan_asc
    from inosgm.groups import plan_chosen_group as plan_chosen_group
    from inosgm.jobs import Interrupted as Interrupted
    from inosgm.jobs import JobSpec as JobSpec
    from inosgm.jobs import ProcessExecutor as ProcessExecutor
    from inosgm.jobs import SerialExecutor as SerialExecutor
    from inosgm.jobs import Store as Store
    from inosgm.jobs import StoreDamaged as StoreDamaged
    from inosgm.ledger import BudgetExceeded as BudgetExceeded
    from inosgm.ledger import Charge as Charge
    from inosgm.ledger import JobMismatch as JobMismatch
    from inosgm.ledger import Ledger as Ledger
    from inosgm.ledger import LedgerDamaged as LedgerDamaged
    from inosgm.mechanism import INOSGM as INOSGM
    from inosgm.mechanism import Release as Release
    from inosgm.menu import Menu as Menu
    from inosgm.orders import Ascending as Ascending
    from inosgm.orders import Descending as Descending
    from inosgm.orders import Order as Order
    from inosgm.orders import OwnerFirst as OwnerFirst
    from inosgm.orders import RandomOrder as RandomOrder
    from inosgm.owners import Owners as Owners
    from inosgm.planning import AlreadySpent as AlreadySpent
    from inosgm.planning import Plan as Plan
    from inosgm.planning import plan_blend as plan_blend
    from inosgm.planning import plan_sample as plan_sample
    from inosgm.planning import plan_scale as plan_scale
    from inosgm.planning import plan_uniform as plan_uniform
    from inosgm.reports import report as report
    from inosgm.rounds import plan_thresholds as plan_thresholds
    from inosgm.runs import Comparison as Comparison
    from inosgm.runs import compare as compare
    from inosgm.runs import evaluate as evaluate
    from inosgm.runs import revise as revise
    from inosgm.runs import train as train
    from inosgm.runs import train_seeds as train_seeds
    from inosgm.sgd import Trainer as Trainer
    from inosgm.statistics import Estimate as Estimate
    from inosgm.statistics import Statistic as Statistic
    from inosgm.statistics import Table as Table
    from inosgm.statistics import private_count as private_count
    from inosgm.statistics import private_covariance as private_covariance
    from inosgm.statistics import private_group_counts as private_group_counts
    from inosgm.statistics import private_histogram as private_histogram
    from inosgm.statistics import private_mean as private_mean
    from inosgm.statistics import private_pca as private_pca
    from inosgm.statistics import private_quantile as private_quantile
    from inosgm.statistics import private_regression as private_regression
    from inosgm.statistics import private_robust_mean as private_robust_mean
    from inosgm.statistics import private_sum as private_sum
    from inosgm.statistics import private_top_heavy_sum as private_top_heavy_sum
    from inosgm.statistics import private_trimmed_mean as private_trimmed_mean
    from inosgm.statistics import private_trimmed_regression as private_trimmed_regression
    from inosgm.statistics import private_upper_tail_mean as private_upper_tail_mean
    from inosgm.statistics import private_variance as private_variance
    from inosgm.statistics import run_statistic as run_statistic
    from inosgm.steering import AdaptiveShares as AdaptiveShares
    from inosgm.steering import ChosenGroup as ChosenGroup
    from inosgm.steering import Steering as Steering
    from inosgm.streaming import OrderedSum as OrderedSum
    from inosgm.streaming import Streaming as Streaming
    from inosgm.tails import BetaTail as BetaTail
    from inosgm.tails import HardTail as HardTail
    from inosgm.tails import LinearTail as LinearTail
    from inosgm.tails import NoTail as NoTail
    from inosgm.tails import StepTail as StepTail
    from inosgm.tails import TableTail as TableTail
    from inosgm.tails import Tail as Tail
    from inosgm.weights import importance_weights as importance_weights
    from inosgm.weights import ordered_sum as ordered_sum

_ROOMS = {
    "accounting": ["PLD", "RDP", "Segment"],
    "audit": ["Audit", "MechanismAudit", "audit_mechanism", "lira"],
    "baselines": ["plan_in_turn", "plan_left_out", "plan_lowered", "plan_undersampled"],
    "certifier": ["Certificate", "certify"],
    "clipping": ["AutomaticClipping", "ClipToShare", "Clipping", "PerSampleAdaptive", "ScaleClipped"],
    "config": ["TrainingConfig"],
    "contributions": ["Cells", "Concatenated", "Contributions", "Dense"],
    "cost": ["Cost"],
    "course": ["Course"],
    "filters": ["plan_individual"],
    "groups": ["plan_asc", "plan_chosen_group"],
    "jobs": ["Interrupted", "JobSpec", "ProcessExecutor", "SerialExecutor", "Store", "StoreDamaged"],
    "ledger": ["BudgetExceeded", "Charge", "JobMismatch", "Ledger", "LedgerDamaged"],
    "mechanism": ["INOSGM", "Release"],
    "menu": ["Menu"],
    "orders": ["Ascending", "Descending", "Order", "OwnerFirst", "RandomOrder"],
    "owners": ["Owners"],
    "planning": ["AlreadySpent", "Plan", "plan_blend", "plan_sample", "plan_scale", "plan_uniform"],
    "reports": ["report"],
    "rounds": ["plan_thresholds"],
    "runs": ["Comparison", "compare", "evaluate", "revise", "train", "train_seeds"],
    "sgd": ["Trainer"],
    "statistics": [
        "Estimate",
        "Statistic",
        "Table",
        "private_count",
        "private_covariance",
        "private_group_counts",
        "private_histogram",
        "private_mean",
        "private_pca",
        "private_quantile",
        "private_regression",
        "private_robust_mean",
        "private_sum",
        "private_top_heavy_sum",
        "private_trimmed_mean",
        "private_trimmed_regression",
        "private_upper_tail_mean",
        "private_variance",
        "run_statistic",
    ],
    "steering": ["AdaptiveShares", "ChosenGroup", "Steering"],
    "streaming": ["OrderedSum", "Streaming"],
    "tails": ["BetaTail", "HardTail", "LinearTail", "NoTail", "StepTail", "TableTail", "Tail"],
    "weights": ["importance_weights", "ordered_sum"],
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

_WITH_TORCH = ("audit", "reports", "runs", "sgd")  # which `import *` does without

__all__ = ["__version__", *(name for name in _ROOM_OF if _ROOM_OF[name] not in _WITH_TORCH)]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"inosgm.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'inosgm' has no attribute {name!r}")
    return getattr(import_module(f"inosgm.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return ["__version__", *_ROOM_OF, *_ROOMS]
