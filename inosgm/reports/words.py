"""What the numbers say, in plain words: computed, also where a method does not help."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inosgm.audit.report import Verdict
from inosgm.reports.answer_pictures import name_of
from inosgm.reports.contents import Answer, Audited, Contents, Swept
from inosgm.reports.intervals import Interval, interval
from inosgm.reports.tables import listed, signed
from inosgm.reports.trained import Change, Study


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence, how sure it is, and how it is meant.

    Attributes:
        text: The sentence.
        evidence: The interval behind it, if there is one.
        tone: "good", "bad" or "plain".
    """

    text: str
    evidence: str = ""
    tone: str = "plain"


def headline(contents: Contents) -> Sentence:
    """Return the one sentence that a reader should take away: a promise that does not hold comes first."""
    contradicted = [one for one in contents.audits if one.audit.contradictions]
    audits = [_audit(one) for one in contradicted or contents.audits]
    if contradicted:
        return audits[0]
    for study in contents.studies:
        return next(_study(study))
    return next(iter([*audits, *map(_answer, contents.answers), *map(_sweep, contents.sweeps)]))


def sentences(contents: Contents) -> list[Sentence]:
    """Return what else there is to say, the most important first."""
    found: list[Sentence] = []
    for study in contents.studies:
        own = list(_study(study))
        several = len(contents.studies) > 1
        found += [replace(one, text=f"{study.name}: {one.text}") if several else one for one in own]
    found += map(_audit, contents.audits)
    found += map(_answer, contents.answers)
    found += map(_sweep, contents.sweeps)
    first = headline(contents)
    return [one for one in found if not one.text.endswith(first.text)]


def _study(study: Study) -> Iterator[Sentence]:
    """Say who was served how."""
    if study.changes:
        yield _worst(study, study.changes[0])
        yield from _gains(study, study.changes[0])
        yield _everyone(study, study.changes[0])
        for one in study.changes[1:]:
            yield _worst(study, one)
            yield from _gains(study, one)
        if study.owned:
            yield from (slope(study, one) for one in study.changes if one.line is not None)
    else:
        yield _served(study)
    yield _budgets(study)
    waiting = [one for one in study.methods.values() if len(one.seeds) < one.asked]
    if waiting:
        counts = [f"{len(one.seeds)} of {one.asked} with {one.name}" for one in waiting]
        yield Sentence(text=f"Not all runs are done: {listed(counts)}.", tone="bad")


def _worst(study: Study, one: Change) -> Sentence:
    """Say what a method does for whoever is served worst."""
    here, there = (interval(study.worst(method)).value for method in (one.method, one.base))
    method, base = one.method.name, one.base.name
    who = f"the worst-served {study.who}"
    numbers = f"{study.measure} {here:.2f} against {there:.2f}"
    if math.isnan(one.worst.low):
        text = f"With {method}, {who} has {study.measure} {here:.2f}; with {base} it has {there:.2f}."
        return Sentence(text=text, evidence="One run each says little about a difference.")
    if not one.worst.clear:
        text = f"For {who}, {method} and {base} are not told apart: {numbers}, which is within noise."
        return Sentence(text=text, evidence=_sure(one.worst))
    gains = one.worst.value * study.better > 0
    text = f"{method} serves {who} {'better' if gains else 'worse'} than {base} does: {numbers}."
    return Sentence(text=text, evidence=_sure(one.worst), tone="good" if gains else "bad")


def _gains(study: Study, one: Change) -> Iterator[Sentence]:
    """Say who gains and who loses, with intervals that hold for all at once."""
    if all(math.isnan(group.low) for group in one.sure):
        return
    gain: list[object] = []
    lose: list[object] = []
    for label, found in zip(study.groups, one.sure, strict=True):
        if found.clear:
            (gain if found.value * study.better > 0 else lose).append(label)
    count, left = len(study.groups), len(study.groups) - len(gain) - len(lose)
    evidence = f"95 % intervals of all {study.who}s at once"
    if not gain and not lose:
        text = f"Against {one.base.name}, none of {count} {study.who}s clearly gains or loses."
        yield Sentence(text=text, evidence=evidence)
        return
    sides = ((gain, "gains", "gain"), (lose, "loses", "lose"))
    parts = [f"{_named(some, study.who)} clearly {he if len(some) == 1 else they}" for some, he, they in sides if some]
    parts += [f"for {left} of {count} the change is within noise"] * (left > 0)
    tone = "good" if not lose else "bad" if not gain else "plain"
    yield Sentence(text=f"Against {one.base.name}, {'; '.join(parts)}.", evidence=evidence, tone=tone)


