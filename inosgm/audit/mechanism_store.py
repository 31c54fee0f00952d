"""Results of audits of the mechanism as a document of a store, so that later commands reuse them."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple
from typing import Any

from inosgm.audit.bounds import Bound
from inosgm.audit.claims import Claim
from inosgm.audit.mechanism_audit import CanaryBound, MechanismAudit
from inosgm.jobs import Store

NAME = "mechanism.json"


def keep(store: Store, audits: Sequence[MechanismAudit], confidence: float) -> None:
    """Write audits of the mechanism, and the confidence of the whole audit that they are a part of.

    Stored audits of the same promises that have more runs, and at least the same confidence, are not replaced.
    """
    known, _ = kept(store, [one.claim for one in audits])
    more = known and min(one.runs for one in known) > max(one.runs for one in audits)
    if more and min(one.confidence for one in known) >= max(one.confidence for one in audits):
        return
    content = {"confidence": confidence, "audits": [asdict(one) for one in audits]}
    store.put(NAME, json.dumps(content).encode(), secret=True)


def kept(store: Store, claims: Sequence[Claim]) -> tuple[tuple[MechanismAudit, ...], float | None]:
    """Return the audits that `keep` wrote about these promises, and their confidence; none if they are about others."""
    try:
        content = json.loads(store.get(NAME))
    except FileNotFoundError:
        return (), None
    audits = tuple(map(_audit, content["audits"]))
    known = {claim.owner: claim for claim in claims}
    same = all(one.claim.owner in known and _same(one.claim, known[one.claim.owner]) for one in audits)
    return (audits, content["confidence"]) if same else ((), None)


def _same(one: Claim, other: Claim) -> bool:
    """Return whether two claims are the same, whichever machine has computed them."""
    # Epsilons are made of FFTs and long sums, whose last bits depend on the processor. A millionth is far above such
    # errors and far below what separates two plans.
    return all(
        math.isclose(here, there, rel_tol=1e-6) if isinstance(here, float) else here == there
        for here, there in zip(astuple(one), astuple(other), strict=True)
    )


def _audit(values: dict[str, Any]) -> MechanismAudit:
    rows = tuple(
        CanaryBound(**{**row, "bound": None if row["bound"] is None else Bound(**row["bound"])})
        for row in values["rows"]
    )
    return MechanismAudit(**{**values, "claim": Claim(**values["claim"]), "rows": rows})
