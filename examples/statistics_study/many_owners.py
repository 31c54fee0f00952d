"""Tables in which every record has a budget of its own: epsilon from 0.01 to 10, in several shapes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from examples.statistics_study.answering import released
from examples.statistics_study.tables import DELTA, Table
from examples.statistics_study.ways import EACH_ONCE, STRICTEST, WEIGHTED
from examples.study.pages import markdown
from inosgm import Owners, plan_scale, plan_uniform
from inosgm.planning.saturation import Weights, best_weights
from inosgm.statistics import PROCEDURES

LEVELS = 200
"""Budgets are rounded to so many levels: records with one budget can be one owner, which saves accounting."""

SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log-uniform, 0.01 to 10": lambda u: 0.01 * 1000**u,
    "uniform, 0.01 to 10": lambda u: 0.01 + 9.99 * u,
    "1 % grant 0.01, the others 2": lambda u: np.where(u < 0.01, 0.01, 2.0),
    "a third each: 0.1, 1, 10": lambda u: np.array([0.1, 1.0, 10.0])[np.minimum((3 * u).astype(int), 2)],
    "log-normal about 1, within 0.01 to 10": lambda u: np.clip(np.exp(1.2 * _normal(u)), 0.01, 10.0),
}
"""The quantile functions of budgets."""

ASKED = {
    "cps1988": ("wage", (0.0, 20_000.0)),
    "nmes1988": ("visits", (0.0, 100.0)),
    "adult": ("age", (17.0, 90.0)),
    "breast cancer": ("mean area", (0.0, 3_000.0)),
}
"""A column of each table, and its public bounds."""

RELATED, UNRELATED = "larger values, smaller budgets", "at random"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Errors of a mean with personal budgets, in percent of half the range of the bounds.

    Attributes:
        table: The table and the column.
        shape: The shape of the budgets.
        who: Who has which budget.
        errors: The root of the mean squared error of each way.
        worst: The worst-case error of the default, and of the strictest budget for all.
        covered: The part of the 95 % intervals of the default that held the truth.
        full: The part of the records that count in full.
        paid: The mean part of the granted epsilon that the default costs.
    """

    table: str
    shape: str
    who: str
    errors: Mapping[str, float]
    worst: tuple[float, float]
    covered: float
    full: float
    paid: float


def run_many(tables: Mapping[str, Table], releases: int) -> Iterator[Outcome]:
    """Yield the errors of a mean of every table, for every shape of budgets."""
    for name, (column, bounds) in ASKED.items():
        if name in tables:
            for shape in SHAPES:
                for who in (UNRELATED, RELATED):
                    yield _outcome(tables[name].data((column,)), f"{name}, {column}", bounds, shape, who, releases)


def _outcome(
    values: np.ndarray, table: str, bounds: tuple[float, float], shape: str, who: str, releases: int
) -> Outcome:
    ranks = np.random.default_rng(0).permutation(values.size)
    if who == RELATED:
        ranks[np.argsort(-values, kind="stable")] = np.arange(values.size)
    levels = np.floor((ranks + 0.5) / values.size * LEVELS).astype(int)
    granted = SHAPES[shape]((np.arange(LEVELS) + 0.5) / LEVELS)
    kinds, of_level = np.unique(granted, return_inverse=True)
    owners = Owners(of_record=of_level[levels], epsilon=dict(enumerate(kinds.tolist())), delta=DELTA)
    half, truth = (bounds[1] - bounds[0]) / 2, float(values.mean())
    ways = {
        EACH_ONCE: ({}, plan_scale),
        WEIGHTED: ({"assume_alike": True}, plan_scale),
        STRICTEST: ({}, plan_uniform),
    }
    seed = int.from_bytes(blake2b(f"{table} {shape} {who}".encode(), digest_size=8).digest(), "little")
    keys = [seed + number for number in range(releases)]
    found = {
        way: released(PROCEDURES["mean"], {"bounds": bounds, **more}, values, owners, planner, keys)
        for way, (more, planner) in ways.items()
    }
    plan = plan_scale(owners, steps=1, expected_batch=owners.n_records, clip_norm=1.0)
    best = best_weights(plan)
    inside = [low <= truth <= high for low, high in (estimate.interval(0.95) for estimate in found[EACH_ONCE])]
    cost = found[EACH_ONCE][0].cost or {}
    paid = np.array([cost[label] for label in owners.labels]) / owners.epsilon
    return Outcome(
        table=table,
        shape=shape,
        who=who,
        errors={
            way: 100 / half * float(np.sqrt(np.mean([(float(e.value) - truth) ** 2 for e in some])))
            for way, some in found.items()
        },
        worst=(
            100 * best.worst_error / values.size,
            100 * Weights.at(plan, float(plan.sensitivities.min())).worst_error / values.size,
        ),
        covered=float(np.mean(inside)),
        full=float(owners.sizes @ (best.weights == 1)) / values.size,
        paid=float(owners.sizes @ paid) / values.size,
    )


def many_owners(outcomes: list[Outcome]) -> str:
    """Return the table of the page."""
    lines = [
        [
            "mean of",
            "budgets",
            "who has which",
            EACH_ONCE,
            "95 % intervals that hold",
            WEIGHTED,
            STRICTEST,
            "worst case, default",
            "worst case, strictest",
            "records in full",
            "epsilon paid",
        ]
    ]
    for row in outcomes:
        ours, weighted, strictest = (f"{row.errors[way]:.2g} %" for way in (EACH_ONCE, WEIGHTED, STRICTEST))
        shown = [f"{100 * row.covered:.0f} %", weighted, strictest, *(f"{error:.2g} %" for error in row.worst)]
        lines.append(
            [row.table, row.shape, row.who, ours, *shown, f"{100 * row.full:.0f} %", f"{100 * row.paid:.0f} %"]
        )
    return markdown(lines)


def _normal(quantiles: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return np.asarray(ndtri(quantiles))
