"""Pictures of the results of methods by owner, on held-out records."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from inosgm.experiments.summary import METRICS, Summary
from inosgm.owners import Label
from inosgm.reports import seed_plot as bands
from inosgm.reports.intervals import CONFIDENCE, Interval, interval
from inosgm.reports.narrative import slope
from inosgm.reports.pictures import FAINT, Panel, Picture
from inosgm.reports.styles import styles_of
from inosgm.reports.tables import MINUS, TextTable, cut, number, percent, short, signed
from inosgm.reports.trained import Change, TrainedStudy

MAX_ROWS, MAX_PANELS, MAX_POINTS = 30, 12, 400
"""Largest numbers of owners with a row, a panel and a point of their own."""

BAND = percent(CONFIDENCE)


def curves(study: TrainedStudy, name: str) -> Picture:
    """Draw the learning curves of every owner, with all methods."""
    styles, shown = styles_of(study), study.shown(MAX_PANELS)
    summaries = {method: trained.summary for method, trained in study.methods.items()}
    top = None
    if study.measure == "loss":
        top = 1.05 * max(float(np.nanmax(summary.mean[METRICS.index("loss")])) for summary in summaries.values())

    def draw(label: Label, axes: Axes) -> None:
        for method, summary in summaries.items():
            if label in summary.owners:
                style = styles[method]
                bands.line(axes, summary, study.measure, summary.owners.index(label), style.colour, style.dashes)
        axes.set_ylim(*((-0.02, 1.02) if top is None else (0, top)))
        if top is None:
            axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])

    panels = []
    for index in shown:
        label = study.groups[index]
        budget = f" · ε {study.epsilon[index]:.3g}" if study.owned else ""
        panels.append(Panel(title=f"{cut(label)}{budget}", draw=partial(draw, label)))
    steps = tuple(dict.fromkeys(step for summary in summaries.values() for step in summary.steps))
    rows = [
        (
            str(study.groups[index]),
            method,
            *_at(summary, METRICS.index(study.measure), study.groups[index], sorted(steps)),
        )
        for index in shown
        for method, summary in summaries.items()
    ]
    return Picture(
        name=name,
        title=f"{study.measure.capitalize()} by step, as training goes on",
        text=f"A panel for each {study.who} with a line for each method: the mean over seeds of the {study.measure} on "
        f"held-out records by step, in its {BAND} confidence band.",
        panels=tuple(panels),
        size=(2.75, 2.0),
        table=TextTable(
            caption=f"Mean {study.measure} by step",
            header=(study.who, "method", *(f"{step}" for step in sorted(steps))),
            rows=tuple(rows),
        ),
        keys=tuple((method, replace(style, marker="")) for method, style in styles.items()),
        note=study.hidden(MAX_PANELS),
    )


def _at(summary: Summary, metric: int, label: Label, steps: Sequence[int]) -> Iterator[str]:
    """Yield the mean of an owner at some steps."""
    owners, known = summary.owners, summary.steps
    for step in steps:
        there = step in known and label in owners
        yield number(float(summary.mean[metric, known.index(step), owners.index(label)])) if there else "-"


def change(study: TrainedStudy, name: str) -> Picture | None:
    """Draw the change of every owner with the method under study, by the epsilon that the owner grants."""
    if not study.changes:
        return None

    def draw(change: Change, axes: Axes) -> None:
        values = np.array([[group.value, group.low, group.high] for group in change.by_group])
        x, values = _binned(study.epsilon, values)
        style = styles_of(study)[change.method.name]
        axes.axhline(0, color=FAINT, linewidth=1)
        if change.line is not None:
            axes.fill_between(
                change.line.at, change.line.low, change.line.high, color=style.colour, alpha=0.16, linewidth=0
            )
            axes.plot(change.line.at, change.line.value, color=style.colour, linewidth=1.6)
        axes.vlines(x, values[:, 1], values[:, 2], color=style.colour, linewidth=1.1, alpha=0.7)
        axes.scatter(x, values[:, 0], marker=style.marker, s=26, color=style.colour, zorder=3)
        axes.set(xlabel="ε that the owner grants", ylabel=f"change in {study.measure}")

    header = ["owner", "granted", *(f"minus {change.base.title}" for change in study.changes)]
    shown = study.shown(MAX_ROWS)
    rows = [
        (
            str(study.groups[index]),
            short(float(study.epsilon[index])),
            *(_moved(change.by_group[index]) for change in study.changes),
        )
        for index in shown
    ]
    many = len(study.groups) > MAX_POINTS
    return Picture(
        name=name,
        title=f"Change in {study.measure} against ε",
        text=" ".join(
            f"{sentence.text} {sentence.evidence}." for sentence in (slope(study, change) for change in study.changes)
        ),
        panels=tuple(
            Panel(title=f"{change.method.name} {MINUS} {change.base.name}", draw=partial(draw, change))
            for change in study.changes[:MAX_PANELS]
        ),
        size=(4.5, 3.1),
        table=TextTable(
            caption=f"{study.focus.name}: change in {study.measure}, with {BAND} intervals over common seeds",
            header=tuple(header),
            rows=tuple(rows),
            notes=tuple(filter(None, [study.hidden(MAX_ROWS)])),
        ),
        note=f"{len(study.groups)} owners: a point is the mean of some with similar budgets" * many,
    )


def _binned(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points to draw: one per owner, or the means of neighbours if they are very many."""
    known = ~np.isnan(values[:, 0])
    x, values = x[known], values[known]
    if x.size <= MAX_POINTS:
        return x, values
    parts = np.array_split(np.argsort(x, kind="stable"), 40)  # 40 bins of equal size: ten owners or more in each
    means = [interval(values[neighbours, 0]) for neighbours in parts]
    return np.array([x[neighbours].mean() for neighbours in parts]), np.array(
        [[mean.value, mean.low, mean.high] for mean in means]
    )


