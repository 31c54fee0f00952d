"""Draw the pictures of the docs: `python docs/pictures/draw.py` writes them beside this file.

Colours are written as variables of CSS, with a value for light and one for dark, so that one file serves both.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from inosgm import BetaTail, HardTail, LinearTail, NoTail, StepTail, importance_weights

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests/support"))  # which reads the imports for a test of them
from import_graph import LAYERS, Graph, room_of  # noqa: E402

INK, FAINT, STRICT, MIDDLE, GENEROUS = "#010101", "#020202", "#030303", "#040404", "#050505"
SHADES = {  # a stand-in: its name, in light, in dark
    INK: ("ink", "#20232a", "#e6e8ee"),
    FAINT: ("faint", "#9aa0ac", "#7d8494"),
    STRICT: ("strict", "#c2410c", "#fb923c"),
    MIDDLE: ("middle", "#4f46e5", "#a5b4fc"),
    GENEROUS: ("generous", "#0f766e", "#5eead4"),
}
TAIL_LENGTH = 4.0
STRICT_ONE, GENEROUS_ONE = 0.5, 1.0
"""Sensitivities of a record of a strict owner and of a generous one."""


def main() -> None:
    """Write all pictures."""
    plt.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "inosgm",
            "font.size": 11,
            "font.family": "sans-serif",
            "text.color": INK,
            "axes.edgecolor": FAINT,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "mathtext.fontset": "dejavusans",
        }
    )
    for picture in (demo, budgets, batch, proof, tails, chooser, house):
        save(picture(), HERE / f"{picture.__name__}.svg")


LOOKS = {  # methods of the demonstration: colour, marker, size
    "DP-SGD": (FAINT, "s", 5),
    "IDP-SGD": (MIDDLE, "o", 6),
    "INO-SGD": (GENEROUS, "D", 4),
    "INO-SGD, adjusted": (STRICT, "o", 8),
}


def demo() -> Figure:
    """Show what a plan gives every owner of the demonstration, and how each method serves it: numbers of demo.json."""
    found = json.loads((HERE / "demo.json").read_text(encoding="utf-8"))
    figure, (plan, served) = plt.subplots(1, 2, figsize=(9.6, 3.5), layout="constrained", width_ratios=[1, 1.7])
    places = range(len(found["owners"]))
    ticks = [f"{epsilon:g}" for epsilon in found["epsilon"]]
    plan.bar(places, found["share of a batch"], color=MIDDLE)
    plan.plot(places, found["share of records"], color=INK, linestyle=(0, (4, 3)))
    plan.text(-0.4, found["share of records"][0] + 0.006, "share of the records", fontsize=9)
    plan.set(title="what the plan gives each owner", xlabel="epsilon that an owner grants", ylabel="share of a batch")
    for name, (colour, marker, size) in LOOKS.items():
        recall = found["methods"][name]["recall"]
        served.plot(places, recall, marker, color=colour, markersize=size, label=name, clip_on=False)
    served.set(title="how each method serves it", xlabel="epsilon that an owner grants", ylabel="recall", ylim=(0, 1))
    served.legend(loc="lower right", frameon=False, ncols=2, fontsize=10)
    for axes in (plan, served):
        axes.set_xticks(places, ticks, fontsize=9)
    return figure


def budgets() -> Figure:
    """Say what five owners grant, what is used of it, and what a batch then looks like."""
    figure, (one, own, order) = plt.subplots(1, 3, figsize=(9.6, 3.0), layout="constrained", width_ratios=[1, 1, 1.5])
    granted = np.array([0.5, 1.0, 2.0, 3.5, 5.0])
    for axes, used, title in (
        (one, np.full(5, 0.5), "one budget for all"),
        (own, granted, "every owner its own"),
    ):
        axes.bar(range(5), granted, facecolor="none", edgecolor=FAINT, linewidth=1.2)
        axes.bar(range(5), used, color=[STRICT, STRICT, MIDDLE, GENEROUS, GENEROUS])
        axes.set(title=title, xlabel="owner", xticks=range(5), xticklabels=list("ABCDE"), ylabel="epsilon")
    own.set_ylabel("")
    blocks(order, LinearTail(TAIL_LENGTH), labels=False)
    order.set(title="and what matters keeps its weight", xlabel="records, most important first", xticks=[])
    return figure


def batch() -> Figure:
    """A batch in order: the width of a block is the sensitivity of its owner, its height the weight."""
    figure, (plain, ordered) = plt.subplots(2, 1, figsize=(9, 4.6), layout="constrained", sharex=True)
    blocks(plain, NoTail(), labels=False)
    plain.set(title="no tail: a plain sampled Gaussian, IDP-SGD")
    total = blocks(ordered, LinearTail(TAIL_LENGTH), labels=True)
    start = total - TAIL_LENGTH
    ordered.plot([0, start, total], [1, 1, 0], color=INK, linewidth=1.4)
    ordered.annotate("", (start, 1.17), (total, 1.17), arrowprops={"arrowstyle": "<->", "color": INK})
    ordered.text(start + TAIL_LENGTH / 2, 1.22, "tail, of length $\\gamma$", ha="center")
    ordered.set(title="an ordered tail: INO-SGM", xlabel="sensitivity, from the most to the least important record")
    return figure


def blocks(axes: Axes, tail: object, *, labels: bool) -> float:
    """Draw records as blocks of width C_k and height rho_k; return their total width."""
    strict = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1, 0], dtype=bool)
    widths = np.where(strict, STRICT_ONE, GENEROUS_ONE)
    weights = importance_weights(np.arange(strict.size)[::-1], widths, tail)
    left = np.concatenate([[0.0], np.cumsum(widths)[:-1]])
    for at, width, weight, is_strict in zip(left, widths, weights, strict, strict=True):
        shape = {"xy": (at, 0), "width": width * 0.94}
        axes.add_patch(Rectangle(**shape, height=1.0, facecolor="none", edgecolor=FAINT, linewidth=0.8))
        axes.add_patch(Rectangle(**shape, height=weight, facecolor=STRICT if is_strict else GENEROUS))
    axes.set(xlim=(-0.05, widths.sum() + 0.05), ylim=(0, 1.38 if labels else 1.08), ylabel="weight", yticks=[0, 1])
    if labels:
        axes.text(0, 1.17, "strict owner", color=STRICT)
        axes.text(1.2, 1.17, "generous owner", color=GENEROUS)
    return float(widths.sum())


def proof() -> Figure:
    """W is convex with slopes up to 1: one more record lifts the shares of those above by C_a at most, in all."""
    figure, axes = plt.subplots(figsize=(7.4, 3.9), layout="constrained")
    tail = LinearTail(TAIL_LENGTH)
    x = np.linspace(0, 7, 300)
    axes.plot(x, tail.W(x), color=INK, linewidth=1.8)
    axes.text(6.75, float(tail.W(6.9)) + 0.15, "$W$", ha="right", fontsize=13)
    gamma_total, added = 5.0, 1.0
    for place, color, name in (
        (gamma_total, FAINT, "$\\Gamma$"),
        (gamma_total + added, STRICT, "$\\Gamma + C_a$"),
    ):
        height = float(tail.W(place))
        axes.plot([place, place, 0], [0, height, height], color=color, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(place, -0.28, name, ha="center", va="top", color=INK)
    low, high = (float(tail.W(place)) for place in (gamma_total, gamma_total + added))
    axes.annotate("", (0.35, low), (0.35, high), arrowprops={"arrowstyle": "<->", "color": STRICT})
    axes.text(0.5, (low + high) / 2, "all that the sum can move: at most $C_a$", va="center", color=STRICT)
    for start in (1.0, 2.0):
        axes.plot([start, start + 1], [float(tail.W(start))] * 2, color=FAINT, linewidth=1)
        axes.plot([start + 1] * 2, [float(tail.W(start)), float(tail.W(start + 1))], color=GENEROUS, linewidth=4)
    axes.text(3.15, 0.62, "share of a record:\nit grows when the\nrecord moves up", color=GENEROUS, va="center")
    axes.set(xlim=(0, 7), ylim=(0, 5.2), xticks=[], yticks=[], ylabel="sum of the shares")
    axes.set_xlabel("sensitivity of all records below, and of the record itself", labelpad=26)
    return figure


def tails() -> Figure:
    """How important a place in the tail is, for the tails there are."""
    shapes = {
        "LinearTail": LinearTail(1.0),
        "BetaTail(2, 1)": BetaTail(2, 1, 1.0),
        "BetaTail(1, 2)": BetaTail(1, 2, 1.0),
        "StepTail": StepTail([0.5, 0.25, 0.125, 0.0], step=0.25),
        "HardTail": HardTail(1.0),
    }
    figure, row = plt.subplots(1, len(shapes), figsize=(9.6, 2.3), layout="constrained", sharey=True)
    u = np.linspace(0, 1.5, 301)
    for axes, (name, tail) in zip(row, shapes.items(), strict=True):
        importance = np.gradient(tail.W(u), u)[::-1]
        axes.fill_between(u, importance, color=MIDDLE, alpha=0.35, linewidth=0)
        axes.plot(u, importance, color=MIDDLE, linewidth=1.8)
        axes.set(title=name, yticks=[0, 1], ylim=(0, 1.08))
        axes.set_xticks([0.5, 1.5], ["$\\Gamma - \\gamma$", "$\\Gamma$"])
    row[0].set_ylabel("importance")
    return figure


QUESTIONS = [  # asked from the top; the first one answered with yes decides
    ("You want a number about the records,\nnot a model", "private statistics", "private_mean, inosgm stats"),
    ("Owners grant nearly the same epsilon", "dp-sgd", "plan_uniform"),
    ("Owners hold different classes", "ino-sgd-adjusted", "plan_scale, LinearTail, LogitAdjustment"),
    ("Owners hold the same mix of records", "idp-sgd", "plan_scale, NoTail"),
    ("Only a few records, whole batches,\nmany steps", "individual", "plan_individual"),
    ("None of these", "lower or dp-sgd", "compare both on public data"),
]


def chooser() -> Figure:
    """Draw the questions that choose a method, one below the other, with the method that each leads to."""
    figure, axes = plt.subplots(figsize=(8.4, 5.6), layout="constrained")
    axes.set(xlim=(0, 1), ylim=(-len(QUESTIONS) + 0.5, 0.5))
    axes.axis("off")
    arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    for row, (question, method, calls) in enumerate(QUESTIONS):
        axes.add_patch(Rectangle((0.0, -row - 0.32), 0.44, 0.64, facecolor="none", edgecolor=FAINT, linewidth=1.2))
        axes.text(0.22, -row, question, ha="center", va="center", fontsize=10)
        axes.add_patch(Rectangle((0.56, -row - 0.32), 0.44, 0.64, facecolor="none", edgecolor=MIDDLE, linewidth=1.4))
        axes.text(0.78, -row + 0.12, method, ha="center", va="center", color=MIDDLE, weight="bold", fontsize=10)
        axes.text(0.78, -row - 0.15, calls, ha="center", va="center", fontsize=8.5)
        axes.annotate("", (0.56, -row), (0.44, -row), arrowprops=arrow)
        if row < len(QUESTIONS) - 1:
            axes.text(0.5, -row + 0.1, "yes", ha="center", fontsize=9)
            axes.annotate("", (0.22, -row - 0.68), (0.22, -row - 0.32), arrowprops=arrow)
            axes.text(0.235, -row - 0.5, "no", va="center", fontsize=9)
    return figure


ROOMS = {  # where each room stands in the picture, and what it is about
    "_internal": (0.5, "helpers without a subject"),
    "accounting": (0.83, "what a step costs"),
    "owners": (0.17, "who grants what"),
    "ledger": (0.5, "what every owner has spent"),
    "planning": (0.5, "what budgets buy"),
    "mechanism": (0.5, "the only place of noise"),
    "jobs": (0.5, "durable work"),
    "datasets": (0.17, "real data"),
    "statistics": (0.83, "sums that are not SGD"),
    "training": (0.17, "sums that are SGD"),
    "methods": (0.17, "one module per paper"),
    "experiments": (0.17, "seeds, comparisons, sweeps"),
    "audit": (0.17, "attacks and certificates"),
    "reports": (0.5, "figures and one page"),
    "cli": (0.5, "one module per command"),
    "ray_jobs": (0.5, "the same work on Ray"),
}


def house() -> Figure:
    """Draw the import graph between rooms, read from the source; an import that follows from others is left out."""
    edges = {(room_of(found.source), room_of(found.target)) for found in Graph().own}
    edges = {(upper, lower) for upper, lower in edges if upper != lower and {upper, lower} <= ROOMS.keys()}
    below = {room: {lower for upper, lower in edges if upper == room} for room in ROOMS}
    for layer in LAYERS:  # from the lowest: what a room reaches, directly or not
        for room in ROOMS.keys() & set(layer):
            below[room] |= {far for near in below[room] for far in below[near]}
    direct = {
        (upper, lower) for upper, lower in edges if not any(lower in below[near] for near in below[upper] - {lower})
    }
    shown = [layer for layer in LAYERS if set(layer) & ROOMS.keys()]
    height = {room: place for place, layer in enumerate(shown) for room in layer}
    figure, axes = plt.subplots(figsize=(7.2, 9.0), layout="constrained")
    axes.set(xlim=(0, 1), ylim=(-0.5, len(shown) - 0.5))
    axes.axis("off")
    for upper, lower in sorted(direct):
        (x, _), (to, _) = ROOMS[upper], ROOMS[lower]
        start, end = (x, height[upper] - 0.3), (to, height[lower] + 0.3)
        if x != to and height[upper] - height[lower] > 1:  # past the boxes between them, from side to side
            start, end = (x + 0.15, height[upper]), (to - 0.15, height[lower]) if to == 0.5 else end
        arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, start, arrowprops=arrow)
    for room, (x, subject) in ROOMS.items():
        colour = STRICT if room == "mechanism" else MIDDLE
        place = (x - 0.15, height[room] - 0.3)
        axes.add_patch(Rectangle(place, 0.3, 0.6, facecolor="none", edgecolor=colour, linewidth=1.4))
        axes.text(x, height[room] + 0.1, room, ha="center", va="center", color=colour, weight="bold", fontsize=10)
        axes.text(x, height[room] - 0.15, subject, ha="center", va="center", fontsize=8)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure whose colours follow light and dark."""
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = path.read_text(encoding="utf-8")
    for color, (name, _, _) in SHADES.items():
        text = text.replace(color, f"var(--{name})")
    light, dark = (";".join(f"--{shade[0]}:{shade[at]}" for shade in SHADES.values()) for at in (1, 2))
    style = f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    start = text.index(">", text.index("<svg")) + 1
    path.write_text(text[:start] + "\n " + style + text[start:], encoding="utf-8")


if __name__ == "__main__":
    main()
