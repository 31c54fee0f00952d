"""What is asked of which table. Bounds are round numbers that were chosen with these public tables known."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from examples.statistics_study import truths
from examples.statistics_study.tables import WRONG
from inosgm import HardTail
from inosgm.statistics import Estimate

LEVEL, TRIM = 0.9, 0.1


def _value(estimate: Estimate) -> Any:
    return estimate.value


def _components(estimate: Estimate) -> Any:
    return estimate.details["components"]


def _as_it_is(_: np.ndarray, value: Any) -> np.ndarray:
    return np.asarray(value, dtype=np.float64).ravel()


def _size_of_truth(_: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(truth))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A statistic of some columns.

    Attributes:
        statistic: Its name, as the library calls it.
        table: Of which table.
        columns: Of which of its columns.
        parameters: Public parameters.
        truth: What the answer would be without privacy, every record with the same weight.
        true_columns: The columns that the truth is about, if others: those without errors.
        stratified: Whether it can also be answered owner by owner.
        quick: Whether it is asked with all budgets, or else with one.
        answer: What of an estimate is the answer.
        read: In which form an answer is compared with the truth, given the data.
        scale: What errors are given in units of, given the data and the truth in that form.
    """

    statistic: str
    table: str
    columns: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    truth: Callable[[np.ndarray], Any]
    true_columns: tuple[str, ...] | None = None
    stratified: bool = False
    quick: bool = True
    answer: Callable[[Estimate], Any] = _value
    read: Callable[[np.ndarray, Any], np.ndarray] = _as_it_is
    scale: Callable[[np.ndarray, np.ndarray], float] = _size_of_truth

    @property
    def of(self) -> str:
        """Of what, in words."""
        level = f", level {self.parameters['level']:g}" if "level" in self.parameters else ""
        return ", ".join(self.columns) + level


BOUNDS: dict[tuple[str, str], tuple[float, float]] = {
    ("cps1988", "wage"): (0.0, 20_000.0),
    ("cps1988", WRONG): (0.0, 20_000.0),
    ("cps1988", "education"): (0.0, 20.0),
    ("cps1988", "experience"): (-5.0, 65.0),
    ("cps1988", "log wage"): (3.0, 10.0),
    ("cps1988", f"log {WRONG}"): (3.0, 10.0),
    ("nmes1988", "visits"): (0.0, 100.0),
    ("nmes1988", "hospital"): (0.0, 10.0),
    ("adult", "hours_per_week"): (0.0, 100.0),
    ("adult", "capital_gain"): (0.0, 100_000.0),
    ("adult", "age"): (0.0, 100.0),
    ("breast cancer", "mean area"): (0.0, 3000.0),
    **{("breast cancer", name): (-1.0, 1.0) for name in ("radius", "texture", "smoothness", "compactness")},
    ("diabetes", "bmi"): (15.0, 45.0),
    ("diabetes", "bp"): (50.0, 150.0),
    ("diabetes", "s5"): (3.0, 7.0),
    ("diabetes", "progression"): (0.0, 400.0),
}
TUMOUR = ("radius", "texture", "smoothness", "compactness")
MODELS = {"cps1988": ("education", "experience", "log wage"), "diabetes": ("bmi", "bp", "s5", "progression")}
SLOW = {("cps1988", "trimmed-mean"), ("cps1988", "robust-mean"), ("cps1988", "trimmed-regression")}
EDUCATION = (
    *("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college"),
    *("Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate"),
)


def _column(
    statistic: str, table: str, column: str, truth: Callable[[np.ndarray], Any], *, clean: str | None = None, **own: Any
) -> Question:
    """Ask about one bounded column."""
    return Question(
        statistic=statistic,
        table=table,
        columns=(column,),
        parameters={"bounds": BOUNDS[table, column], **own},
        truth=truth,
        true_columns=None if clean is None else (clean,),
        stratified=statistic in ("sum", "mean", "variance"),
        quick=clean is None and (table, statistic) not in SLOW,
    )


def _quantile(table: str, column: str, level: float) -> Question:
    return _column(
        "quantile", table, column, lambda values: np.quantile(values, level, method="inverted_cdf"), level=level
    )


def _bins(table: str, column: str, edges: list[float]) -> Question:
    return Question(
        statistic="histogram",
        table=table,
        columns=(column,),
        parameters={"edges": edges},
        truth=lambda values: np.histogram(values, edges)[0],
        stratified=True,
    )


