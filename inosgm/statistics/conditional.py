"""Questions about the records that take part: those that satisfy a condition, or lack no value.

How many records take part is private. A record that takes no part adds nothing to any sum, and its owner pays as for
every question: the answer would show whether the record takes part, if it were free.

Sums and counts need no more than that. A mean is the ratio of two sums. Every other question first releases the number
of records that take part, which then stands where the public number of records stands otherwise; its error is carried
through to the answer.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from inosgm.owners import Label
from inosgm.statistics.bounds import Bounds
from inosgm.statistics.estimate import Estimate, OwnerValue
from inosgm.statistics.groups import GroupMoments, GroupQuantiles
from inosgm.statistics.histograms import GroupCounts, Histogram
from inosgm.statistics.key_selection import KeyRisk, KeySelection
from inosgm.statistics.means import Mean
from inosgm.statistics.quantiles import Quantile
from inosgm.statistics.queries import Query, Stage, Stages
from inosgm.statistics.ratios import Ratio
from inosgm.statistics.selection import Missing, Selection
from inosgm.statistics.shares import Share
from inosgm.statistics.sums import Count, Sum
from inosgm.statistics.views import (
    AS_READ,
    Binned,
    GroupBins,
    Grouped,
    GroupNames,
    LacksValue,
    OtherLabel,
    Otherwise,
    TakesPart,
)

COUNTED = 0.3
"""The part of epsilon that the number of records costs where it only divides. Costs of Gaussian noise add up in
squares, so the rest of the question has 95 % of what it would have alone."""

COUNTED_BESIDE_A_SUM = 0.5
"""The same for a mean: a count has half of the sensitivity of a centred sum, so both errors are about equal."""

MISSING_COUNTED = 0.2
"""The part of epsilon that the number of records without a value costs."""

SELECTED = 0.4
"""The part of epsilon that names of groups cost if they are not public."""

NO_PART = "\0takes no part"
NO_PART_NUMBER = -(1 << 63)
"""Labels of the records that take no part; no table has them."""

Builder = Callable[[Mapping[str, Any], int], Stages]


def conditional(query: Query, selection: Selection, records: int) -> Query:
    """Return the query about the records of a table that take part.

    Args:
        query: The query about all records.
        selection: Which records take part.
        records: The number of records of the table, which is public.
    """
    if selection.by is not None:
        build, shares = grouped(query, selection)
    elif query.name in _BUILDERS:
        build, shares = _BUILDERS[query.name]
    else:
        build, shares = _counted_first(query), (COUNTED, *_after(COUNTED, query.shares))
    risk = None if selection.by is None or selection.keys is not None else 0
    counted = selection.missing is Missing.count
    if counted:
        shares = (MISSING_COUNTED, *_after(MISSING_COUNTED, shares))
        risk = None if risk is None else 1

    def stages(**parameters: Any) -> Stages:
        if not counted:
            return _named(selection, (yield from build(parameters, records)))
        lacking = yield Stage(Count, {}, LacksValue(_of_labels(query), _of_indicators(query)))
        final = yield from build(parameters, records)
        found = {"missing": float(lacking.value), "missing_error": float(lacking.standard_error)}
        return _named(selection, replace(final, details={**final.details, **found}))

    def rounds(**parameters: Any) -> tuple[int, ...]:
        own = query.rounds(**parameters)
        return ((1,) if counted else ()) + (1,) * (len(shares) - counted - len(own)) + own

    return Query(f"{query.name} of the records with {_words(selection)}", stages, rounds, shares, risk=risk, base=query)


def _words(selection: Selection) -> str:
    groups = "" if selection.by is None else f" by {selection.by}, {selection.keys}"
    return f"{'' if selection.where is None else selection.where.text} (missing: {selection.missing}){groups}"


def _named(selection: Selection, estimate: Estimate) -> Estimate:
    """Return an estimate that says which records it is about."""
    where = "" if selection.where is None else f" with {selection.where.text}"
    lacking = "" if selection.missing is Missing.refuse else " and without a missing value"
    if selection.where is None:
        lacking = lacking.removeprefix(" and")
    # every estimand says how many records there are: here, how many take part is private
    return replace(estimate, estimand=re.sub(r"all \d+ records", f"all records{where}{lacking}", estimate.estimand))


def grouped(query: Query, selection: Selection) -> tuple[Builder, tuple[float, ...]]:
    """Return the stages of a question with a value for each group, and their shares.

    Raises:
        ValueError: for a question that has no form with groups.
    """
    if query.name not in _GROUPED:
        raise ValueError(
            f"by goes with {', '.join(_GROUPED)}, got {query.name}: ask about each group with a condition, such as "
            f"where=\"{selection.by} == 'NAME'\" (--where); `Questions` divides one share among several questions"
        )
    inner, shares = _GROUPED[query.name]
    if selection.keys is not None:
        known = selection.keys
        return lambda parameters, _: inner(known, parameters), shares

    def build(parameters: Mapping[str, Any], records: int) -> Stages:
        yield Stage(KeyRisk, {})
        names = GroupNames(_of_labels(query), _of_indicators(query))
        found = yield Stage(KeySelection, _weighing(parameters), names)
        if not found.details["keys"]:
            return replace(found, estimand="no group has enough records to appear")
        return (yield from inner(tuple(found.details["keys"]), parameters))

    return build, (SELECTED, SELECTED, *_after(SELECTED, shares))


def _group_sums(what: str, indicator: bool) -> Callable[..., Stages]:
    def build(keys: tuple[Label, ...], parameters: Mapping[str, Any]) -> Stages:
        if parameters.get("stratified"):
            raise ValueError("stratified does not go with groups: name the owners as groups, or ask about each owner")
        how = {"keys": list(keys), "bounds": parameters.get("bounds", (0.0, 1.0)), "what": what, "indicator": indicator}
        found = yield Stage(GroupMoments, {**how, **_weighing(parameters)}, Grouped(keys))
        if not indicator:
            return found
        words = Count.what if what == "sum" else Share.what
        return replace(found, estimand=found.estimand.replace(f"{what} of every group", f"{words} in every group", 1))

    return build


def _group_quantiles(keys: tuple[Label, ...], parameters: Mapping[str, Any]) -> Stages:
    how = {"keys": list(keys), "bounds": parameters["bounds"], **_weighing(parameters)}
    counts = yield Stage(GroupMoments, {**how, "what": "count"}, Grouped(keys))
    found = [float(count) for count in np.asarray(counts.value)]
    return (yield Stage(GroupQuantiles, {**parameters, "keys": list(keys), "counts": found}, Grouped(keys)))


def _group_histograms(keys: tuple[Label, ...], parameters: Mapping[str, Any]) -> Stages:
    edges = np.asarray(parameters["edges"], dtype=np.float64)
    shape = (len(keys), edges.size - 1)
    others = shape[0] * shape[1]
    view = GroupBins(keys, tuple(edges.tolist()))
    cells = {"categories": list(range(others + 1)), "other": None, **_weighing(parameters)}
    counts = yield Stage(GroupCounts, cells, view)
    kept = _without(counts, others, keys=np.array(keys), edges=edges)
    return replace(
        kept,
        value=np.reshape(kept.value, shape),
        standard_error=np.reshape(kept.standard_error, shape),
        bias_bound=np.reshape(kept.bias_bound, shape),
        estimand=kept.estimand.replace("group", "bin of every group", 1),
    )


def _after(first: float, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Return the shares of later stages, where a first one has spent its part: squares add up for Gaussian noise."""
    return tuple(1.0 if share == 1 else math.hypot(first, math.sqrt(1 - first**2) * share) for share in shares)


