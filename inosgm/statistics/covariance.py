"""The covariance matrix of bounded columns, and its principal components."""

from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import require_numbers
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.moments import Box, Moments
from inosgm.statistics.queries import single
from inosgm.statistics.statistic import Statistic


class Covariance(Statistic):
    """The covariance matrix of columns within public bounds.

    **What it estimates.** The covariance over all records, each counting once, divided by their number:
    np.cov(values.T, ddof=0). With `assume_alike=True`: that in which a record weighs as much as its owner's
    sensitivity C, around the mean with the same weights, np.cov(values.T, aweights=C, ddof=0). The mean is in the
    details.

    **Bias.** That of the weights, as for `Mean`, where moments are shrunk; `bias_bound` is of first order, with the
    squares of the largest biases of means added. Values beyond the bounds count as the nearer bound. If the noise
    makes the matrix something that no covariance can be, the nearest positive semidefinite one is taken (columns in
    halves of their ranges), which is too large on average; the details then say `projected`. Before that, the matrix
    is unbiased.

    **Guarantee.** That of `Statistic`, in one round: the means and the second moments of m columns have, together, the
    sensitivity of one number. The noise on an entry grows like m.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts, for each column.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=1e-4, steps=1)
    >>> table = [[1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [4.0, 2.0]]
    >>> Covariance(plan, [0, 0, 0, 0], bounds=[(0, 5), (0, 2)], key=1).run(table).value.round(2)
    array([[1.25, 0.75],
           [0.75, 0.5 ]])
    """

    name = "covariance"
    key_name = "inosgm.statistics.covariance.Covariance"

    def __init__(self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, **options: Any) -> None:
        self.box = Box.of(bounds)
        super().__init__(plan, owners, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but finite numbers, as many per record as there are bounds."""
        require_numbers(batch, columns=len(self.box.columns))

    def contributions(self, batch: Any) -> np.ndarray:
        """Return first and second moments, scaled together to be no longer than 1."""
        return self.box.rows(batch)

    def estimate(self) -> Estimate:
        """Return the covariance matrix."""
        moments, halves = self._moments(), self.box.halves
        value, projected = _semidefinite(moments.covariance)
        errors, share = _errors_of_entries(moments), min(self.missing / self.records, 1.0)
        return self.estimated(
            np.outer(halves, halves) * value,
            np.outer(halves, halves) * errors,
            "covariance matrix",
            bias_bound=np.outer(halves, halves) * (self.bias_ratio * errors + share**2),
            mean=self.box.middles + halves * moments.mean,
            mean_standard_error=halves * moments.noise,
            projected=projected,
        )

    def _moments(self) -> Moments:
        (value,) = self.observed
        return Moments.of(self.box, value, self.total, self.noise)


class PCA(Covariance):
    """The principal components of columns within public bounds, in their own units.

    **What it estimates.** The largest eigenvalues of the matrix that `Covariance` estimates, which are the variances
    that the components explain, and their eigenvectors: the rows of `components` in the details, in each of which the
    entry of largest magnitude is positive. Where columns have different units, scale them first.

    **Bias.** That of `Covariance`. In addition, noise makes the largest variances larger and turns components; a
    variance below 0 counts as 0. Standard errors are of first order: they hold while they are small beside the gaps
    between variances, and components whose variances are about equal have no direction of their own.

    **Guarantee.** That of `Covariance`, of which it is a function.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts, for each column.
        components: How many; all if not given.
        options: As for `Statistic`.

    Raises:
        ValueError: for more components than columns.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=1e-4, steps=1)
    >>> table = [[1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [4.0, 2.0]]
    >>> estimate = PCA(plan, [0, 0, 0, 0], bounds=[(0, 5), (0, 2)], components=1, key=1).run(table)
    >>> estimate.value.round(2), estimate.details["components"].round(2)
    (array([1.71]), array([[0.85, 0.53]]))
    """

    name = "pca"
    key_name = "inosgm.statistics.covariance.PCA"

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, components: int | None = None, **options: Any
    ) -> None:
        columns = len(Box.of(bounds).columns)
        self.count = columns if components is None else _validate.count("components", components, least=1)
        if self.count > columns:
            raise ValueError(f"components must be at most the number of columns, {columns}, got {components}")
        super().__init__(plan, owners, bounds=bounds, **options)

    def estimate(self) -> Estimate:
        """Return the variances, and the components in the details."""
        moments, halves = self._moments(), self.box.halves
        variances, vectors = np.linalg.eigh(np.outer(halves, halves) * moments.covariance)
        variances, vectors = variances[::-1], vectors[:, ::-1]
        largest = np.abs(vectors).argmax(axis=0)
        vectors = vectors * np.where(vectors[largest, np.arange(largest.size)] < 0, -1.0, 1.0)
        directions = halves[:, None] * vectors
        errors = moments.errors(np.einsum("ik,jk->kij", directions, directions))
        kept, total = slice(self.count), np.maximum(variances, 0.0).sum()
        return self.estimated(
            np.maximum(variances, 0.0)[kept],
            errors[kept],
            "variances along principal components",
            notes=self.first_order_notes(),
            components=vectors.T[kept],
            components_standard_error=np.stack(
                [_errors_of_component(moments, variances, vectors, k) for k in range(self.count)]
            ),
            explained=np.maximum(variances, 0.0)[kept] / (total or 1.0),
            mean=self.box.middles + halves * moments.mean,
        )


def _semidefinite(matrix: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the nearest positive semidefinite matrix, and whether it differs from the argument."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= 0:
        return matrix, False
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return root @ root.T, True


def _errors_of_entries(moments: Moments) -> np.ndarray:
    """Return the standard error of every entry of the covariance, in halves of ranges."""
    unit = np.eye(moments.mean.size)
    return np.stack([moments.errors(row[:, None] * unit[:, None, :]) for row in unit])


def _errors_of_component(moments: Moments, variances: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Return the standard errors of the k-th eigenvector.

    A change dC moves it by the sum over others l of u_l (u_l' dC u_k) / (variance of k - variance of l).
    """
    gaps = variances[k] - np.delete(variances, k)  # the noise is continuous: none is 0
    others, halves = np.delete(vectors, k, axis=1), moments.box.halves
    turned = (others / gaps) @ others.T
    return moments.errors((turned * halves)[:, :, None] * (halves * vectors[:, k]))


COVARIANCE, COMPONENTS = single(Covariance), single(PCA)


def private_covariance(values: Any, owners: Owners, *, bounds: Any, **options: Any) -> Estimate:
    """Return the covariance matrix of bounded columns; see `Covariance`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 5000, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> table = np.random.default_rng(0).uniform(0, 1, (10000, 2)) @ [[10, 2], [0, 1]]
    >>> private_covariance(table, owners, bounds=[(0, 10), (0, 3)], key=1).value.round(1)
    array([[8.3, 1.6],
           [1.6, 0.4]])
    """
    return answer_query(COVARIANCE, values, owners, bounds=bounds, **options)


def private_pca(values: Any, owners: Owners, *, bounds: Any, components: int | None = None, **options: Any) -> Estimate:
    """Return the variances along principal components, and these in the details; see `PCA`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 5000, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> table = np.random.default_rng(0).uniform(0, 1, (10000, 2)) @ [[10, 2], [0, 1]]
    >>> estimate = private_pca(table, owners, bounds=[(0, 10), (0, 3)], components=1, key=1)
    >>> estimate.value.round(1), estimate.details["components"].round(1)
    (array([8.6]), array([[1. , 0.2]]))
    """
    return answer_query(COMPONENTS, values, owners, bounds=bounds, components=components, **options)
