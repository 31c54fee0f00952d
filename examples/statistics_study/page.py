"""The tables of the page of results."""

from collections.abc import Mapping, Sequence

import numpy as np

from examples.statistics_study.answering import WAYS
from examples.statistics_study.measuring import Row
from examples.statistics_study.running import DEALT
from examples.statistics_study.tables import Table
from examples.statistics_study.ways import EACH_ONCE, STRICTEST, WEIGHTED, WITHOUT_ORDER
from examples.study.pages import markdown


def texts(rows: Sequence[Row], tables: Mapping[str, Table]) -> dict[str, str]:
    """Return every table of the page by name."""
    return {
        "tables": owners(tables),
        "errors": errors(rows, related=True),
        "errors dealt out": errors(rows, related=False),
        "gains": gains(rows),
        "order": order(rows),
    }


def owners(tables: Mapping[str, Table]) -> str:
    """Show who owns how many rows, and what each grants at factor 1."""
    lines = [["table", "rows", "owners by", "owner: rows, epsilon"]]
    for table in tables.values():
        sizes = {label: int(np.count_nonzero(table.groups == label)) for label in table.epsilon}
        shown = "; ".join(f"{label}: {size:,}, {table.epsilon[label]:g}" for label, size in sizes.items())
        lines.append([table.name, f"{table.groups.size:,}", table.by, shown])
    return markdown(lines)


def errors(rows: Sequence[Row], *, related: bool) -> str:
    """Show the relative error of every question and way at factor 1; in brackets the part of it that is bias."""
    some = [row for row in rows if row.factor == 1 and (row.owners != DEALT) == related]
    ways = [way for way in WAYS if any(row.way == way for row in some)]
    lines = [["statistic", "of", *ways]]
    for question in dict.fromkeys(row.question for row in some):
        by_way = {row.way: row for row in some if row.question == question}
        lines.append([question[1], f"{question[0]}, {question[2]}", *(_shown(by_way.get(way)) for way in ways)])
    return markdown(lines)


def gains(rows: Sequence[Row]) -> str:
    """Show by how much weights by budgets lower the error at the strictest budget, by statistic, owners and factor."""
    found = {(row.question, row.owners, row.factor, row.way): row.rmse for row in rows}
    factors = sorted({row.factor for row in rows})
    lines = [["statistic", *(f"{kind}, budgets x {factor:g}" for kind in ("groups", DEALT) for factor in factors)]]
    for statistic in dict.fromkeys(row.statistic for row in rows):
        cells = []
        for dealt in (False, True):
            for factor in factors:
                keys = [k for k in found if k[0][1] == statistic and (k[1] == DEALT) == dealt and k[2] == factor]
                ratios = [found[*k[:3], STRICTEST] / found[k] for k in keys if k[3] == WEIGHTED]
                cells.append(_range(ratios))
        lines.append([statistic, *cells])
    return markdown(lines)


ORDERED = ("mean", "trimmed-mean", "robust-mean", "quantile", "upper-tail-mean", "top-heavy-sum")


def order(rows: Sequence[Row]) -> str:
    """Show what statistics with and without an order come to, and their errors, in the units of the column."""
    dealt = [row for row in rows if row.owners == DEALT and row.factor == 1 and row.statistic in ORDERED]
    skewed = {(row.table, row.of.split(", level")[0]) for row in dealt if row.statistic in ORDERED[1:]}
    ways = (EACH_ONCE, WITHOUT_ORDER, WEIGHTED, STRICTEST)
    lines = [["of", "statistic", "true", *ways]]
    for table, column in sorted(skewed):
        for question in dict.fromkeys(row.question for row in dealt):
            if question[0] != table or question[2].split(", level")[0] != column:
                continue
            by_way = {row.way: row for row in dealt if row.question == question}
            shown = [f"{row.rmse * row.scale:,.3g}" if (row := by_way.get(way)) else "" for way in ways]
            lines.append([f"{table}, {question[2]}", question[1], f"{by_way[EACH_ONCE].scale:,.5g}", *shown])
    return markdown(lines)


def _shown(row: Row | None) -> str:
    """Show an error as a percentage; of owners by groups with its bias, if that is more than chance."""
    if row is None:
        return ""
    chance = 3 * row.deviation / np.sqrt(row.releases)
    bias = f" ({_percent(row.bias)})" if row.bias > chance and row.owners != DEALT else ""
    return f"{_percent(row.rmse)}{bias}"


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %"


def _range(ratios: Sequence[float]) -> str:
    """Show one ratio, or the least and the largest of several."""
    low, high = min(ratios, default=0.0), max(ratios, default=0.0)
    return "" if not ratios else f"{low:.2g}x" if len(ratios) == 1 else f"{low:.2g}x to {high:.2g}x"
