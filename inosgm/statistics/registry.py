"""All queries by name."""

from inosgm.statistics.covariance import COMPONENTS, COVARIANCE, PCA, Covariance
from inosgm.statistics.data_bounds import DataBounds
from inosgm.statistics.histograms import GroupCounts, Histogram
from inosgm.statistics.means import Mean
from inosgm.statistics.quantiles import Quantile
from inosgm.statistics.queries import Query, single
from inosgm.statistics.regression import REGRESSION, TRIMMED_REGRESSION, LeastTrimmedSquares, LinearRegression
from inosgm.statistics.robust import ROBUST, TRIMMED, RobustMean, TrimmedMean
from inosgm.statistics.shares import Share
from inosgm.statistics.sums import Count, Sum
from inosgm.statistics.tails import TopHeavySum, UpperTailMean
from inosgm.statistics.variance import Variance

PROCEDURES: dict[str, Query] = {
    **{
        statistic.name: single(statistic)
        for statistic in (
            Sum,
            Count,
            Share,
            Mean,
            Variance,
            UpperTailMean,
            TopHeavySum,
            Quantile,
            Histogram,
            GroupCounts,
            DataBounds,
        )
    },
    TrimmedMean.name: TRIMMED,
    RobustMean.name: ROBUST,
    Covariance.name: COVARIANCE,
    PCA.name: COMPONENTS,
    LinearRegression.name: REGRESSION,
    LeastTrimmedSquares.name: TRIMMED_REGRESSION,
}
"""The queries that `run_statistic` and `inosgm stats` know, by name."""
