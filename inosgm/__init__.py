"""Differentially private training and statistics with a separate epsilon for every data owner.

Names are imported when they are first used, so `import inosgm` is fast and loads neither torch nor Ray.
"""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from inosgm.accounting import PLD as PLD
    from inosgm.accounting import RDP as RDP
    from inosgm.accounting import Segment as Segment
    from inosgm.audit import Audit as Audit
    from inosgm.audit import MechanismAudit as MechanismAudit
    from inosgm.audit import audit_mechanism as audit_mechanism
    from inosgm.audit import lira as lira
    from inosgm.audit.certifier import Certificate as Certificate
    from inosgm.audit.certifier import certify as certify
    from inosgm.experiments import Comparison as Comparison
    from inosgm.experiments import compare as compare
    from inosgm.experiments import evaluate as evaluate
    from inosgm.experiments import revise as revise
    from inosgm.experiments import train as train
    from inosgm.experiments import train_seeds as train_seeds
    from inosgm.experiments.config import TrainingConfig as TrainingConfig
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
    from inosgm.ledger.cost import Cost as Cost
    from inosgm.mechanism import INOSGM as INOSGM
    from inosgm.mechanism import Release as Release
    from inosgm.mechanism.clipping import AutomaticClipping as AutomaticClipping
    from inosgm.mechanism.clipping import Clipping as Clipping
    from inosgm.mechanism.clipping import ClipToShare as ClipToShare
    from inosgm.mechanism.clipping import PerSampleAdaptive as PerSampleAdaptive
    from inosgm.mechanism.clipping import ScaleClipped as ScaleClipped
    from inosgm.mechanism.contribution_bounds import BoundedContributions as BoundedContributions
    from inosgm.mechanism.contribution_bounds import bound_contributions as bound_contributions
    from inosgm.mechanism.contributions import Cells as Cells
    from inosgm.mechanism.contributions import Concatenated as Concatenated
    from inosgm.mechanism.contributions import Contributions as Contributions
    from inosgm.mechanism.contributions import Dense as Dense
    from inosgm.mechanism.noise import DiscreteNoise as DiscreteNoise
    from inosgm.mechanism.noise import GaussianNoise as GaussianNoise
    from inosgm.mechanism.orders import Ascending as Ascending
    from inosgm.mechanism.orders import Descending as Descending
    from inosgm.mechanism.orders import Order as Order
    from inosgm.mechanism.orders import OwnerFirst as OwnerFirst
    from inosgm.mechanism.orders import RandomOrder as RandomOrder
    from inosgm.mechanism.streaming import OrderedSum as OrderedSum
    from inosgm.mechanism.streaming import Streaming as Streaming
    from inosgm.mechanism.tails import BetaTail as BetaTail
    from inosgm.mechanism.tails import HardTail as HardTail
    from inosgm.mechanism.tails import LinearTail as LinearTail
    from inosgm.mechanism.tails import NoTail as NoTail
    from inosgm.mechanism.tails import StepTail as StepTail
    from inosgm.mechanism.tails import TableTail as TableTail
    from inosgm.mechanism.tails import Tail as Tail
    from inosgm.mechanism.units import UnitMean as UnitMean
    from inosgm.mechanism.units import UnitRule as UnitRule
    from inosgm.mechanism.units import UnitSum as UnitSum
    from inosgm.mechanism.weights import importance_weights as importance_weights
    from inosgm.mechanism.weights import ordered_sum as ordered_sum
    from inosgm.methods.asc import AdaptiveShares as AdaptiveShares
    from inosgm.methods.asc import plan_asc as plan_asc
    from inosgm.methods.azb import ChosenGroup as ChosenGroup
    from inosgm.methods.azb import plan_chosen_group as plan_chosen_group
    from inosgm.methods.baselines import plan_in_turn as plan_in_turn
    from inosgm.methods.baselines import plan_left_out as plan_left_out
    from inosgm.methods.baselines import plan_lowered as plan_lowered
    from inosgm.methods.baselines import plan_undersampled as plan_undersampled
    from inosgm.methods.individual import plan_individual as plan_individual
    from inosgm.methods.pdp_sgd import plan_thresholds as plan_thresholds
    from inosgm.owners import Owners as Owners
    from inosgm.planning import AlreadySpent as AlreadySpent
    from inosgm.planning import Plan as Plan
    from inosgm.planning import plan_blend as plan_blend
    from inosgm.planning import plan_sample as plan_sample
    from inosgm.planning import plan_scale as plan_scale
    from inosgm.planning import plan_uniform as plan_uniform
    from inosgm.planning.choices import Choices as Choices
    from inosgm.planning.choices import Menu as Menu
    from inosgm.planning.group_privacy import GroupPrivacy as GroupPrivacy
    from inosgm.planning.group_privacy import SamplingAdvice as SamplingAdvice
    from inosgm.planning.group_privacy import compare_sampling as compare_sampling
    from inosgm.planning.sequence import Course as Course
    from inosgm.planning.sequence import PlanSequence as PlanSequence
    from inosgm.planning.steering import Steering as Steering
    from inosgm.reports import report as report
    from inosgm.statistics import Estimate as Estimate
    from inosgm.statistics import Statistic as Statistic
    from inosgm.statistics import Table as Table
    from inosgm.statistics import private_bounds as private_bounds
    from inosgm.statistics import private_count as private_count
    from inosgm.statistics import private_covariance as private_covariance
    from inosgm.statistics import private_group_counts as private_group_counts
    from inosgm.statistics import private_histogram as private_histogram
    from inosgm.statistics import private_mean as private_mean
    from inosgm.statistics import private_pca as private_pca
    from inosgm.statistics import private_quantile as private_quantile
    from inosgm.statistics import private_regression as private_regression
    from inosgm.statistics import private_robust_mean as private_robust_mean
    from inosgm.statistics import private_share as private_share
    from inosgm.statistics import private_sum as private_sum
    from inosgm.statistics import private_top_heavy_sum as private_top_heavy_sum
    from inosgm.statistics import private_trimmed_mean as private_trimmed_mean
    from inosgm.statistics import private_trimmed_regression as private_trimmed_regression
    from inosgm.statistics import private_upper_tail_mean as private_upper_tail_mean
    from inosgm.statistics import private_variance as private_variance
    from inosgm.statistics import run_statistic as run_statistic
    from inosgm.statistics.class_shares import release_class_shares as release_class_shares
    from inosgm.training import Trainer as Trainer
    from inosgm.training.logit_adjustment import LogitAdjustment as LogitAdjustment

