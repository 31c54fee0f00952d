"""Private statistics of tables whose owners grant different budgets, in a line each.

Every function takes the records, their `Owners` and what it needs to know in public, such as bounds. It costs every
owner at most `share` of the epsilon that it grants, is charged to a `ledger` if there is one, and returns an
`Estimate`: the value, its standard error, what was estimated, and what it cost whom.
"""

from typing import Any

from inosgm.owners import Owners
from inosgm.statistics.asking import Procedure, ask, single
from inosgm.statistics.covariance import COMPONENTS, COVARIANCE, PCA, Covariance, private_covariance, private_pca
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.federated import FederatedAverage
from inosgm.statistics.means import Mean
from inosgm.statistics.regression import (
    REGRESSION,
    TRIMMED_REGRESSION,
    LeastTrimmedSquares,
    LinearRegression,
    private_regression,
    private_trimmed_regression,
)
from inosgm.statistics.statistic import Statistic

PROCEDURES: dict[str, Procedure] = {
    "mean": single(Mean),
    "covariance": COVARIANCE,
    "pca": COMPONENTS,
    "regression": REGRESSION,
    "trimmed-regression": TRIMMED_REGRESSION,
}
"""How every question is answered, by name."""

__all__ = [
    "PCA",
    "PROCEDURES",
    "Covariance",
    "Estimate",
    "FederatedAverage",
    "LeastTrimmedSquares",
    "LinearRegression",
    "Mean",
    "Statistic",
    "private_covariance",
    "private_mean",
    "private_pca",
    "private_regression",
    "private_trimmed_regression",
]


def private_mean(values: Any, owners: Owners, *, bounds: Any, stratified: bool = False, **options: Any) -> Estimate:
    """Return the mean of a bounded column; see `Mean`, and `inosgm.statistics.asking.ask` for options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> print(private_mean([20.0, 40.0] * 500, owners, bounds=(0, 100), key=1))
    36.2246 +- 0.072
    mean, in which records weigh as much as the budget of their owner buys
    owner  epsilon spent
    a             0.9998
    b              4.999
    """
    return ask(PROCEDURES["mean"], values, owners, bounds=bounds, stratified=stratified, **options)
