"""Pictures of plans and configurations, which are public, with the lower bounds of audits."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from inosgm.planning.planners import PLANNERS
from inosgm.reports.contents import Audited
from inosgm.reports.pictures import BAR, INK, STYLES, Panel, Picture, Style, logarithmic
from inosgm.reports.styles import styles_of
from inosgm.reports.tables import TextTable, cut, number, percent, short
from inosgm.reports.trained import TrainedStudy

MAX_BARS = 30
"""Largest number of owners with a bar."""

GRANTED = Style(colour=INK, dashes=None, marker="|")
AUDITED = Style(colour=STYLES[4].colour, dashes=None, marker="D")


def budgets(study: TrainedStudy, audits: Sequence[Audited], name: str) -> Picture:
    """Draw the granted epsilon of every owner, the spent one of each method, and the lower bounds of audits."""
    plan, styles = study.plan, styles_of(study)
    shown, granted = strictest(study, MAX_BARS), np.asarray(plan.epsilon)
    bounds = [
        (audited.name, np.array([audited.bounds.get(label, math.nan) for label in plan.labels])) for audited in audits
    ]

    def draw(axes: Axes) -> None:
        rows = np.arange(shown.size)
        axes.barh(rows, granted[shown], height=0.62, color=BAR, edgecolor="none")
        axes.scatter(granted[shown], rows, marker="|", s=150, color=INK, linewidths=1.8, zorder=3)
        for index, (method, style) in enumerate(styles.items()):
            # Markers of methods are spread over a bar of height 0.62, so that equal values stay visible.
            off = 0.36 * (index - (len(styles) - 1) / 2) / max(len(styles) - 1, 1)
            spent = study.methods[method].spent[shown]
            axes.scatter(spent, rows + off, marker=style.marker, s=20, color=style.colour, zorder=4)
        for _, values in bounds:
            axes.scatter(np.maximum(values[shown], 0), rows, marker="D", s=26, color=AUDITED.colour, zorder=5)
        axes.set_yticks(rows, [cut(plan.labels[index]) for index in shown])
        axes.set(ylim=(shown.size - 0.4, -0.6), xlabel="ε")
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        if granted[shown].min() * 50 < granted[shown].max():  # the smallest bar would be a pixel or two
            logarithmic(axes, "x")
            axes.set_xlim(left=granted[shown].min() / 3)

    header = [
        "owner",
        "records",
        "granted",
        "delta",
        *(f"spent, {trained.title}" for trained in study.methods.values()),
    ]
    header += [f"audited, {method}" for method, _ in bounds] + [together.heads[1] for together in study.together]
    header += ["advantage", "recognised", "Delta"]
    exposure = plan.exposure([plan.labels[index] for index in shown])
    rows = [
        (
            str(plan.labels[index]),
            str(int(plan.sizes[index])),
            short(granted[index]),
            f"{np.asarray(plan.delta)[index]:.3g}",
            *(short(study.methods[method].spent[index]) for method in styles),
            *(number(values[index]) for _, values in bounds),
            *(short(together.together[index]) for together in study.together),
            number(exposure.advantage[row]),
            percent(exposure.true_positive_rate[row, 1]),
            number(exposure.excess[row]),
        )
        for row, index in enumerate(shown)
    ]
    left = len(plan.labels) - shown.size
    hidden = (f"{left} of {len(plan.labels)} owners are not shown, from the strictest to the largest",) * (left > 0)
    meanings = (
        f"of one run of {study.focus.name}: advantage is the largest true-positive minus false-positive rate of any "
        f"attack on a record; recognised: at most so many members at {percent(exposure.false_positive_rates[1])} false "
        "alarms; Delta: how much easier attacks are because other owners have other budgets",
    )
    return Picture(
        name=name,
        title="Granted and spent",
        text=f"A bar for each owner, up to the epsilon that it granted, from {granted.min():.3g} to "
        f"{granted.max():.3g}; marks on it show what one run of each method has spent"
        + (", and lower bounds that an audit found." if bounds else "."),
        panels=(Panel(title="", draw=draw),),
        size=(4.7, 0.75 + 0.25 * shown.size),
        table=TextTable(
            caption="Epsilon of every owner", header=tuple(header), rows=tuple(rows), notes=hidden + meanings
        ),
        keys=(
            ("granted", GRANTED),
            *((f"spent, {study.methods[name].title}", replace(style, dashes=None)) for name, style in styles.items()),
            *((f"audited, at least ({method})", AUDITED) for method, _ in bounds),
        ),
        note="".join(hidden),
        secret=bool(bounds),
    )


def pull(study: TrainedStudy, name: str) -> Picture | None:
    """Draw the share of every owner in the records and in the total weight of an expected batch."""
    plan = study.plan
    if len(plan.labels) < 2:
        return None
    shown, styles = strictest(study, MAX_BARS), styles_of(study)
    records = plan.sizes / plan.sizes.sum()
    weights = {}
    for method, trained in study.methods.items():
        if trained.config.plan.method not in PLANNERS:
            continue  # the composition of its batches changes from step to step
        weight = trained.plan.sample_rates * trained.plan.sizes * trained.plan.sensitivities
        weights[method] = weight / weight.sum()
    if study.focus.name not in weights:
        return None
    distinct = {
        method: share
        for index, (method, share) in enumerate(weights.items())
        if not any(np.array_equal(share, other) for other in list(weights.values())[:index])
    }
    names = {
        method: " and ".join(other for other, values in weights.items() if np.array_equal(values, share))
        for method, share in distinct.items()
    }

    def draw(axes: Axes) -> None:
        rows = np.arange(shown.size)
        axes.barh(rows, records[shown], height=0.62, color=BAR, edgecolor="none")
        for method, share in distinct.items():
            style = styles[method]
            axes.scatter(share[shown], rows, marker=style.marker, s=26, color=style.colour, zorder=4)
        axes.set_yticks(rows, [cut(plan.labels[index]) for index in shown])
        axes.set(ylim=(shown.size - 0.4, -0.6), xlabel="share of everything")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.grid(visible=False, axis="y")

    rows = [
        (
            str(plan.labels[index]),
            percent(records[index]),
            *(percent(share[index]) for share in distinct.values()),
            *(short(study.focus.plan.sample_rates[index]), short(study.focus.plan.sensitivities[index])),
        )
        for index in shown
    ]
    header = ("owner", "of the records", *(f"of the batch, {name}" for name in names.values()), "rate", "sensitivity")
    least = int(np.argmin(weights[study.focus.name]))
    return Picture(
        name=name,
        title="What budgets buy",
        text=f"The share of every owner in the records and in what a batch can weigh. With {study.focus.name}, owner "
        f"{plan.labels[least]} has {percent(records[least])} of the records and "
        f"{percent(weights[study.focus.name][least])} of a batch.",
        panels=(Panel(title="", draw=draw),),
        size=(4.7, 0.75 + 0.25 * shown.size),
        table=TextTable(
            caption=f"Shares, and sample rate and sensitivity with {study.focus.name}", header=header, rows=tuple(rows)
        ),
        keys=(
            ("share of the records", Style(colour=BAR, dashes=None, marker="bar")),
            *((f"share of a batch, {names[method]}", replace(styles[method], dashes=None)) for method in distinct),
        ),
    )


def strictest(study: TrainedStudy, most: int) -> np.ndarray:
    """Return the indices of owners in the plan, the strictest first; of many, an even selection by epsilon."""
    order = np.argsort(np.asarray(study.plan.epsilon), kind="stable")
    if order.size <= most:
        return order
    return order[np.unique(np.linspace(0, order.size - 1, most).round().astype(np.int64))]
