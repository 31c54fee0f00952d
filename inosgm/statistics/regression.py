"""Linear regression from noisy moments, and least trimmed squares by a few ordered rounds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from inosgm._internal import validate as _validate
from inosgm.mechanism.orders import Ascending
from inosgm.mechanism.tails import HardTail
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import Bounds, require_numbers
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.moments import Box, Moments
from inosgm.statistics.queries import single
from inosgm.statistics.statistic import Statistic


class LinearRegression(Statistic):
    """Least squares of a bounded target on bounded features, with an intercept.

    A batch has the features in its columns, and the target in the LAST one. The value is the intercept, then a
    coefficient for each feature, in their own units.

    **What it estimates.** Least squares over all records, each counting once. With `assume_alike=True`, a record
    weighs as much as its owner's sensitivity; if the model is right for every owner, that does not bias it either.

    **Bias.** That of the weights, as for `Mean`, where moments are shrunk; `bias_bound` is of first order. Values
    beyond the bounds count as the nearer bound: for the target, too. Where the features vary, in some direction, less
    than the noise could make up, the direction is taken to vary by `ridge` (in the details, for columns in halves of
    their ranges), which shrinks coefficients: ridge = sqrt(2 p) s for p features and noise of standard deviation s on
    their moments, about the largest eigenvalue of the noise alone. It follows from the plan, not from the data;
    `shrunk` counts such directions. Standard errors are of first order in the noise.

    **Guarantee.** That of `Statistic`, in one round.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts, for each feature.
        target_bounds: Those of the target.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=1e-4, steps=1)
    >>> table = [[0.0, 1.0], [1.0, 3.0], [2.0, 5.0], [4.0, 9.0]]
    >>> statistic = LinearRegression(plan, [0, 0, 0, 0], bounds=[(0, 5)], target_bounds=(0, 10), key=1)
    >>> statistic.run(table).value.round(2)
    array([1., 2.])
    """

    name = "regression"
    key_name = "inosgm.statistics.regression.LinearRegression"

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, target_bounds: Any, **options: Any
    ) -> None:
        self.box = Box((*Box.of(bounds).columns, Bounds.of(target_bounds)))
        super().__init__(plan, owners, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but finite numbers: the features, then the target."""
        require_numbers(batch, "values (the features, then the target)", columns=len(self.box.columns))

    def contributions(self, batch: Any) -> np.ndarray:
        """Return first and second moments, scaled together to be no longer than 1."""
        return self.box.rows(batch)

    def estimate(self) -> Estimate:
        """Return the intercept and the coefficients."""
        return self._fitted("least squares")

    def _fitted(self, what: str, error: float = 1.0) -> Estimate:
        """Return the coefficients of the last round, their standard errors times a factor."""
        fit = Fit.of(self._moments(self.observed[-1]))
        values, errors = fit.in_units()
        return self.estimated(
            values,
            error * errors,
            what,
            notes=self.first_order_notes(),
            ridge=fit.ridge,
            shrunk=fit.shrunk,
            residual_variance=fit.residual_variance * self.box.columns[-1].half ** 2,
        )

    def _moments(self, value: np.ndarray) -> Moments:
        return Moments.of(self.box, value, self.total, self.noise)


