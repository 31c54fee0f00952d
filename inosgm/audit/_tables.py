"""What an audit has found, for people and for JSON."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from inosgm.runs.tables import MOST, columns

if TYPE_CHECKING:
    from inosgm.audit.report import Audit, Verdict
    from inosgm.audit.roc import Success

BOUNDS = ("mechanism", "one run", "many runs")
"""Where lower bounds come from, in the order in which they are shown."""

MOST_ATTACKED = 6
"""Up to how many owners the comparison of attacks has a column for each."""


def table(audit: "Audit") -> str:
    """Return a table with a row for each owner; of very many, those on whom the attack does best are shown."""
    found = audit.successes()
    ranked = np.argsort([-np.nan_to_num(success.auc) for _, success in found[:-1]], kind="stable")
    rows = [
        [str(audit.claims[place].owner), *_promise(audit.verdicts[place]), *_success(found[place][1])]
        + _bounds(audit.verdicts[place])
        for place in sorted(ranked[:MOST].tolist())
    ]
    rows.append(["everyone", "", "", *_success(found[-1][1]), "", "", "", ""])
    rates = [f"{100 * rate:g} %" for rate in found[-1][1].at]
    header = ["owner", "granted", "spent", "records", "AUC", f"TPR at {rates[0]}", *rates[1:], *BOUNDS, "verdict"]
    hidden = len(audit.claims) - MOST
    return "\n".join(
        [
            _title(audit),
            *columns(header, rows),
            *[f"({hidden} owners on whom the attack does worse are not shown)"] * (hidden > 0),
            f"AUC and TPR (at so many false alarms) are those of the attack {audit.attacks[0]}, each interval with "
            f"{_percent(audit.confidence)} confidence;",
            f"{', '.join(BOUNDS)}: epsilon is at least so large, all at once with {_percent(audit.confidence)} "
            "confidence",
            *_by_attack(audit),
        ]
    )


def to_dict(audit: "Audit") -> dict[str, Any]:
    """Return everything but the curves."""
    found = {name: audit.successes(name) for name in audit.attacks}
    sure = audit.sure()
    return {
        "shadows": audit.shadows.count,
        "asked": audit.shadows.asked,
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
                "attacks": {name: _numbers(found[name][place][1]) for name in found},
                "bounds": {name: _number(epsilon) for name, epsilon in one.bounds.items()},
                "contradicted": list(one.contradicted),
            }
            for place, one in enumerate(audit.verdicts)
        ],
        "everyone": {"attacks": {name: _numbers(found[name][-1][1]) for name in found}},
    }


def _title(audit: "Audit") -> str:
    sure = audit.sure()
    share = f"; sure (p > 1/2) of {sure[0]:.3f} of members, {sure[1]:.3f} of others" if max(sure) > 0 else ""
    targets = "each attacked with the others" if audit.targets is None else f"{len(audit.targets)} attacked"
    return f"{audit.about}, {targets}{share}"


def _promise(one: "Verdict") -> list[str]:
    return ["-" if epsilon is None else f"{epsilon:.4g}" for epsilon in (one.claim.granted, one.claim.spent)]


def _success(found: "Success") -> list[str]:
    records = str(found.records)
    if not (found.members and found.others):
        return [records, "-", *["-"] * len(found.at)]
    rates = [f"{100 * rate:.3g} %" for rate, _, _ in found.at.values()]
    return [records, f"{found.auc:.3f} ({found.auc_low:.3f} to {found.auc_high:.3f})", *rates]


def _bounds(one: "Verdict") -> list[str]:
    shown = [f"{one.bounds[name]:.3f}" if name in one.bounds else "-" for name in BOUNDS]
    promised = "not contradicted" if math.isfinite(one.claim.spent) else "nothing promised"
    return [*shown, "CONTRADICTED" if one.contradicted else promised]


def _by_attack(audit: "Audit") -> list[str]:
    """Return the areas under the curves of all attacks, if there are several."""
    if len(audit.attacks) == 1:
        return []
    few = len(audit.claims) <= MOST_ATTACKED
    header = ["AUC by attack", *(str(claim.owner) for claim in audit.claims if few), "everyone"]
    rows = [
        [name, *(f"{success.auc:.3f}" for label, success in audit.successes(name) if few or label is None)]
        for name in audit.attacks
    ]
    return ["", *columns(header, rows)]


def _numbers(found: "Success") -> dict[str, Any]:
    return {
        "members": found.members,
        "others": found.others,
        "targets": found.targets,
        "auc": [_number(value) for value in (found.auc, found.auc_low, found.auc_high)],
        "tpr": {f"{rate:g}": [_number(value) for value in values] for rate, values in found.at.items()},
    }


def _number(value: float) -> float | None:
    """Return a number as JSON can hold it."""
    return float(value) if math.isfinite(value) else None


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