def _weighing(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return how records are weighted, for a stage that has other parameters."""
    return {"assume_alike": True} if parameters.get("assume_alike") else {}


def _of_labels(query: Query) -> bool:
    return query.statistic is not None and query.statistic.of_labels


def _of_indicators(query: Query) -> bool:
    return query.name in (Count.name, Share.name)


def _sum(parameters: Mapping[str, Any], records: int) -> Stages:
    """Others count as 0, which lies within the bounds."""
    bounds = Bounds.of(parameters["bounds"])
    around = (min(bounds.low, 0.0), max(bounds.high, 0.0))
    view = Otherwise(0.0, bounds.low, bounds.high)
    return (yield Stage(Sum, {**parameters, "bounds": around}, view))


def _count(parameters: Mapping[str, Any], records: int) -> Stages:
    return (yield Stage(Count, parameters, Otherwise(0.0)))


def _share(parameters: Mapping[str, Any], records: int) -> Stages:
    return _mean(parameters, records, indicator=True)


def _mean(parameters: Mapping[str, Any], records: int, *, indicator: bool = False) -> Stages:
    """The sum of the distances from the middle, in which others count as the middle, over the number."""
    bounds = Bounds.of(parameters.get("bounds", (0.0, 1.0)))  # a share has no parameter for them
    how = {name: value for name, value in parameters.items() if name != "bounds"}
    number = yield Stage(Count, how, TakesPart(indicator=indicator))
    view = Otherwise(bounds.middle, bounds.low, bounds.high)
    total = yield Stage(Sum, {**how, "bounds": (bounds.low, bounds.high)}, view)
    ratio = Ratio.of(
        float(total.value) - records * bounds.middle,
        float(number.value),
        float(total.standard_error),
        float(number.standard_error),
    )
    return replace(
        total,
        value=bounds.middle + ratio.value,
        standard_error=ratio.standard_error,
        bias_bound=(float(total.bias_bound) + abs(ratio.value) * float(number.bias_bound))
        / max(float(number.value), float(number.standard_error)),
        estimand=total.estimand.replace(Sum.what, Share.what if indicator else Mean.what, 1),
        by_owner=None,
        details={
            "records": float(number.value),
            "records_error": float(number.standard_error),
            "interval": bounds.middle + np.array(ratio.interval),
        },
    )


def _histogram(parameters: Mapping[str, Any], records: int) -> Stages:
    """Others have a bin of their own, which is dropped."""
    edges = np.asarray(parameters["edges"], dtype=np.float64)
    bins = edges.size - 1
    how = {name: value for name, value in parameters.items() if name != "edges"}
    counts = yield Stage(GroupCounts, {**how, "categories": list(range(bins + 1)), "other": None}, Binned(tuple(edges)))
    return _without(counts, bins, edges=edges)


def _group_counts(parameters: Mapping[str, Any], records: int) -> Stages:
    """Others have a category of their own, which is dropped."""
    categories = list(parameters["categories"])
    label = NO_PART if isinstance(categories[0], str) else NO_PART_NUMBER
    counts = yield Stage(GroupCounts, {**parameters, "categories": [*categories, label]}, OtherLabel(label))
    names = np.delete(np.asarray(counts.details["categories"]), len(categories))
    return _without(counts, len(categories), categories=names)


def _without(counts: Estimate, cell: int, **details: Any) -> Estimate:
    """Return counts without that of a cell."""
    rows = counts.by_owner
    value = np.delete(counts.value, cell)
    return replace(
        counts,
        value=value,
        standard_error=np.delete(counts.standard_error, cell),
        bias_bound=np.delete(np.broadcast_to(counts.bias_bound, np.shape(counts.value)), cell),
        by_owner=None
        if rows is None
        else {
            owner: OwnerValue(value=np.delete(row.value, cell), standard_error=np.delete(row.standard_error, cell))
            for owner, row in rows.items()
        },
        details=details,
    )


def _counted_first(query: Query) -> Builder:
    """Release the number of records that take part; then ask about these, with it in place of a public number."""

    def build(parameters: Mapping[str, Any], records: int) -> Stages:
        number = yield Stage(Count, _weighing(parameters), TakesPart(labels=_of_labels(query)))
        error = float(number.standard_error) / records
        share = min(1.0, max(float(number.value) / records, 2 * error))
        inner, estimate = query.stages(**parameters), None
        try:
            stage = next(inner)
            while True:
                known = {**stage.parameters, "matching": share, "matching_error": error}
                estimate = yield Stage(stage.statistic, known, AS_READ)
                stage = inner.send(estimate)
        except StopIteration as end:
            final: Estimate = end.value
        counts = {"records": float(number.value), "records_error": float(number.standard_error)}
        return replace(final, details={**final.details, **counts})

    return build


_GROUPED: dict[str, tuple[Callable[..., Stages], tuple[float, ...]]] = {
    Sum.name: (_group_sums("sum", indicator=False), (1.0,)),
    Count.name: (_group_sums("sum", indicator=True), (1.0,)),
    Share.name: (_group_sums("mean", indicator=True), (1.0,)),
    Mean.name: (_group_sums("mean", indicator=False), (1.0,)),
    Quantile.name: (_group_quantiles, (COUNTED, 1.0)),
    Histogram.name: (_group_histograms, (1.0,)),
}
_BUILDERS: dict[str, tuple[Builder, tuple[float, ...]]] = {
    Sum.name: (_sum, (1.0,)),
    Count.name: (_count, (1.0,)),
    Histogram.name: (_histogram, (1.0,)),
    GroupCounts.name: (_group_counts, (1.0,)),
    Mean.name: (_mean, (COUNTED_BESIDE_A_SUM, 1.0)),
    Share.name: (_share, (COUNTED_BESIDE_A_SUM, 1.0)),
}