class LeastTrimmedSquares(LinearRegression):
    """Least squares of the records that fit best, in a few rounds that each trim the worst of the round before.

    Records are ordered by their absolute residual under the coefficients that the round before released, and the
    worst `fraction` of them is given up. The first round orders them by the
    distance of the target from the middle of its bounds.

    **What it estimates.** Least trimmed squares over all records, each counting once: less than a `fraction` of them
    may be arbitrary without moving it far. With `assume_alike=True`, a record weighs as much as its owner's
    sensitivity. Rounds find a local optimum, and noise keeps them from settling. The estimate is that of the last
    round: those before are about other records. `residual_variance` is that of the records left, which is too small
    by design.

    **Bias.** That of `LinearRegression`. Good records are trimmed as well, which does not bias coefficients if errors
    are symmetric. A round keeps a part of the error that coefficients had before (with normal errors and no outliers,
    56 % at a fraction of 0.2, 86 % at 0.5): little trimming needs few rounds. The first round shrinks coefficients, so
    what is left of that after the last is a bias. Standard errors include what noise of earlier rounds leaves, taking
    errors for normal.

    **Guarantee.** That of `Statistic`, in `rounds` rounds. All have the same noise: for the same budgets it is about
    sqrt(rounds) times that of `LinearRegression`.

    Args:
        plan: The public numbers; a step for every round.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts, for each feature.
        target_bounds: Those of the target.
        fraction: In [0, 0.5]: the fraction of the records that is trimmed.
        rounds: The number of releases.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[5], noise_scale=1e-4, steps=4)
    >>> table = [[0.0, 1.0], [1.0, 3.0], [2.0, 5.0], [4.0, 9.0], [3.0, 0.0]]
    >>> statistic = LeastTrimmedSquares(plan, [0] * 5, bounds=[(0, 5)], target_bounds=(0, 10), fraction=0.2, key=1)
    >>> statistic.run(table).value.round(2)
    array([1., 2.])
    """

    name = "trimmed-regression"
    key_name = "inosgm.statistics.regression.LeastTrimmedSquares"

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        bounds: Any,
        target_bounds: Any,
        fraction: float = 0.2,
        rounds: int = 4,
        **options: Any,
    ) -> None:
        self.fraction = _validate.number("fraction", fraction, least=0, most=0.5)
        self._scaled = np.zeros(len(Box.of(bounds).columns) + 1)
        super().__init__(
            plan,
            owners,
            bounds=bounds,
            target_bounds=target_bounds,
            tail=HardTail(self.tail_length(plan, self.fraction)),
            order=Ascending(),
            **options,
        )

    @classmethod
    def rounds_of(cls, *, rounds: int = 4, **parameters: Any) -> int:
        """Return the number of rounds."""
        return _validate.count("rounds", rounds, least=1)

    def scores(self, batch: Any) -> np.ndarray:
        """Return absolute residuals under the coefficients released last.

        They are added up column by column: a matrix product has other last bits in chunks of another size.
        """
        z = self.box.shares(batch)
        residuals = z[:, -1] - self._scaled[0]
        for column, coefficient in zip(z.T, self._scaled[1:], strict=False):
            residuals -= coefficient * column
        return np.asarray(np.abs(residuals))

    def learned(self, value: np.ndarray) -> None:
        """Fit what was released."""
        self._scaled = Fit.of(self._moments(value)).scaled

    def estimate(self) -> Estimate:
        """Return the intercept and the coefficients of the last round."""
        kept = _kept(self.fraction) ** (2 * np.arange(self.plan.steps))
        return self._fitted(
            "least trimmed squares",
            float(np.sqrt(kept.sum())),
        )


