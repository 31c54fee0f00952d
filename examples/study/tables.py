"""Tables of results: mean and standard deviation over seeds."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from examples.study.cases import Arm, Case, Design
from examples.study.choice import criterion
from examples.study.pages import markdown
from inosgm.training import LearningCurve

Result = dict[str, Any]
Results = list[Result]


def last(found: Result) -> Result:
    """Return the evaluation at the end of a run."""
    evaluation: Result = found["curve"]["evaluations"][-1]
    return evaluation


def recalls(evaluation: Result) -> dict[Any, float]:
    """Return every owner's recall: the share of its held-out records that was predicted right."""
    return {row["owner"]: row["accuracy"] for row in evaluation["by_owner"]}


def _worst_along(found: Result) -> float:
    """Return the least recall of an owner, on average over the evaluations after the first step."""
    return float(np.mean([min(recalls(one).values()) for one in found["curve"]["evaluations"][1:]]))


def _drops(found: Result) -> float:
    """Return how many owners had an initial drop."""
    return len(LearningCurve.from_json(json.dumps(found["curve"])).initial_drops())


def _acted_on(found: Result) -> float:
    """Return the share of held-out records that were learnt and still clipped halfway."""
    halfway = found["diagnostics"][0]
    return float(np.average(halfway["learnt_and_clipped"], weights=halfway["records"]))


MEASURES: dict[str, Callable[[Result], float]] = {
    "accuracy": lambda found: last(found)["accuracy"],
    "balanced": lambda found: last(found)["balanced_accuracy"],
    "worst owner": lambda found: min(recalls(last(found)).values()),
    "spread": lambda found: last(found)["spread"],
    "worst, all along": _worst_along,
    "initial drops": _drops,
    "learnt and clipped": _acted_on,
}
COMPARED = ("accuracy", "balanced", "worst owner", "spread", "worst, all along")


def ends(found: dict[Arm, Results]) -> str:
    """Show how runs ended, by arm."""
    rows = [["plan", "accountant", "method", *MEASURES, "learning rate", "clip norm"]]
    for arm, results in found.items():
        point = [f"{results[0]['case'][name]:g}" for name in ("learning_rate", "clip_norm")] if results else ["", ""]
        rows.append([*_named(arm), *(_shown(_values(results, measure)) for measure in MEASURES.values()), *point])
    return markdown(rows)


def owners(found: dict[Arm, Results]) -> str:
    """Show every owner's recall, by arm."""
    labels = _owners_of(found)
    rows = [["plan", "accountant", "method", *map(str, labels)]]
    for arm, results in found.items():
        ended = [[recalls(last(one))[label] for one in results] for label in labels]
        rows.append([*_named(arm), *(_shown(np.array(values)) for values in ended)])
    return markdown(rows)


def differences(design: Design, found: dict[Arm, Results]) -> str:
    """Compare the others with IDP-SGD seed by seed: the mean difference and its standard error."""
    rows = [["plan", "accountant", "minus IDP-SGD", *COMPARED]]
    for plan, accountant in design.plans:
        base = found[Arm(plan=plan, accountant=accountant)]
        tails = [Arm(plan=plan, accountant=accountant, tail=tail) for tail in design.tails]
        for arm in [Arm(plan="uniform", accountant=accountant), *tails]:
            gaps = (_gap(found[arm], base, MEASURES[name]) for name in COMPARED)
            rows.append([plan.upper(), accountant.upper(), arm.method, *gaps])
    return markdown(rows)


def tuning(design: Design, chosen: dict[Case, Result]) -> str:
    """Show what the runs that choose found at every point of the grid, the best in bold."""
    grid = [(case.clip_norm, case.learning_rate) for case in design.grid(design.arms()[0])]
    rows = [["plan", "accountant", "method", *(f"clip {clip:g}, rate {rate:g}" for clip, rate in grid)]]
    for arm in dict.fromkeys(map(design.tuned_as, design.arms())):
        values = [criterion(chosen[case]) for case in design.grid(arm)]
        cells = [f"{value:.3f}" for value in values]
        place = values.index(max(values))
        cells[place] = f"**{cells[place]}**"
        rows.append([*_named(arm), *cells])
    return markdown(rows)


def plans(found: dict[Arm, Results]) -> str:
    """Show what each plan gives to each owner: its sample rate and its noise multiplier."""
    labels = next(filter(None, found.values()))[0]["plan"]["labels"]
    rows = [["plan", "accountant", *(f"{label}: rate, multiplier" for label in labels)]]
    for arm, results in found.items():
        if results and not arm.tail:
            plan = results[0]["plan"]
            pairs = zip(plan["sample_rates"], plan["sensitivities"], strict=True)
            cells = [f"{rate:.3g}, {plan['noise_scale'] / bound:.3g}" for rate, bound in pairs]
            rows.append([arm.plan.upper(), arm.accountant.upper(), *cells])
    return markdown(rows)


def times(chosen: Results, final: Results) -> str:
    """Say how many runs there were and how long they took."""
    cpu, wall = (np.array([one[name] for one in [*chosen, *final]]) for name in ("cpu_seconds", "seconds"))
    return (
        f"{len(chosen)} tuning runs and {len(final)} runs that count: {cpu.sum() / 60:.0f} minutes of processor time "
        f"(median {np.median(cpu):.1f} s a run), {wall.sum() / 60:.0f} minutes by the clocks of the processes, on a "
        "machine that others used too."
    )


def numbers(kinds: dict[str, dict[Arm, Results]]) -> list[list[Any]]:
    """Return one row per run that counts, for a CSV file."""
    labels = _owners_of(kinds["tuned"])
    names = ["learning_rate", "clip_norm", "seed"]
    head = ["point", "plan", "accountant", "method", *names, *MEASURES, *(f"recall of {label}" for label in labels)]
    rows = [
        [
            kind,
            *_named(arm),
            *(one["case"][name] for name in names),
            *(round(measure(one), 4) for measure in MEASURES.values()),
            *(round(recalls(last(one))[label], 4) for label in labels),
        ]
        for kind, found in kinds.items()
        for arm, results in found.items()
        for one in results
    ]
    return [head, *rows]


def _owners_of(found: dict[Arm, Results]) -> list[Any]:
    return list(recalls(last(next(filter(None, found.values()))[0])))


def _named(arm: Arm) -> list[str]:
    return ["" if arm.plan == "uniform" else arm.plan.upper(), arm.accountant.upper(), arm.method]


def _values(results: Sequence[Result], measure: Callable[[Result], float]) -> np.ndarray:
    return np.array([measure(found) for found in results], dtype=np.float64)


def _shown(values: np.ndarray) -> str:
    """Show mean and standard deviation."""
    deviation = f" ± {values.std(ddof=1):.3f}" if values.size > 1 else ""
    return f"{values.mean():.3f}{deviation}" if values.size else ""


def _gap(results: Results, base: Results, measure: Callable[[Result], float]) -> str:
    """Show the mean difference over the seeds that both have, and its standard error."""
    both = {one["case"]["seed"]: measure(one) for one in base}
    gaps = np.array([measure(one) - both[one["case"]["seed"]] for one in results if one["case"]["seed"] in both])
    error = f" ± {gaps.std(ddof=1) / np.sqrt(gaps.size):.3f}" if gaps.size > 1 else ""
    return f"{gaps.mean():+.3f}{error}" if gaps.size else ""
