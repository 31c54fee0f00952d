"""The findings of an audit as text tables and as JSON."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from inosgm._internal.text import MAX_ROWS, columns
from inosgm.audit.bounds import Bound
from inosgm.audit.findings import Findings, Verdict
from inosgm.audit.parquet_tables import BOUND_FIELDS
from inosgm.audit.roc import LOOKED_AT, Success
from inosgm.audit.secret_files import WARNING
from inosgm.owners import Label

BOUNDS = ("mechanism", "one run", "many runs")
"""The sources of lower bounds, in the order in which they are shown."""

MOST_COLUMNS = 6
"""Largest number of owners for which the comparison of attacks has a column each: more do not fit a screen."""


def table(audit: Findings) -> str:
    """Return tables of epsilons and of the success of attacks, with a row for each owner.

    If there are very many owners, those with the most successful attack are shown, and all contradicted promises.
    """
    successes = dict(audit.successes())
    ranked = sorted(
        audit.verdicts, key=lambda verdict: (not verdict.contradicted, -_area(successes.get(verdict.claim.owner)))
    )
    best = {verdict.claim.owner for verdict in ranked[:MAX_ROWS]}
    shown = [verdict for verdict in audit.verdicts if verdict.claim.owner in best or verdict.contradicted]
    hidden = len(audit.verdicts) - len(shown)
    rates = [f"{100 * rate:g} %" for rate in LOOKED_AT]
    confidence, at = f"{100 * audit.confidence:g} %", _delta(audit)
    lines = [
        _title(audit),
        "",
        *columns(
            ["epsilon of", "granted", "spent", *BOUNDS, "sensitivity", "verdict"],
            [[str(verdict.claim.owner), *_promise(verdict), *_bounds(verdict)] for verdict in shown],
        ),
        f"({', '.join(BOUNDS)}, sensitivity: at least so much{at}, all at once with {confidence} confidence)",
        *_not_looked_at(audit),
        "",
        *columns(
            ["attack on", "records", "AUC", f"TPR at FPR {rates[0]}", *rates[1:]],
            [
                *([str(verdict.claim.owner), *_success(successes.get(verdict.claim.owner))] for verdict in shown),
                ["everyone", *_success(successes[None])],
            ],
        ),
        f"({audit.attacks[0]}, on {_targets(audit)}; each interval with {confidence} confidence)",
        *_unknown(audit),
        *[f"({hidden} owners on whom the attack does worse are not shown)"] * (hidden > 0),
    ]
    return "\n".join([*lines, *_by_attack(audit), *_differences(audit), "", WARNING])


def to_dict(audit: Findings) -> dict[str, Any]:
    """Return all findings except the curves."""
    successes = {name: dict(audit.successes(name)) for name in audit.attacks}
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
                "owner": verdict.claim.owner,
                "granted": verdict.claim.granted,
                "spent": _number(verdict.claim.spent),
                "delta": verdict.claim.delta,
                "attacks": _by_name(successes, verdict.claim.owner),
                "bounds": {name: _fields(bound) for name, bound in verdict.bounds.items()},
                "sensitivity": None if verdict.mechanism is None else verdict.mechanism.sensitivity,
                "sensitivity_promised": None if verdict.mechanism is None else verdict.mechanism.promised,
                "contradicted": list(verdict.contradicted),
            }
            for verdict in audit.verdicts
        ],
        "everyone": {"attacks": _by_name(successes, None)},
    }


def _title(audit: Findings) -> str:
    members, others = audit.sure()
    share = f": the true class gets p > 1/2 in {members:.1%} of members, {others:.1%} of others".replace("%", " %")
    return audit.about + (share if max(members, others) > 0 and not audit.canaries else "")


def _targets(audit: Findings) -> str:
    """Return the names of the attacked models."""
    if audit.targets is None:
        return "each shadow model in turn"
    few = len(audit.targets) <= MOST_COLUMNS
    named = f"shadow models {', '.join(map(str, audit.targets))}" if few else f"{len(audit.targets)} shadow models"
    return f"shadow model {audit.targets[0]}" if len(audit.targets) == 1 else named


def _delta(audit: Findings) -> str:
    """Return the delta of all epsilons as text, if it is the same for all."""
    deltas = {claim.delta for claim in audit.claims}
    return f" at delta {deltas.pop():g}" if len(deltas) == 1 else ""


def _not_looked_at(audit: Findings) -> list[str]:
    promised = any(math.isfinite(claim.spent) for claim in audit.claims)
    return ["(the mechanism was not looked at, or not with this confidence: --runs)"] * (
        promised and not audit.mechanisms
    )


def _unknown(audit: Findings) -> list[str]:
    """Return a line with the share of points for which the first attack has no statistic, and why."""
    name, (_, everyone) = audit.attacks[0], audit.successes()[-1]
    share = everyone.unknown / max(everyone.members + everyone.others, 1)
    if share == 1 and name != "loss" and np.isfinite(audit.shadows.scores).any():
        return [f"({name} needs more shadow models: loss does without)"]
    why = "models that diverged, or too few shadow models"
    return [f"({100 * share:.3g} % of points have no statistic: {why})"] * (share > 0)


def _promise(verdict: Verdict) -> list[str]:
    return ["-" if epsilon is None else f"{epsilon:.4g}" for epsilon in (verdict.claim.granted, verdict.claim.spent)]


def _area(success: Success | None) -> float:
    """Return the area under a curve, or -1 if there is none."""
    return -1.0 if success is None or math.isnan(success.auc) else success.auc


def _success(success: Success | None) -> list[str]:
    records = "0" if success is None else str(success.records)
    if success is None or math.isnan(success.auc):
        return [records, "-", *["-"] * len(LOOKED_AT)]
    rates = [f"{100 * rate.tpr:.3g} %" for rate in success.at.values()]
    return [records, f"{success.auc:.3f} ({success.auc_low:.3f} to {success.auc_high:.3f})", *rates]


def _bounds(verdict: Verdict) -> list[str]:
    shown = [f"{verdict.bounds[name].epsilon:.3f}" if name in verdict.bounds else "-" for name in BOUNDS]
    promised = "not contradicted" if math.isfinite(verdict.claim.spent) else "nothing promised"
    seen = verdict.mechanism
    sensitivity = "-" if seen is None else f"{seen.sensitivity:.3g} of {seen.promised:.3g}"
    return [*shown, sensitivity, "CONTRADICTED" if verdict.contradicted else promised]


def _by_attack(audit: Findings) -> list[str]:
    """Return the areas under the curves of all attacks, if there are several."""
    if len(audit.attacks) == 1:
        return []
    few = len(audit.claims) <= MOST_COLUMNS
    labels = [*(claim.owner for claim in audit.claims if few), None]
    header = ["AUC by attack", *(str(label) for label in labels[:-1]), "everyone"]
    rows = [
        [name, *("-" if (area := _area(successes.get(label))) < 0 else f"{area:.3f}" for label in labels)]
        for name, successes in ((name, dict(audit.successes(name))) for name in audit.attacks)
    ]
    return ["", *columns(header, rows)]


def _differences(audit: Findings) -> list[str]:
    """Return a table of t-tests between pairs of owners, if there are any."""
    rows = []
    for pair in audit.differences:
        known = np.isfinite(pair.t)
        if known.any():
            t, p = pair.t[known], pair.p[known]
            rows.append(
                [
                    f"{pair.first}, {pair.second}",
                    f"{np.median(t):.3g}",
                    f"{np.median(p):.2g}",
                    f"{100 * (p < 0.05).mean():.3g} %",
                ]
            )
    header = ["members of two owners", "median t", "median p", "p < 0.05"]
    note = f"({audit.attacks[0]}, Student's t-test for each target; share of targets with p < 0.05)"
    return ["", *columns(header, rows), note] if rows else []


def _by_name(successes: Mapping[str, Mapping[Label | None, Success]], label: Label | None) -> dict[str, Any]:
    return {name: _numbers(by_owner[label]) for name, by_owner in successes.items() if label in by_owner}


def _numbers(success: Success) -> dict[str, Any]:
    return {
        "members": success.members,
        "others": success.others,
        "unknown": success.unknown,
        "targets": success.targets,
        "auc": [_number(value) for value in (success.auc, success.auc_low, success.auc_high)],
        "tpr": {f"{rate:g}": [_number(value) for value in values] for rate, values in success.at.items()},
    }


def _fields(bound: Bound) -> dict[str, Any]:
    fields = {name: getattr(bound, name) for name in BOUND_FIELDS}
    return fields | {name: _number(fields[name]) for name in ("epsilon", "plain")}


def _number(value: float) -> float | None:
    """Return a number, or None for infinities and NaN, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