def _everyone(study: Study, one: Change) -> Sentence:
    """Say what a method costs everyone together."""
    name = "balanced accuracy" if study.measure == "recall" else "mean loss"
    moved = one.everyone
    verb = "raises" if moved.value > 0 else "lowers"
    text = f"For everyone together, {one.method.name} {verb} the {name} of {one.base.name} by {abs(moved.value):.3f}"
    if math.isnan(moved.low):
        return Sentence(text=f"{text}.", evidence="One run each says little about a difference.")
    if not moved.clear:
        return Sentence(text=f"{text}, which is within noise.", evidence=_sure(moved))
    return Sentence(text=f"{text}.", evidence=_sure(moved), tone="good" if moved.value * study.better > 0 else "bad")


def slope(study: Study, one: Change) -> Sentence:
    """Say how a change hangs on epsilon."""
    what = f"{one.method.name} minus {one.base.name}"
    if one.line is None:
        return Sentence(text=f"{what}: too few budgets differ for a regression line.")
    found = one.line.slope
    evidence = f"Slope {signed(found.value)} per unit of ε, 95 % interval {signed(found.low)} to {signed(found.high)}"
    if not found.clear:
        return Sentence(text=f"{what}: the change does not clearly hang on the budget.", evidence=evidence)
    side = "smaller" if found.value * study.better < 0 else "larger"
    return Sentence(text=f"{what}: the {side} an owner's budget, the better the change.", evidence=evidence)


def _served(study: Study) -> Sentence:
    """Say whom the one method serves best and worst."""
    mean = study.mean(study.focus)
    known = np.flatnonzero(~np.isnan(mean))
    ranked = known[np.argsort(study.better * mean[known], kind="stable")]
    worst, best = (f"{study.who} {study.groups[place]} ({mean[place]:.2f})" for place in (ranked[0], ranked[-1]))
    runs = len(study.focus.seeds)
    over = "In one run" if runs == 1 else f"Over {runs} seeds"
    text = f"{over} of {study.focus.name}, {study.measure} on held-out records is best for {best}, worst for {worst}."
    return Sentence(text=text)


def _budgets(study: Study) -> Sentence:
    """Say whether every owner kept its budget."""
    granted = np.asarray(study.plan.epsilon)
    over = [study.plan.labels[place] for place in np.flatnonzero(study.spent > granted * (1 + 1e-9))]
    if over:
        return Sentence(text=f"More was spent in one run than granted by {_named(over)}.", tone="bad")
    grants = f"ε {granted.min():.3g}" if np.ptp(granted) == 0 else f"ε from {granted.min():.3g} to {granted.max():.3g}"
    count = len(granted)
    every = "The owner kept its budget" if count == 1 else f"All {count} owners kept their budgets"
    return Sentence(text=f"{every} in every run: {grants} granted, and no run has spent more.", tone="good")


def _audit(found: Audited) -> Sentence:
    """Say what an audit knows."""
    verdicts = found.audit.verdicts
    contradicted = [one for one in verdicts if one.contradicted]
    if contradicted:
        return Sentence(
            text=f"The audit of {found.name} contradicts what was promised to {_owners(contradicted)}.", tone="bad"
        )
    top = max(verdicts, key=lambda one: np.nan_to_num(found.bounds[one.claim.owner]))
    bound = max(found.bounds[top.claim.owner], 0.0)
    return Sentence(
        text=f"The audit of {found.name} contradicts no promise: its largest lower bound is ε ≥ {bound:.3g}, for owner "
        f"{top.claim.owner}, of {top.claim.spent:.3g} spent. That is no proof."
    )


def _answer(answer: Answer) -> Sentence:
    """Say what a statistic came to."""
    found, cost = answer.estimate, answer.estimate.cost
    what = name_of(answer)
    paid = ""
    if cost:
        paid = f", for ε from {min(cost.values()):.3g} to {max(cost.values()):.3g}"
    if np.ndim(found.value) == 0:
        return Sentence(text=f"{what}: {found.value:.6g}, with a standard error of {found.standard_error:.2g}{paid}.")
    return Sentence(text=f"{what}: {np.size(found.value)} numbers{paid}.")


def _sweep(swept: Swept) -> Sentence:
    """Say which point did best."""
    best = swept.sweep.ordered()[0]
    text = f"Of {len(swept.sweep.standings)} points of a sweep, {best.point.name} did best."
    return Sentence(text=text, evidence="It was chosen by its results, and looks better than it is.")


def _sure(found: Interval) -> str:
    seeds = f"{found.count} seeds"
    return f"Difference {signed(found.value)}, 95 % interval {signed(found.low)} to {signed(found.high)}, {seeds}"


def _named(labels: Sequence[object], who: str = "owner") -> str:
    return f"{who}{'s' * (len(labels) > 1)} {listed(labels)}"


def _owners(verdicts: Sequence[Verdict]) -> str:
    return _named([one.claim.owner for one in verdicts])
