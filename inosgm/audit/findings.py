"""The findings of an audit: attacks and lower bounds beside the promises, owner by owner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.bounds import Bound
from inosgm.audit.claims import Claim
from inosgm.audit.differences import Difference, differences
from inosgm.audit.mechanism_audit import MechanismAudit
from inosgm.audit.owner_bounds import bounds_of
from inosgm.audit.pool import Shadows
from inosgm.audit.roc import Success, successes
from inosgm.owners import Label

Successes = tuple[tuple[Label | None, Success], ...]

MOST_COMPARED = 10
"""Largest number of owners that are compared in pairs: 45 pairs fit a table."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The promise to an owner, and the bounds of an audit.

    Attributes:
        claim: The promise.
        bounds: Lower bounds on epsilon at the claim's delta, by their source.
        mechanism: The audit of the mechanism itself, if there is one.
    """

    claim: Claim
    bounds: Mapping[str, Bound]
    mechanism: MechanismAudit | None

    @property
    def contradicted(self) -> tuple[str, ...]:
        """The names of the bounds that contradict the promise."""
        return tuple(name for name, bound in self.bounds.items() if bound.contradicts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """The success of attacks, and the bounds that follow; `Audit` documents the arguments."""

    shadows: Shadows
    claims: tuple[Claim, ...]
    attacks: tuple[str, ...] = tuple(ATTACKS)
    targets: tuple[int, ...] | None = None
    mechanisms: tuple[MechanismAudit, ...] = ()
    canaries: int = 0
    confidence: float = 0.95
    _found: dict[str, Successes] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        _require_attacks(self.attacks)
        self.shadows.rows_of(self.targets)
        if tuple(claim.owner for claim in self.claims) != self.shadows.labels:
            raise ValueError(f"claims must be about the owners {_validate.some(self.shadows.labels)}, in their order")

    @property
    def about(self) -> str:
        """The number of shadow models, and of canaries, as text."""
        models = f"{self.shadows.count} of {self.shadows.asked} shadow models"
        standing_out = {0: "", 1: ", the canary of every owner"}
        return models + standing_out.get(self.canaries, f", the {self.canaries} canaries of every owner")

    def successes(self, attack: str | None = None) -> Successes:
        """Return the success of an attack (default: the first) for each owner and, last, for everyone: None."""
        name = self.attacks[0] if attack is None else attack
        _require_attacks((name,))
        if name not in self._found:
            self._found[name] = successes(self.shadows, ATTACKS[name], self.targets, confidence=self.confidence)
        return self._found[name]

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The promise and the bounds of every owner."""
        error = (1 - self.confidence) / (2 if self.mechanisms else 1)
        from_shadows = {row.owner: row for row in bounds_of(self.shadows, self.claims, 1 - error)}
        from_mechanism = {audit.owner: audit for audit in self.mechanisms}
        verdicts = []
        for claim in self.claims:
            bounds = _strongest(from_mechanism.get(claim.owner))
            if row := from_shadows.get(claim.owner):
                bounds |= {"one run": row.one_run, "many runs": row.many_runs}
            verdicts.append(Verdict(claim=claim, bounds=bounds, mechanism=from_mechanism.get(claim.owner)))
        return tuple(verdicts)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The differences between members of two owners under the first attack, for all pairs; none for many owners."""
        if np.unique(self.shadows.owners).size > MOST_COMPARED:
            return ()
        return differences(self.shadows, ATTACKS[self.attacks[0]], self.targets)

    @property
    def contradictions(self) -> list[str]:
        """The promises that do not hold, a line for each bound that contradicts one."""
        return [_contradiction(row.claim, name, row.bounds[name]) for row in self.verdicts for name in row.contradicted]

    def sure(self) -> tuple[float, float]:
        """Return the shares of members and of others whose true class gets more than half of the probability."""
        right, member = self.shadows.scores > 0, self.shadows.members
        return float(right[member].mean()), float(right[~member].mean())


def _require_attacks(names: Sequence[str]) -> None:
    if not names or set(names) - set(ATTACKS):
        raise ValueError(f"attacks must be some of {', '.join(ATTACKS)}, got {', '.join(names) or 'none'}")


def _contradiction(claim: Claim, name: str, bound: Bound) -> str:
    """Return what does not hold; a plan may claim a larger epsilon than its rate, noise and sensitivity have."""
    if bound.epsilon > claim.spent:
        reason = f"epsilon is at least {bound.epsilon:.4g} (bound: {name}), and {claim.spent:.4g} was promised"
    else:
        reason = f"more is seen than rate, noise and sensitivity of the plan allow (bound: {name}; {bound.evidence})"
    return f"owner {claim.owner}: {reason}"


def _strongest(audit: MechanismAudit | None) -> dict[str, Bound]:
    """Return the strongest bound of all canaries, if there is one."""
    bounds = [] if audit is None else [row.bound for row in audit.rows if row.bound is not None]
    return {"mechanism": max(bounds, key=lambda bound: (bound.contradicts, bound.epsilon))} if bounds else {}
