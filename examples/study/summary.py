"""Tables and figures of what was run."""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from examples.study.cases import Arm, Design
from examples.study.choice import criterion, finals
from examples.study.runner import place, result

Results = list[dict[str, Any]]

COLOURS = {"IDP-SGD": "#8a8a8a", "INO-SGD": "#0b6e99"}


def summarise(design: Design, results: Path, out: Path, pages: Path | None = None) -> None:
    """Write tables (Markdown and CSV) and figures of a setting, and put them into its page if there is one.

    Args:
        design: What was run.
        results: Where the results are.
        out: Where tables and figures go.
        pages: A directory with a page SETTING.md that has markers for tables; figures and the CSV file go there too.
    """
    found = {arm: _read(design, arm, results) for arm in design.arms()}
    tables = {
        "results": _table(_result_rows(found)),
        "owners": _table(_owner_rows(found)),
        "differences": _table(_difference_rows(design, found)),
        "tuning": _table(_tuning_rows(design, results)),
        "plans": _table(_plan_rows(found)),
        "time": _time(design, found, results),
    }
    for directory in filter(None, (out, pages)):
        directory.mkdir(parents=True, exist_ok=True)
        name = design.setting.lower()
        with (directory / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(_numbers(found))
        for plan in dict.fromkeys(plan for plan, _ in design.plans):
            _figure(design, plan, found, directory / f"{name}-{plan}.svg")
    (out / "tables.md").write_text("\n\n".join(f"## {name}\n\n{text}" for name, text in tables.items()) + "\n")
    page = pages / f"{design.setting.lower()}.md" if pages else None
    if page and page.exists():
        page.write_text(fill(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


def fill(text: str, tables: dict[str, str]) -> str:
    """Put tables between their markers, <!-- NAME --> and <!-- end -->.

    >>> fill("<!-- a --> old <!-- end -->", {"a": "new"})
    '<!-- a -->\\n\\nnew\\n\\n<!-- end -->'
    """
    for name, table in tables.items():
        text = re.sub(
            rf"<!-- {name} -->.*?<!-- end -->",
            lambda _, name=name, table=table: f"<!-- {name} -->\n\n{table}\n\n<!-- end -->",
            text,
            flags=re.DOTALL,
        )
    return text


def _read(design: Design, arm: Arm, results: Path) -> Results:
    """Return the results of an arm, by seed, as far as they have been run."""
    return [result(case, results) for case in finals(design, arm, results) if place(case, results).exists()]


def _last(found: dict[str, Any]) -> dict[str, Any]:
    last: dict[str, Any] = found["curve"]["evaluations"][-1]
    return last


def _recalls(found: dict[str, Any]) -> dict[Any, float]:
    """Return every owner's recall at the end: the share of its held-out records that was predicted right."""
    return {row["owner"]: row["accuracy"] for row in _last(found)["by_owner"]}


MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "accuracy": lambda found: _last(found)["accuracy"],
    "balanced": lambda found: _last(found)["balanced_accuracy"],
    "worst owner": lambda found: min(_recalls(found).values()),
    "spread": lambda found: _last(found)["spread"],
    "learnt and clipped": lambda found: float(
        np.average(found["diagnostics"][0]["learnt_and_clipped"], weights=found["diagnostics"][0]["records"])
    ),
}


def _values(results: Results, measure: Callable[[dict[str, Any]], float]) -> np.ndarray:
    return np.array([measure(found) for found in results], dtype=np.float64)


def _shown(values: np.ndarray) -> str:
    """Show mean and standard deviation over seeds."""
    deviation = f" ± {values.std(ddof=1):.3f}" if values.size > 1 else ""
    return f"{values.mean():.3f}{deviation}" if values.size else ""


def _arm(arm: Arm) -> list[str]:
    return ["" if arm.plan == "uniform" else arm.plan.upper(), arm.accountant.upper(), arm.method]


def _result_rows(found: dict[Arm, Results]) -> list[list[str]]:
    rows = [["plan", "accountant", "method", *MEASURES, "learning rate", "clip norm"]]
    for arm, results in found.items():
        point = [f"{results[0]['case'][name]:g}" for name in ("learning_rate", "clip_norm")] if results else ["", ""]
        rows.append([*_arm(arm), *(_shown(_values(results, measure)) for measure in MEASURES.values()), *point])
    return rows


def _owner_rows(found: dict[Arm, Results]) -> list[list[str]]:
    labels = list(_recalls(next(filter(None, found.values()))[0]))
    rows = [["plan", "accountant", "method", *map(str, labels)]]
    for arm, results in found.items():
        rows.append(
            [*_arm(arm), *(_shown(_values(results, lambda one, label=label: _recalls(one)[label])) for label in labels)]
        )
    return rows


def _difference_rows(design: Design, found: dict[Arm, Results]) -> list[list[str]]:
    """Compare INO-SGD with IDP-SGD seed by seed: mean difference and its standard error."""
    names = ["accuracy", "balanced", "worst owner", "spread"]
    rows = [["plan", "accountant", "INO-SGD minus IDP-SGD", *names]]
    for plan, accountant in design.plans:
        base = found[Arm(plan=plan, accountant=accountant)]
        for tail in design.tails:
            arm = Arm(plan=plan, accountant=accountant, tail=tail)
            rows.append([*_arm(arm)[:2], f"tail {tail:g}"])
            for name in names:
                first, second = (_values(results, MEASURES[name]) for results in (base, found[arm]))
                both = min(first.size, second.size)
                gap = second[:both] - first[:both]
                error = f" ± {gap.std(ddof=1) / np.sqrt(gap.size):.3f}" if gap.size > 1 else ""
                rows[-1].append(f"{gap.mean():+.3f}{error}" if gap.size else "")
    return rows


def _tuning_rows(design: Design, results: Path) -> list[list[str]]:
    grid = [(case.clip_norm, case.learning_rate) for case in design.grid(design.arms()[0])]
    rows = [["plan", "accountant", "method", *(f"clip {clip:g}, rate {rate:g}" for clip, rate in grid)]]
    for arm in dict.fromkeys(map(design.tuned_as, design.arms())):
        values = [criterion(result(case, results)) for case in design.grid(arm)]
        cells = [f"{value:.3f}" for value in values]
        chosen = values.index(max(values))
        cells[chosen] = f"**{cells[chosen]}**"
        rows.append([*_arm(arm), *cells])
    return rows


def _plan_rows(found: dict[Arm, Results]) -> list[list[str]]:
    """Show what each plan gives to each owner: sample rate, and noise multiplier (the smaller, the more signal)."""
    labels = next(filter(None, found.values()))[0]["plan"]["labels"]
    rows = [["plan", "accountant", *(f"{label}: rate, multiplier" for label in labels)]]
    for arm, results in found.items():
        if results and not arm.tail:
            plan = results[0]["plan"]
            pairs = zip(plan["sample_rates"], plan["sensitivities"], strict=True)
            cells = [f"{rate:.3g}, {plan['noise_scale'] / bound:.3g}" for rate, bound in pairs]
            rows.append([arm.plan.upper(), arm.accountant.upper(), *cells])
    return rows


def _time(design: Design, found: dict[Arm, Results], results: Path) -> str:
    tuning = [result(case, results) for case in design.tuning()]
    final = [one for some in found.values() for one in some]
    cpu, wall = (np.array([one[name] for one in [*tuning, *final]]) for name in ("cpu_seconds", "seconds"))
    return (
        f"{len(tuning)} tuning runs and {len(final)} runs that count: {cpu.sum() / 60:.0f} minutes of processor time "
        f"(median {np.median(cpu):.1f} s a run), {wall.sum() / 60:.0f} minutes of waiting by two processes on a shared "
        "machine."
    )


def _numbers(found: dict[Arm, Results]) -> list[list[Any]]:
    """Return one row per run that counts, for a CSV file."""
    labels = list(_recalls(next(filter(None, found.values()))[0]))
    names = ["learning_rate", "clip_norm", "seed"]
    header = ["plan", "accountant", "method", *names, *MEASURES, *(f"recall of {label}" for label in labels)]
    rows = [
        [
            *_arm(arm),
            *(one["case"][name] for name in names),
            *(round(measure(one), 4) for measure in MEASURES.values()),
            *(round(_recalls(one)[label], 4) for label in labels),
        ]
        for arm, results in found.items()
        for one in results
    ]
    return [header, *rows]


def _figure(design: Design, plan: str, found: dict[Arm, Results], file: Path) -> None:
    """Draw every owner's recall over training: IDP-SGD against INO-SGD with the longest tail."""
    accountants = [accountant for name, accountant in design.plans if name == plan]
    labels = list(_recalls(next(filter(None, found.values()))[0]))
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "study", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(
            len(accountants),
            len(labels),
            figsize=(min(11, 1.2 + 2.2 * len(labels)), 0.7 + 1.6 * len(accountants)),
            sharex=True,
            sharey=True,
            squeeze=False,
        )
        for row, accountant in zip(axes, accountants, strict=True):
            for tail, style in ((0.0, "IDP-SGD"), (max(design.tails), "INO-SGD")):
                results = found[Arm(plan=plan, accountant=accountant, tail=tail)]
                if results:
                    _lines(row, results, labels, COLOURS[style])
            row[0].set_ylabel(f"recall, {accountant.upper()}")
        for axis, label in zip(axes[0], labels, strict=True):
            axis.set_title(str(label), fontsize=8)
        for axis in axes[-1]:
            axis.set_xlabel("step")
        names = ["IDP-SGD", f"INO-SGD, tail {max(design.tails):g}"]
        handles = [Line2D([], [], color=colour) for colour in COLOURS.values()]
        figure.legend(handles, names, loc="outside upper center", ncols=2, frameon=False)
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)


def _lines(axes: Sequence[Any], results: Results, labels: list[Any], colour: str) -> None:
    """Draw mean and one standard deviation over seeds, an axis for each owner."""
    steps = results[0]["curve"]["steps"]
    for axis, label in zip(axes, labels, strict=True):
        curves = np.array([_curve(one, label) for one in results])
        mean, deviation = curves.mean(axis=0), curves.std(axis=0, ddof=min(1, len(curves) - 1))
        axis.plot(steps, mean, color=colour, linewidth=1.4)
        axis.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
        axis.set_ylim(-0.02, 1.02)
        axis.grid(alpha=0.3)


def _curve(found: dict[str, Any], label: Any) -> list[float]:
    """Return an owner's recall at every evaluation of a run."""
    rows = (row for one in found["curve"]["evaluations"] for row in one["by_owner"])
    return [row["accuracy"] for row in rows if row["owner"] == label]


def _table(rows: list[list[str]]) -> str:
    """Lay out a Markdown table, the first row as its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
