"""What an audit has found, for people and for JSON."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from inosgm._internal.text import MOST, columns
from inosgm.audit.bounds import Bound
from inosgm.audit.findings import Findings, Verdict
from inosgm.audit.roc import LOOKED_AT, Success
from inosgm.audit.secret_files import WARNING
from inosgm.owners import Label

BOUNDS = ("mechanism", "one run", "many runs")
"""Where lower bounds come from, in the order in which they are shown."""

MOST_ATTACKED = 6
"""Up to how many owners the comparison of attacks has a column for each."""


def table(audit: Findings) -> str:
    """Return what is known about epsilons, and what attacks achieve, a row for each owner.

    Of very many owners those are shown on whom the attack does best, and all that are contradicted.
    """
    found = dict(audit.successes())
    ranked = sorted(audit.verdicts, key=lambda one: (not one.contradicted, -_area(found.get(one.claim.owner))))
    best = {one.claim.owner for one in ranked[:MOST]}
    shown = [one for one in audit.verdicts if one.claim.owner in best or one.contradicted]
    hidden = len(audit.verdicts) - len(shown)
    rates = [f"{100 * rate:g} %" for rate in LOOKED_AT]
    confidence, at = f"{100 * audit.confidence:g} %", _delta(audit)
    lines = [
        _title(audit),
        "",
        *columns(
            ["epsilon of", "granted", "spent", *BOUNDS, "sensitivity", "verdict"],
            [[str(one.claim.owner), *_promise(one), *_bounds(one)] for one in shown],
        ),
        f"({', '.join(BOUNDS)}, sensitivity: at least so much{at}, all at once with {confidence} confidence)",
        *_not_looked_at(audit),
        "",
        *columns(
            ["attack on", "records", "AUC", f"TPR at FPR {rates[0]}", *rates[1:]],
            [
                *([str(one.claim.owner), *_success(found.get(one.claim.owner))] for one in shown),
                ["everyone", *_success(found[None])],
            ],
        ),
        f"({audit.attacks[0]}, on {_targets(audit)}; each interval with {confidence} confidence)",
        *_unknown(audit),
        *[f"({hidden} owners on whom the attack does worse are not shown)"] * (hidden > 0),
    ]
    return "\n".join([*lines, *_by_attack(audit), *_differences(audit), "", WARNING])


def to_dict(audit: Findings) -> dict[str, Any]:
    """Return everything but the curves."""
    found = {name: dict(audit.successes(name)) for name in audit.attacks}
    sure = audit.sure()
    return {
        "shadows": audit.shadows.count,
        "asked": audit.shadows.asked,
        "canaries": audit.canaries,
        "targets": None if audit.targets is None else list(audit.targets),
        "confidence": audit.confidence,
        "sure_of_members": _number(sure[0]),
        "sure_of_others": _number(sure[1]),
        "owners": [
            {
                "owner": one.claim.owner,
                "granted": one.claim.granted,
                "spent": _number(one.claim.spent),
                "delta": one.claim.delta,
                "attacks": _by_name(found, one.claim.owner),
                "bounds": {name: _bound(bound) for name, bound in one.bounds.items()},
                "sensitivity": None if one.mechanism is None else one.mechanism.sensitivity,
                "sensitivity_promised": None if one.mechanism is None else one.mechanism.promised,
                "contradicted": list(one.contradicted),
            }
            for one in audit.verdicts
        ],
        "everyone": {"attacks": _by_name(found, None)},
    }


def _title(audit: Findings) -> str:
    members, others = audit.sure()
    share = f": the true class gets p > 1/2 in {members:.1%} of members, {others:.1%} of others".replace("%", " %")
    return audit.about + (share if max(members, others) > 0 and not audit.canaries else "")


def _targets(audit: Findings) -> str:
    """Say who is attacked."""
    if audit.targets is None:
        return "each shadow model in turn"
    few = len(audit.targets) <= MOST_ATTACKED
    named = f"shadow models {', '.join(map(str, audit.targets))}" if few else f"{len(audit.targets)} shadow models"
    return f"shadow model {audit.targets[0]}" if len(audit.targets) == 1 else named


def _delta(audit: Findings) -> str:
    """Say where epsilons are looked at, if that is one delta for all."""
    deltas = {claim.delta for claim in audit.claims}
    return f" at delta {deltas.pop():g}" if len(deltas) == 1 else ""


def _not_looked_at(audit: Findings) -> list[str]:
    promised = any(math.isfinite(claim.spent) for claim in audit.claims)
    return ["(the mechanism was not looked at, or not with this confidence: --runs)"] * (
        promised and not audit.mechanisms
    )


def _unknown(audit: Findings) -> list[str]:
    """Say of how many points the first attack says nothing, and why."""
    name, (_, everyone) = audit.attacks[0], audit.successes()[-1]
    share = everyone.unknown / max(everyone.members + everyone.others, 1)
    if share == 1 and name != "loss" and np.isfinite(audit.shadows.scores).any():
        return [f"({name} needs more shadow models: loss does without)"]
    why = "models that diverged, or too few shadow models"
    return [f"({100 * share:.3g} % of points have no statistic: {why})"] * (share > 0)


def _promise(one: Verdict) -> list[str]:
    return ["-" if epsilon is None else f"{epsilon:.4g}" for epsilon in (one.claim.granted, one.claim.spent)]


def _area(found: Success | None) -> float:
    """Return the area under a curve, -1 if there is none."""
    return -1.0 if found is None or math.isnan(found.auc) else found.auc


def _success(found: Success | None) -> list[str]:
    records = "0" if found is None else str(found.records)
    if found is None or math.isnan(found.auc):
        return [records, "-", *["-"] * len(LOOKED_AT)]
    rates = [f"{100 * rate.tpr:.3g} %" for rate in found.at.values()]
    return [records, f"{found.auc:.3f} ({found.auc_low:.3f} to {found.auc_high:.3f})", *rates]


def _bounds(one: Verdict) -> list[str]:
    shown = [f"{one.bounds[name].epsilon:.3f}" if name in one.bounds else "-" for name in BOUNDS]
    promised = "not contradicted" if math.isfinite(one.claim.spent) else "nothing promised"
    seen = one.mechanism
    sensitivity = "-" if seen is None else f"{seen.sensitivity:.3g} of {seen.promised:.3g}"
    return [*shown, sensitivity, "CONTRADICTED" if one.contradicted else promised]


def _by_attack(audit: Findings) -> list[str]:
    """Return the areas under the curves of all attacks, if there are several."""
    if len(audit.attacks) == 1:
        return []
    few = len(audit.claims) <= MOST_ATTACKED
    labels = [*(claim.owner for claim in audit.claims if few), None]
    header = ["AUC by attack", *(str(label) for label in labels[:-1]), "everyone"]
    rows = [
        [name, *(_shown(found.get(label)) for label in labels)]
        for name, found in ((name, dict(audit.successes(name))) for name in audit.attacks)
    ]
    return ["", *columns(header, rows)]


def _differences(audit: Findings) -> list[str]:
    """Return what t-tests say about pairs of owners, if they say anything."""
    rows = []
    for one in audit.differences:
        known = np.isfinite(one.t)
        if known.any():
            t, p = one.t[known], one.p[known]
            rows.append(
                [f"{one.first}, {one.second}", f"{np.median(t):.3g}", f"{np.median(p):.2g}", _percent(p < 0.05)]
            )
    header = ["members of two owners", "median t", "median p", "p < 0.05"]
    note = f"({audit.attacks[0]}, Student's t-test for each target; share of targets with p < 0.05)"
    return ["", *columns(header, rows), note] if rows else []


def _percent(cases: np.ndarray) -> str:
    return f"{100 * cases.mean():.3g} %"


def _shown(found: Success | None) -> str:
    return "-" if _area(found) < 0 or found is None else f"{found.auc:.3f}"


def _by_name(found: Mapping[str, Mapping[Label | None, Success]], label: Label | None) -> dict[str, Any]:
    return {name: _numbers(by_owner[label]) for name, by_owner in found.items() if label in by_owner}


def _numbers(found: Success) -> dict[str, Any]:
    return {
        "members": found.members,
        "others": found.others,
        "unknown": found.unknown,
        "targets": found.targets,
        "auc": [_number(value) for value in (found.auc, found.auc_low, found.auc_high)],
        "tpr": {f"{rate:g}": [_number(value) for value in values] for rate, values in found.at.items()},
    }


def _bound(bound: Bound) -> dict[str, Any]:
    return {
        "epsilon": _number(bound.epsilon),
        "confidence": bound.confidence,
        "route": bound.route,
        "plain": _number(bound.plain),
        "contradicts": bound.contradicts,
        "evidence": bound.evidence,
    }


def _number(value: float) -> float | None:
    """Return a number as JSON can hold it."""
    return float(value) if math.isfinite(value) else None