def _kept(fraction: float) -> float:
    """Return the fraction of an error of the coefficients that is left after a round that trims normal residuals."""
    if not fraction:
        return 0.0
    cut = special.ndtri(1 - fraction / 2)
    return float(2 * cut * np.exp(-(cut**2) / 2) / np.sqrt(2 * np.pi) / (1 - fraction))


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Least squares of the last column of a box on the others, in halves of ranges from the middles.

    Attributes:
        moments: Of all columns.
        coefficients: Of the features.
        of_covariance: The derivatives of each coefficient with respect to the covariance matrix.
        ridge: The least variance that the features are assumed to have in every direction.
        shrunk: The number of directions in which their estimated variance is smaller.
    """

    moments: Moments
    coefficients: np.ndarray
    of_covariance: np.ndarray
    ridge: float
    shrunk: int

    @classmethod
    def of(cls, moments: Moments) -> "Fit":
        """Solve the normal equations.

        The inverse of the features' covariance is U f(variances) U', f(v) = 1 / max(v, ridge); a change dC of the
        covariance changes it by U (D * U' dC U) U', D being the divided differences of f.
        """
        features = moments.covariance[:-1, :-1]
        ridge = float(np.sqrt(2 * len(features)) * moments.noise)
        variances, vectors = np.linalg.eigh(features)
        inverses = 1 / np.maximum(variances, ridge)
        inverse = (vectors * inverses) @ vectors.T
        along = vectors.T @ moments.covariance[:-1, -1]
        gaps = variances[:, None] - variances
        same = np.where(variances > ridge, -(inverses**2), 0.0) * np.eye(len(variances))
        divided = same + (inverses[:, None] - inverses) / np.where(gaps == 0, 1.0, gaps)
        derivatives = np.zeros((len(features), *moments.covariance.shape))
        derivatives[:, :-1, :-1] = np.einsum(
            "ak,jk,kl,l,bl->jab", vectors, vectors, divided, along, vectors, optimize=True
        )
        derivatives[:, :-1, -1] = inverse
        return cls(
            moments=moments,
            coefficients=vectors @ (inverses * along),
            of_covariance=derivatives,
            ridge=ridge,
            shrunk=int((variances < ridge).sum()),
        )

    @property
    def scaled(self) -> np.ndarray:
        """The intercept and the coefficients, in halves of ranges."""
        mean = self.moments.mean
        return np.concatenate([[mean[-1] - self.coefficients @ mean[:-1]], self.coefficients])

    @property
    def residual_variance(self) -> float:
        """The variance that is left, in halves of the target's range; 0 if the noise makes it negative."""
        along = np.append(-self.coefficients, 1.0)
        return max(float(along @ self.moments.covariance @ along), 0.0)

    def in_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the intercept and the coefficients in the units of the columns, and their standard errors."""
        box, mean = self.moments.box, self.moments.mean
        *halves, half = box.halves
        *middles, middle = box.middles
        offsets = mean[:-1] + np.array(middles) / halves
        intercept = middle + half * (mean[-1] - self.coefficients @ offsets)
        error = self.moments.errors(
            -np.tensordot(offsets, self.of_covariance, axes=1), np.append(-self.coefficients, 1.0)
        )
        return (
            np.concatenate([[intercept], half / np.array(halves) * self.coefficients]),
            np.concatenate([[half * error], half / np.array(halves) * self.moments.errors(self.of_covariance)]),
        )


REGRESSION, TRIMMED_REGRESSION = single(LinearRegression), single(LeastTrimmedSquares)


def private_regression(values: Any, owners: Owners, *, bounds: Any, target_bounds: Any, **options: Any) -> Estimate:
    """Return the intercept and the coefficients of least squares; see `LinearRegression`.

    The target is the last column.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 5000, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> x = np.random.default_rng(0).uniform(0, 5, 10000)
    >>> table = np.stack([x, 2 * x + 1], axis=1)
    >>> estimate = private_regression(table, owners, bounds=[(0, 5)], target_bounds=(0, 11), key=1)
    >>> estimate.value.round(1), estimate.standard_error.round(3)
    (array([1., 2.]), array([0.015, 0.006]))
    """
    return answer_query(REGRESSION, values, owners, bounds=bounds, target_bounds=target_bounds, **options)


def private_trimmed_regression(
    values: Any,
    owners: Owners,
    *,
    bounds: Any,
    target_bounds: Any,
    fraction: float = 0.2,
    rounds: int = 4,
    **options: Any,
) -> Estimate:
    """Return the intercept and the coefficients of least trimmed squares; see `LeastTrimmedSquares`.

    The target is the last column. Nearly a `fraction` of records may be arbitrary.

    **Guarantee.** All rounds together cost every owner at most `share` of its epsilon; `answer_query` describes this
    and other options.

    >>> owners = Owners(of_record=["a", "b"] * 5000, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> x = np.random.default_rng(0).uniform(0, 5, 10000)
    >>> table = np.stack([x, np.where(np.arange(10000) % 10 == 0, 0, 2 * x + 1)], axis=1)
    >>> private_trimmed_regression(table, owners, bounds=[(0, 5)], target_bounds=(0, 11), key=1).value.round(1)
    array([1., 2.])
    """
    return answer_query(
        TRIMMED_REGRESSION,
        values,
        owners,
        bounds=bounds,
        target_bounds=target_bounds,
        fraction=fraction,
        rounds=rounds,
        **options,
    )
