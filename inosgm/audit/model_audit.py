"""The audit of a model that exists: what its scores say about who was in its training data, owner by owner."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.text import columns
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.bounds import Bound
from inosgm.audit.claims import Claim
from inosgm.audit.one_run import one_run_bound
from inosgm.audit.pool import Shadows
from inosgm.audit.roc import Success, success
from inosgm.owners import Label

WITH_REFERENCES = ("rmia", "quantile", "bavaria", "online-global", "offline-tail", "loss")
"""The attacks on a model for which there are scores of reference models; the first one makes the bounds."""

ALONE = ("loss",)
"""The attack without references. RMIA with a population alone has the same order, because p(record) is unknown."""

TITLES = ("What was asked", "What was done", "What was found", "What this does not show")


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelAudit:
    """The success of attacks on one model, by owner, and bounds where membership was randomised. NOT PRIVATE.

    Attributes:
        successes: The success of each attack by owner; None is everyone.
        bounds: Lower bounds on epsilon by owner, all at once with `confidence`; empty if membership was not randomised.
        epsilon: The claimed epsilons by owner.
        delta: The delta of bounds and claims.
        references: The number of reference models.
        randomised: Whether a fair coin decided about each record's membership.
        confidence: The confidence of each interval, and of all bounds at once.
    """

    successes: Mapping[str, Mapping[Label | None, Success]]
    bounds: Mapping[Label, Bound]
    epsilon: Mapping[Label, float]
    delta: float
    references: int
    randomised: bool
    confidence: float

    @property
    def contradictions(self) -> list[str]:
        """The claims that do not hold, a line for each."""
        return [
            f"owner {owner}: epsilon is at least {bound.epsilon:.4g}, and {self.epsilon[owner]:.4g} was promised"
            for owner, bound in self.bounds.items()
            if bound.contradicts
        ]

    def sections(self) -> dict[str, list[str]]:
        """Return paragraphs for a reader who did not make the audit, by the titles of `TITLES`."""
        everyone = next(iter(self.successes.values()))[None]
        claimed = ", ".join(f"{owner}: {value:g}" for owner, value in self.epsilon.items())
        randomised = (
            "A fair coin decided for each record whether it was a member, independently of all others."
            if self.randomised
            else "Members and non-members were not assigned at random."
        )
        asked = "Can somebody who sees the model tell which records it was trained on, and does this differ by owner?"
        promised = f" Promised epsilons at delta {self.delta:g}: {claimed}." if claimed else " No epsilon was promised."
        done = (
            f"{len(self.successes)} attacks ranked {everyone.members} members and {everyone.others} non-members by "
            f"what the model says about each, with {self.references or 'no'} reference models. {randomised}"
        )
        return dict(zip(TITLES, ([asked + promised], [done], self._found(), self._not_shown()), strict=True))

    def page(self) -> str:
        """Return the report as a Markdown page."""
        parts = ["# Audit of a model", "", "NOT PRIVATE: this page is as secret as the records."]
        for title, paragraphs in self.sections().items():
            parts += ["", f"## {title}"]
            for paragraph in paragraphs:
                table = "\n" in paragraph
                parts += ["", f"```text\n{paragraph}\n```" if table else paragraph]
        return "\n".join(parts) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, for JSON."""
        return {
            "references": self.references,
            "randomised": self.randomised,
            "confidence": self.confidence,
            "delta": self.delta,
            "attacks": {
                name: [
                    {
                        "owner": owner,
                        "auc": None if math.isnan(found.auc) else [found.auc, found.auc_low, found.auc_high],
                        "tpr": {f"{rate:g}": list(values) for rate, values in found.at.items()}
                        if not math.isnan(found.auc)
                        else None,
                    }
                    for owner, found in by_owner.items()
                ]
                for name, by_owner in self.successes.items()
            },
            "bounds": {str(owner): bound.epsilon for owner, bound in self.bounds.items()},
            "contradictions": self.contradictions,
        }

    def _found(self) -> list[str]:
        rows = []
        for name, by_owner in self.successes.items():
            for owner, found in by_owner.items():
                area = (
                    "-" if math.isnan(found.auc) else f"{found.auc:.3f} ({found.auc_low:.3f} to {found.auc_high:.3f})"
                )
                rates = ["-"] * 3 if math.isnan(found.auc) else [f"{100 * r.tpr:.3g} %" for r in found.at.values()]
                rows.append([name, "everyone" if owner is None else str(owner), area, *rates])
        header = ["attack", "owner", "AUC", "TPR at FPR 0.1 %", "at 1 %", "at 10 %"]
        paragraphs = ["\n".join(columns(header, rows))]
        if self.bounds:
            cells = [
                [
                    str(owner),
                    f"{bound.epsilon:.3f}",
                    f"{self.epsilon[owner]:g}" if owner in self.epsilon else "-",
                    "CONTRADICTED" if bound.contradicts else "not contradicted",
                ]
                for owner, bound in self.bounds.items()
            ]
            paragraphs.append("\n".join(columns(["owner", "epsilon at least", "promised", "verdict"], cells)))
        return [*paragraphs, f"Intervals hold with {100 * self.confidence:g} % each, all bounds together with as much."]

    def _not_shown(self) -> list[str]:
        paragraphs = [
            "A low AUC does not prove privacy: a better attack, or another record, may show more. An epsilon is a "
            "promise about every record and every attack, and no audit can confirm it."
        ]
        if not self.randomised:
            paragraphs.append(
                "No bound on epsilon is given, because members were not chosen by coin. If members and non-members "
                "differ in any other way (time, source, class), an attack may recognise that difference instead of "
                "membership: an AUC above 0.5 is then no proof of a leak, and one near 0.5 is no proof of its absence."
            )
        return paragraphs


