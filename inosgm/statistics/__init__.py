"""Private statistics of tables whose owners grant different budgets, in a line each.

Every function takes the records, their `Owners` and what it needs to know in public, such as bounds. It costs every
owner at most `share` of the epsilon that it grants, is charged to a `ledger` if there is one, and returns an
`Estimate`: the value, its standard error, what was estimated, and what it cost whom.
"""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.statistics.answering import ask as ask
    from inosgm.statistics.conditions import Condition as Condition
    from inosgm.statistics.covariance import PCA as PCA
    from inosgm.statistics.covariance import Covariance as Covariance
    from inosgm.statistics.covariance import private_covariance as private_covariance
    from inosgm.statistics.covariance import private_pca as private_pca
    from inosgm.statistics.data_bounds import private_bounds as private_bounds
    from inosgm.statistics.durable import run_statistic as run_statistic
    from inosgm.statistics.estimate import Estimate as Estimate
    from inosgm.statistics.federated import FederatedAverage as FederatedAverage
    from inosgm.statistics.histograms import GroupCounts as GroupCounts
    from inosgm.statistics.histograms import Histogram as Histogram
    from inosgm.statistics.histograms import private_group_counts as private_group_counts
    from inosgm.statistics.histograms import private_histogram as private_histogram
    from inosgm.statistics.means import Mean as Mean
    from inosgm.statistics.means import private_mean as private_mean
    from inosgm.statistics.quantiles import Quantile as Quantile
    from inosgm.statistics.quantiles import private_quantile as private_quantile
    from inosgm.statistics.queries import Procedure as Procedure
    from inosgm.statistics.questions import Question as Question
    from inosgm.statistics.questions import Questions as Questions
    from inosgm.statistics.registry import PROCEDURES as PROCEDURES
    from inosgm.statistics.regression import LeastTrimmedSquares as LeastTrimmedSquares
    from inosgm.statistics.regression import LinearRegression as LinearRegression
    from inosgm.statistics.regression import private_regression as private_regression
    from inosgm.statistics.regression import private_trimmed_regression as private_trimmed_regression
    from inosgm.statistics.robust import RobustMean as RobustMean
    from inosgm.statistics.robust import TrimmedMean as TrimmedMean
    from inosgm.statistics.robust import private_robust_mean as private_robust_mean
    from inosgm.statistics.robust import private_trimmed_mean as private_trimmed_mean
    from inosgm.statistics.shares import Share as Share
    from inosgm.statistics.shares import private_share as private_share
    from inosgm.statistics.statistic import Statistic as Statistic
    from inosgm.statistics.sums import Count as Count
    from inosgm.statistics.sums import Sum as Sum
    from inosgm.statistics.sums import private_count as private_count
    from inosgm.statistics.sums import private_sum as private_sum
    from inosgm.statistics.tables import Table as Table
    from inosgm.statistics.tails import TopHeavySum as TopHeavySum
    from inosgm.statistics.tails import UpperTailMean as UpperTailMean
    from inosgm.statistics.tails import private_top_heavy_sum as private_top_heavy_sum
    from inosgm.statistics.tails import private_upper_tail_mean as private_upper_tail_mean
    from inosgm.statistics.unit_rows import combine_rows as combine_rows
    from inosgm.statistics.variance import Variance as Variance
    from inosgm.statistics.variance import private_variance as private_variance

_NAMES_OF = {
    "answering": ["ask"],
    "conditions": ["Condition"],
    "covariance": ["Covariance", "PCA", "private_covariance", "private_pca"],
    "data_bounds": ["private_bounds"],
    "durable": ["run_statistic"],
    "estimate": ["Estimate"],
    "federated": ["FederatedAverage"],
    "histograms": ["GroupCounts", "Histogram", "private_group_counts", "private_histogram"],
    "means": ["Mean", "private_mean"],
    "quantiles": ["Quantile", "private_quantile"],
    "queries": ["Procedure"],
    "questions": ["Question", "Questions"],
    "registry": ["PROCEDURES"],
    "regression": ["LeastTrimmedSquares", "LinearRegression", "private_regression", "private_trimmed_regression"],
    "robust": ["RobustMean", "TrimmedMean", "private_robust_mean", "private_trimmed_mean"],
    "shares": ["Share", "private_share"],
    "statistic": ["Statistic"],
    "sums": ["Count", "Sum", "private_count", "private_sum"],
    "tables": ["Table"],
    "tails": ["TopHeavySum", "UpperTailMean", "private_top_heavy_sum", "private_upper_tail_mean"],
    "unit_rows": ["combine_rows"],
    "variance": ["Variance", "private_variance"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
