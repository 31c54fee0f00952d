"""What an audit has found: attacks and lower bounds beside what was promised, owner by owner."""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO, Self

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.audit import _mechanisms, _parquet, _tables
from inosgm.audit._secret import write_secret
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.bounds import Bound
from inosgm.audit.claims import Claim, claims_of
from inosgm.audit.differences import Difference, differences
from inosgm.audit.mechanism_audit import MechanismAudit
from inosgm.audit.owner_bounds import bounds_of
from inosgm.audit.pool import Shadows
from inosgm.audit.roc import Success, successes
from inosgm.audit.study import stored
from inosgm.jobs import Store
from inosgm.owners import Label

Successes = tuple[tuple[Label | None, Success], ...]

FILES = ("audit.parquet", "roc.parquet", "bounds.parquet", "differences.parquet", "roc.svg")
"""What `Audit.write` puts into a store, beside what it knows about the mechanism."""

COMPARED = 10
"""Up to so many owners are compared in pairs."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was promised to an owner, and what an audit knows about it.

    Attributes:
        claim: The promise.
        bounds: Lower bounds on epsilon at the claim's delta, by where they come from.
        mechanism: What the mechanism itself was seen to do, if it was looked at.
    """

    claim: Claim
    bounds: Mapping[str, Bound]
    mechanism: MechanismAudit | None

    @property
    def contradicted(self) -> tuple[str, ...]:
        """Which bounds contradict the promise."""
        return tuple(name for name, bound in self.bounds.items() if bound.contradicts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """What attacks achieve against a method, beside what was promised to each owner.

    NOT PRIVATE: everything here is as secret as the records.

    Args:
        shadows: The scores that attacks look at.
        claims: What was promised to each owner.
        attacks: Those that are reported, by their names in `ATTACKS`; tables and figures show the first in full.
        targets: Which shadow models are attacked; every one in turn, with the others, if not given.
        mechanisms: What audits of the mechanism itself have found, for some owners, all or none.
        canaries: How many records of every owner were made to stand out; if any, `shadows` are about them alone.
        confidence: All lower bounds hold at once with this probability, if `mechanisms` were made with
            `mechanism_confidence`. Each interval around an attack's success does by itself.

    Raises:
        ValueError: for attacks and targets that there are not, and claims about others than the owners.
    """

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
        self.shadows.places(self.targets)
        if tuple(claim.owner for claim in self.claims) != self.shadows.labels:
            raise ValueError(f"claims must be about the owners {_validate.some(self.shadows.labels)}, in their order")

    @classmethod
    def of(cls, store: Store | str | os.PathLike[str], shadows: int | None = None, **options: Any) -> Self:
        """Read what a store holds of an audit; nothing is trained, and neither data nor the method's code are needed.

        Audits of the mechanism that were written there are in it, if they are as sure as the confidence takes.

        Args:
            store: Where it is.
            shadows: How many shadow models are wanted; all that were ever asked for if not given.
            **options: What else `Audit` takes; by default the confidence is that of the audit that was written.

        Raises:
            FileNotFoundError: for a store of something else.
            StoreDamaged: for a result that is not what was written.
        """
        store = store if isinstance(store, Store) else Store(store)
        found = stored(store, shadows)
        claims = claims_of(found.plan)
        mechanisms, confidence = _mechanisms.kept(store, claims)
        asked = options.setdefault("confidence", cls.confidence if confidence is None else confidence)
        sure = [one for one in mechanisms if one.confidence >= mechanism_confidence(asked, len(mechanisms))]
        options.setdefault("mechanisms", tuple(sure))
        return cls(shadows=found.shadows, claims=claims, canaries=found.canaries, **options)

    @property
    def about(self) -> str:
        """Say how many shadow models are in it, and whether it is about canaries."""
        models = f"{self.shadows.count} of {self.shadows.asked} shadow models"
        standing_out = {0: "", 1: ", the canary of every owner"}
        return models + standing_out.get(self.canaries, f", the {self.canaries} canaries of every owner")

    def successes(self, attack: str | None = None) -> Successes:
        """Return how well an attack, else the first, does on the records of each owner and, last, of everyone: None."""
        name = self.attacks[0] if attack is None else attack
        _require_attacks((name,))
        if name not in self._found:
            self._found[name] = successes(self.shadows, ATTACKS[name], self.targets, confidence=self.confidence)
        return self._found[name]

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What is known about every owner's epsilon."""
        error = (1 - self.confidence) / (2 if self.mechanisms else 1)
        from_shadows = {row.owner: row for row in bounds_of(self.shadows, self.claims, 1 - error)}
        from_mechanism = {found.owner: found for found in self.mechanisms}
        verdicts = []
        for claim in self.claims:
            bounds = _strongest(from_mechanism.get(claim.owner))
            if row := from_shadows.get(claim.owner):
                bounds |= {"one run": row.one_run, "many runs": row.many_runs}
            verdicts.append(Verdict(claim=claim, bounds=bounds, mechanism=from_mechanism.get(claim.owner)))
        return tuple(verdicts)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """How the members of two owners differ under the first attack, for all pairs; none if there are many owners."""
        if np.unique(self.shadows.owners).size > COMPARED:
            return ()
        return differences(self.shadows, ATTACKS[self.attacks[0]], self.targets)

    @property
    def contradictions(self) -> list[str]:
        """Which promises do not hold, a line for each bound that says so."""
        return [_contradiction(one.claim, name, one.bounds[name]) for one in self.verdicts for name in one.contradicted]

    def sure(self) -> tuple[float, float]:
        """Return for which shares of members and of others the true class gets more than half of the probability."""
        right, member = self.shadows.scores > 0, self.shadows.members
        return float(right[member].mean()), float(right[~member].mean())

    def table(self) -> str:
        """Return what there is to know about each owner, for people."""
        return _tables.table(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it but the curves, for JSON."""
        return _tables.to_dict(self)

    def to_parquet(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write a Parquet file with a row for each attack and owner: how well the attack does, and what was promised.

        Args:
            file: Its name, for its owner's eyes only, or a file that is open for writing.
        """
        write_secret(file, _parquet.numbers(self))

    def figure(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Draw true against false positive rates of the first attack, a line for each owner.

        Args:
            file: Its name, whose ending says the format, or a file that is open for writing, which becomes SVG.
        """
        from inosgm.reports.roc import draw

        draw({"": self}, file, self.attacks[0])

    def write(self, store: Store) -> None:
        """Write FILES into a store: numbers, curves, bounds and t-tests as Parquet, and the figure.

        What is known about the mechanism is written, too, so that `Audit.of` knows it.
        """
        stream = io.BytesIO()
        self.figure(stream)
        tables = (_parquet.numbers, _parquet.curves, _parquet.bounds, _parquet.differences)
        if self.mechanisms:
            _mechanisms.keep(store, self.mechanisms, self.confidence)
        for name, content in zip(FILES, [*(make(self) for make in tables), stream.getvalue()], strict=True):
            store.put(name, content, secret=True)


def mechanism_confidence(confidence: float, count: int) -> float:
    """Return the confidence that so many audits of the mechanism need for all bounds of an audit to hold at once.

    They get half of the error; the bounds from shadow models get the other half.
    """
    return 1 - (1 - confidence) / (2 * count)


def _require_attacks(names: Sequence[str]) -> None:
    if not names or set(names) - set(ATTACKS):
        raise ValueError(f"attacks must be some of {', '.join(ATTACKS)}, got {', '.join(names) or 'none'}")


def _contradiction(claim: Claim, name: str, bound: Bound) -> str:
    """Say what does not hold; a plan may claim a larger epsilon than its rate, noise and sensitivity have."""
    if bound.epsilon > claim.spent:
        found = f"epsilon is at least {bound.epsilon:.4g} (bound: {name}), and {claim.spent:.4g} was promised"
    else:
        found = f"more is seen than rate, noise and sensitivity of the plan allow (bound: {name}; {bound.evidence})"
    return f"owner {claim.owner}: {found}"


def _strongest(found: MechanismAudit | None) -> dict[str, Bound]:
    """Return what the canary says that says most, if any says anything."""
    bounds = [] if found is None else [row.bound for row in found.rows if row.bound is not None]
    return {"mechanism": max(bounds, key=lambda bound: (bound.contradicts, bound.epsilon))} if bounds else {}