def _groups(table: str, column: str, categories: tuple[str, ...]) -> Question:
    return Question(
        statistic="group-counts",
        table=table,
        columns=(column,),
        parameters={"categories": categories, "other": None},
        truth=lambda labels: np.array([np.count_nonzero(labels == name) for name in categories]),
        stratified=True,
    )


def _several(statistic: str, table: str, columns: tuple[str, ...], truth: Callable[[np.ndarray], Any]) -> Question:
    return Question(
        statistic=statistic,
        table=table,
        columns=columns,
        parameters={"bounds": [BOUNDS[table, column] for column in columns]},
        truth=truth,
    )


def _first_component(data: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.eigh(np.cov(data.T))[1][:, -1:].T)


def _line(statistic: str, table: str, columns: tuple[str, ...], truth: Callable[..., Any], **own: Any) -> Question:
    """Ask which line predicts the last column; errors are those of predictions, in units of its deviations."""
    clean = MODELS[table]
    return Question(
        statistic=statistic,
        table=table,
        columns=columns,
        parameters={
            "bounds": [BOUNDS[table, column] for column in columns[:-1]],
            "target_bounds": BOUNDS[table, columns[-1]],
            **own,
        },
        truth=truth,
        true_columns=clean if clean != columns else None,
        quick=clean == columns and (table, statistic) not in SLOW,
        read=truths.predictions,
        scale=truths.spread_of_last,
    )


def _all() -> Iterator[Question]:
    tail, robust = truths.upper_tail_mean(LEVEL), truths.robust_mean(2.0, TRIM)
    trimmed = truths.about_median(lambda n: HardTail(TRIM * n))
    yield _column("sum", "cps1988", "wage", np.sum)
    for table, column in (("nmes1988", "any stay"), ("adult", "female")):
        yield Question(statistic="count", table=table, columns=(column,), truth=np.sum, stratified=True)
    for table, column in (
        *(("cps1988", "wage"), ("nmes1988", "visits"), ("breast cancer", "mean area"), ("diabetes", "progression")),
        *(("nmes1988", "hospital"), ("adult", "hours_per_week"), ("adult", "capital_gain"), ("adult", "age")),
    ):
        yield _column("mean", table, column, np.mean)
    for table, column in (("cps1988", "wage"), ("breast cancer", "mean area")):
        yield _column("variance", table, column, np.var)
    for table, column in (("cps1988", "wage"), ("nmes1988", "visits")):
        yield _column("trimmed-mean", table, column, trimmed, fraction=TRIM)
        yield _column("robust-mean", table, column, robust, fraction=TRIM)
    for table, column in (
        *(("cps1988", "wage"), ("nmes1988", "visits")),
        *(("adult", "capital_gain"), ("breast cancer", "mean area")),
    ):
        yield _column("upper-tail-mean", table, column, tail, level=LEVEL)
    for table, column in (("cps1988", "wage"), ("nmes1988", "visits")):
        yield _column("top-heavy-sum", table, column, truths.top_heavy_sum(0.5))
    for statistic, truth in (("mean", np.mean), ("trimmed-mean", trimmed), ("robust-mean", robust)):
        own = {} if statistic == "mean" else {"fraction": TRIM}
        yield _column(statistic, "cps1988", WRONG, truth, clean="wage", **own)
    yield _quantile("cps1988", "wage", 0.5)
    yield _quantile("nmes1988", "visits", 0.9)
    yield _quantile("breast cancer", "mean area", 0.5)
    yield _bins("adult", "age", [0, *range(20, 90, 10), 100])
    yield _bins("nmes1988", "visits", [0, 1, 2, 3, 5, 10, 20, 100])
    yield _groups("cps1988", "region", ("northeast", "midwest", "south", "west"))
    yield _groups("adult", "education", EDUCATION)
    for table, columns in (
        ("cps1988", MODELS["cps1988"]),
        ("breast cancer", TUMOUR),
    ):
        yield _several("covariance", table, columns, lambda data: np.cov(data.T, ddof=0))
    pca = _several("pca", "breast cancer", TUMOUR, _first_component)
    yield Question(
        **vars(pca)
        | {"answer": _components, "read": truths.projector}
        | {"parameters": {**pca.parameters, "components": 1}}
    )
    for table, columns in MODELS.items():
        yield _line("regression", table, columns, truths.least_squares)
        yield _line("trimmed-regression", table, columns, truths.least_trimmed_squares(0.8))
    wrong = (*MODELS["cps1988"][:-1], f"log {WRONG}")
    yield _line("regression", "cps1988", wrong, truths.least_squares)
    yield _line("trimmed-regression", "cps1988", wrong, truths.least_trimmed_squares(0.8))


QUESTIONS = tuple(_all())
