"""Private statistics of tables whose owners grant different budgets, in a line each.

Every function takes the records, their `Owners` and what it needs to know in public, such as bounds. It costs every
owner at most `share` of the epsilon that it grants, is charged to a `ledger` if there is one, and returns an
`Estimate`: the value, its standard error, what was estimated, and what it cost whom.
"""

from inosgm.statistics.covariance import COMPONENTS, COVARIANCE, PCA, Covariance, private_covariance, private_pca
from inosgm.statistics.durable import run_statistic
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.federated import FederatedAverage
from inosgm.statistics.histograms import GroupCounts, Histogram, private_group_counts, private_histogram
from inosgm.statistics.means import Mean, private_mean
from inosgm.statistics.quantiles import Quantile, private_quantile
from inosgm.statistics.queries import Procedure, ask, single
from inosgm.statistics.regression import (
    REGRESSION,
    TRIMMED_REGRESSION,
    LeastTrimmedSquares,
    LinearRegression,
    private_regression,
    private_trimmed_regression,
)
from inosgm.statistics.robust import (
    ROBUST,
    TRIMMED,
    RobustMean,
    TrimmedMean,
    private_robust_mean,
    private_trimmed_mean,
)
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.sums import Count, Sum, private_count, private_sum
from inosgm.statistics.tables import Table
from inosgm.statistics.tails import TopHeavySum, UpperTailMean, private_top_heavy_sum, private_upper_tail_mean
from inosgm.statistics.variance import Variance, private_variance

PROCEDURES: dict[str, Procedure] = {
    **{
        statistic.name: single(statistic)
        for statistic in (
            Sum,
            Count,
            Mean,
            Variance,
            UpperTailMean,
            TopHeavySum,
            Quantile,
            Histogram,
            GroupCounts,
        )
    },
    TrimmedMean.name: TRIMMED,
    RobustMean.name: ROBUST,
    Covariance.name: COVARIANCE,
    PCA.name: COMPONENTS,
    LinearRegression.name: REGRESSION,
    LeastTrimmedSquares.name: TRIMMED_REGRESSION,
}
"""How every question is answered, by name."""

__all__ = [
    "PCA",
    "PROCEDURES",
    "Count",
    "Covariance",
    "Estimate",
    "FederatedAverage",
    "GroupCounts",
    "Histogram",
    "LeastTrimmedSquares",
    "LinearRegression",
    "Mean",
    "Procedure",
    "Quantile",
    "RobustMean",
    "Statistic",
    "Sum",
    "Table",
    "TopHeavySum",
    "TrimmedMean",
    "UpperTailMean",
    "Variance",
    "ask",
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
]