_NAMES_OF = {
    "accounting": ["PLD", "RDP", "Segment"],
    "audit": ["Audit", "MechanismAudit", "audit_mechanism", "lira"],
    "methods.baselines": ["plan_in_turn", "plan_left_out", "plan_lowered", "plan_undersampled"],
    "audit.certifier": ["Certificate", "certify"],
    "mechanism.clipping": ["AutomaticClipping", "ClipToShare", "Clipping", "PerSampleAdaptive", "ScaleClipped"],
    "experiments.config": ["TrainingConfig"],
    "mechanism.contributions": ["Cells", "Concatenated", "Contributions", "Dense"],
    "ledger.cost": ["Cost"],
    "planning.sequence": ["Course", "PlanSequence"],
    "methods.individual": ["plan_individual"],
    "methods.asc": ["AdaptiveShares", "plan_asc"],
    "methods.azb": ["ChosenGroup", "plan_chosen_group"],
    "jobs": ["Interrupted", "JobSpec", "ProcessExecutor", "SerialExecutor", "Store", "StoreDamaged"],
    "ledger": ["BudgetExceeded", "Charge", "JobMismatch", "Ledger", "LedgerDamaged"],
    "mechanism": ["INOSGM", "Release"],
    "planning.choices": ["Choices", "Menu"],
    "mechanism.noise": ["DiscreteNoise", "GaussianNoise"],
    "mechanism.orders": ["Ascending", "Descending", "Order", "OwnerFirst", "RandomOrder"],
    "mechanism.contribution_bounds": ["BoundedContributions", "bound_contributions"],
    "planning.group_privacy": ["GroupPrivacy", "SamplingAdvice", "compare_sampling"],
    "mechanism.units": ["UnitMean", "UnitRule", "UnitSum"],
    "owners": ["Owners"],
    "planning": ["AlreadySpent", "Plan", "plan_blend", "plan_sample", "plan_scale", "plan_uniform"],
    "reports": ["report"],
    "methods.pdp_sgd": ["plan_thresholds"],
    "experiments": ["Comparison", "compare", "evaluate", "revise", "train", "train_seeds"],
    "statistics.class_shares": ["release_class_shares"],
    "training": ["Trainer"],
    "training.logit_adjustment": ["LogitAdjustment"],
    "statistics": [
        "Estimate",
        "Statistic",
        "Table",
        "private_bounds",
        "private_count",
        "private_covariance",
        "private_group_counts",
        "private_histogram",
        "private_mean",
        "private_pca",
        "private_quantile",
        "private_regression",
        "private_robust_mean",
        "private_share",
        "private_sum",
        "private_top_heavy_sum",
        "private_trimmed_mean",
        "private_trimmed_regression",
        "private_upper_tail_mean",
        "private_variance",
        "run_statistic",
    ],
    "planning.steering": ["Steering"],
    "mechanism.streaming": ["OrderedSum", "Streaming"],
    "mechanism.tails": ["BetaTail", "HardTail", "LinearTail", "NoTail", "StepTail", "TableTail", "Tail"],
    "mechanism.weights": ["importance_weights", "ordered_sum"],
}

_NEED_TORCH = (
    "audit",
    "reports",
    "experiments",
    "training",
    "training.logit_adjustment",
)  # `import *` leaves these out
__all__ = ["__version__", *(name for room, names in _NAMES_OF.items() if room not in _NEED_TORCH for name in names)]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