def audit_model(
    scores: Any,
    members: Any,
    *,
    owners: Any = None,
    references: Any = None,
    reference_members: Any = None,
    randomised: bool = False,
    epsilon: Mapping[Label, float] | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
) -> ModelAudit:
    """Attack a model that exists with what it says about records, owner by owner. NOT PRIVATE.

    **Guarantee.** With `randomised`, a model that keeps its promises is contradicted with probability 1 - confidence at
    most, all owners together, if a fair coin decided about each record, independently of everything else. Otherwise
    there are no bounds, because nothing of the kind can be concluded.

    Args:
        scores: One number per record, larger for a more confident model: log odds of the true class
            (`inosgm.audit.confidence.confidences`), or minus the loss.
        members: Whether each record was in the training data.
        owners: The label of each record's owner; one owner, "all", if not given.
        references: Scores of reference models for the same records, a row for each model.
        reference_members: The records that each reference model was trained on, in the same form; none if not given.
        randomised: Whether a fair coin of its own decided about each record.
        epsilon: The promised epsilon of each owner, if there is a promise.
        delta: The delta of promises and bounds.
        confidence: The confidence of each interval, and of all bounds at once.

    Raises:
        ValueError: for arrays that do not fit together, numbers out of range, and unknown owners of promises.

    >>> generator = np.random.default_rng(0)
    >>> members = generator.random(2000) < 0.5
    >>> audit = audit_model(generator.normal(size=2000) + 3 * members, members, randomised=True, epsilon={"all": 1})
    >>> audit.contradictions[0][:29]
    'owner all: epsilon is at leas'
    """
    level = _validate.number("confidence", confidence, above=0)
    if level >= 1:
        raise ValueError(f"confidence must be below 1, got {confidence!r}: 0.95, say")
    at = _validate.number("delta", delta, above=0, most=1)
    values = np.asarray(scores, dtype=np.float32)
    inside = _truth("members", members, values.shape)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"scores must be one number per record: got shape {values.shape}")
    if inside.all() or not inside.any():
        raise ValueError(f"members must hold members and non-members: got {int(inside.sum())} of {inside.size} members")
    of_record = np.full(values.size, "all") if owners is None else np.asarray(owners)
    if of_record.shape != values.shape:
        raise ValueError(f"owners must be one label per record, {values.size}: got shape {of_record.shape}")
    labels, places = np.unique(of_record, return_inverse=True)
    known: tuple[Label, ...] = tuple(labels.tolist())
    promised = {owner: _validate.number("epsilon", value, least=0) for owner, value in (epsilon or {}).items()}
    unknown = [owner for owner in promised if owner not in known]
    if unknown:
        raise ValueError(f"epsilon must be of owners with records ({_validate.some(known)}), got {unknown[0]!r}")
    shadows = _references(references, reference_members, values.size, places, known)
    names = WITH_REFERENCES if shadows.count else ALONE
    statistics = {name: ATTACKS[name].against(shadows, values) for name in names}
    own = {label: places == place for place, label in enumerate(known)}
    groups: list[tuple[Label | None, np.ndarray]] = [*own.items(), (None, np.ones(values.size, bool))]
    found = {
        name: {label: success(values_of[None, group], inside[None, group], confidence=level) for label, group in groups}
        for name, values_of in statistics.items()
    }
    bounds: dict[Label, Bound] = {}
    for label, group in own.items() if randomised else ():
        claim = Claim(
            owner=label,
            granted=promised.get(label),
            spent=promised.get(label, math.inf),
            delta=at,
            sample_rate=1.0,
            noise_multiplier=1.0,
            steps=1,
        )
        each = 1 - (1 - level) / len(own)
        bounds[label] = one_run_bound(statistics[names[0]][group], inside[group], claim, each)
    return ModelAudit(
        successes=found,
        bounds=bounds,
        epsilon=promised,
        delta=at,
        references=shadows.count,
        randomised=randomised,
        confidence=level,
    )


def _truth(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return truth values of a shape."""
    truth = np.asarray(values)
    if truth.dtype != np.bool_:
        if truth.dtype.kind not in "iuf" or not np.isin(truth, (0, 1)).all():
            raise ValueError(f"{name} must be true or false (or 1 or 0), got {truth.dtype}")
        truth = truth.astype(bool)
    if truth.shape != shape:
        raise ValueError(f"{name} must have the shape of the scores, {shape}: got {truth.shape}")
    return truth


def _references(references: Any, members: Any, records: int, owners: np.ndarray, labels: tuple[Label, ...]) -> Shadows:
    """Return the reference models, or none."""
    scores = np.zeros((0, records), np.float32) if references is None else np.asarray(references, np.float32)
    if scores.ndim != 2 or scores.shape[1] != records:
        raise ValueError(f"references must have a row per model and {records} columns: got shape {scores.shape}")
    inside = np.zeros(scores.shape, bool) if members is None else _truth("reference_members", members, scores.shape)
    return Shadows(scores=scores, members=inside, owners=owners, labels=labels, asked=len(scores))