def worst(study: TrainedStudy, name: str) -> Picture:
    """Draw the results of methods for the worst-served owner, the gap between owners, and the overall result."""
    styles = styles_of(study)
    whole = "balanced accuracy" if study.measure == "recall" else "mean loss"
    titles = {
        "worst": f"{study.measure} of the worst {study.who}",
        "along": "the same, averaged over training",
        "spread": "best minus worst",
        "everyone": whole,
    }
    values: dict[str, Mapping[str, np.ndarray]] = {
        "worst": {name: study.worst(trained) for name, trained in study.methods.items()},
        "along": {name: study.along(trained) for name, trained in study.methods.items()},
        "spread": {name: study.spread(trained) for name, trained in study.methods.items()},
        "everyone": {name: trained.everyone(study.measure) for name, trained in study.methods.items()},
    }

    def draw(what: str, axes: Axes) -> None:
        for row, (method, results) in enumerate(values[what].items()):
            style, mean = styles[method], interval(results)
            axes.scatter(results, np.full(results.size, row), s=12, color=style.colour, alpha=0.35, linewidths=0)
            # Recalls and losses are not negative, but a t interval over few seeds may reach below 0.
            axes.hlines(row, max(mean.low, 0), mean.high, color=style.colour, linewidth=2.2, alpha=0.8)
            axes.scatter([mean.value], [row], marker=style.marker, s=46, color=style.colour, zorder=3)
        axes.set_yticks(range(len(styles)), [cut(method) for method in styles])
        axes.set(ylim=(len(styles) - 0.4, -0.6))
        axes.set_xlim(*((0, 1) if study.measure == "recall" else (0, None)))
        axes.grid(visible=False, axis="y")

    rows = [
        (trained.title, *(str(interval(results[method])) for results in values.values()), str(len(trained.seeds)))
        for method, trained in study.methods.items()
    ]
    best = max(styles, key=lambda method: study.better * interval(values["worst"][method]).value)
    return Picture(
        name=name,
        title=f"The worst-served {study.who}, and how far {study.who}s are apart",
        text=f"For each method the mean over seeds with its {BAND} interval. The worst-served {study.who} is served "
        f"best by {best}: {study.measure} {interval(values['worst'][best])}.",
        panels=tuple(Panel(title=title, draw=partial(draw, what)) for what, title in titles.items()),
        size=(3.5, 0.7 + 0.34 * len(styles)),
        table=TextTable(
            caption=f"Mean over seeds and its {BAND} interval",
            header=("method", *titles.values(), "seeds"),
            rows=tuple(rows),
        ),
    )


def _moved(difference: Interval) -> str:
    band = "" if math.isnan(difference.low) else f" ({signed(difference.low)} to {signed(difference.high)})"
    return signed(difference.value) + band
