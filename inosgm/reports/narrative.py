"""Sentences about the results, computed from them, whether a method helps or not."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from inosgm.audit.findings import Verdict
from inosgm.methods.registry import METHODS
from inosgm.reports.contents import Answer, Audited, Contents, Swept, breaches, other_units
from inosgm.reports.intervals import Interval, interval
from inosgm.reports.tables import listed, measured, percent, signed
from inosgm.reports.trained import Change, TrainedStudy


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence with its evidence and its tone.

    Attributes:
        text: The sentence.
        evidence: The interval behind it, if there is one.
        tone: "good", "bad" or "plain".
    """

    text: str
    evidence: str = ""
    tone: str = "plain"


MIN_SEEDS = 4
"""Least number of seeds for which a difference that is not significant is reported as such."""

MAX_METHODS = 4
"""Largest number of methods of which all comparisons are reported; of more, only significant ones."""


def introductions(contents: Contents) -> list[str]:
    """Return an introduction for readers without background, one for each study."""
    return [_introduction(study) for study in contents.studies]


def _introduction(study: TrainedStudy) -> str:
    granted, records = np.asarray(study.plan.epsilon), int(study.plan.sizes.sum())
    if np.ptp(granted) == 0:
        who = f"The {records:,} training records of {study.name} have owners who all grant ε = {granted[0]:.3g}"
        return f"{who}: that is how much a model may show about any one of them, and the less the stricter."
    kinds = {trained.kind: trained.name for trained in study.methods.values()}
    does = [f"{kinds[kind]} {method.glossary}" for kind, method in METHODS.items() if kind in kinds]
    if len(does) > MAX_METHODS:
        does = [f"{len(kinds)} methods do different things with that: see the words below"]
    return (
        f"{len(granted):,} owners hold the {records:,} training records of {study.name}. Each has said how much a "
        f"model may show about any one of its records: its ε, from {granted.min():.3g}, which is strict, to "
        f"{granted.max():.3g}. {'; '.join(does)}."
    )


def headline(contents: Contents) -> Sentence:
    """Return the one sentence that a reader should take away: a promise that does not hold comes first."""
    return _told(contents)[0]


def sentences(contents: Contents) -> list[Sentence]:
    """Return all other sentences, the most important first."""
    return _told(contents)[1:]


def _told(contents: Contents) -> list[Sentence]:
    """Return all sentences."""
    several = len(contents.studies) > 1
    broken = [audited for audited in contents.audits if audited.audit.contradictions]
    told = [_audit(audited) for audited in broken]
    if len(contents.answers) > 1 and not (contents.studies or contents.audits):
        told.append(_answers(contents.answers))
    for study in contents.studies:
        told += (Sentence(text=f"{study.name}: {text}.", tone="bad") for text in breaches(study))
    for study in contents.studies:
        told += (
            replace(sentence, text=f"{study.name}: {sentence.text}") if several else sentence
            for sentence in _study(study)
        )
    told += (_audit(audited) for audited in contents.audits if audited not in broken)
    told += map(_answer, contents.answers)
    told += map(_sweep, contents.sweeps)
    return told


def _study(study: TrainedStudy) -> Iterator[Sentence]:
    """Yield the sentences of a study."""
    if study.changes:
        yield from _compare(study)
        if study.owned:
            yield from (slope(study, change) for change in study.changes[:MAX_METHODS] if change.line is not None)
    else:
        yield _served(study)
    if not any(trained.broken for trained in study.methods.values()):
        yield _kept(study)
    yield from (Sentence(text=f"{text}.") for text in other_units(study))
    missing = [trained.missing for trained in study.methods.values() if trained.missing]
    if missing:
        yield Sentence(text=f"Not all is done: {listed(missing)}.", tone="bad")


def _compare(study: TrainedStudy) -> list[Sentence]:
    """Compare the method with all others; significant harm comes first, unless the first sentence is significant."""
    told: list[Sentence] = []
    few = len(study.methods) <= MAX_METHODS
    for index, change in enumerate(study.changes):
        if few or index == 0:
            told += (_worst(study, change), _gains(study, change), _everyone(study, change))
        elif change.worst.clear:
            told.append(_worst(study, change))
    unclear = [change.base.name for change in study.changes[1:] if not (few or change.worst.clear)]
    if unclear:
        who, method = study.who, study.focus.name
        text = f"For the worst-served {who}, {method} does not differ significantly from {listed(unclear)}."
        told.append(Sentence(text=text))
    if told[0].tone == "plain":
        told.sort(key=lambda item: item.tone != "bad")
    return [told[0], *_strictest(study), *told[1:], *_along(study, study.changes[0])]


def _strictest(study: TrainedStudy) -> Iterator[Sentence]:
    """Say how each method serves the strictest owner, if one owner grants less than all others."""
    few = len(study.methods) <= MAX_METHODS
    if not (study.owned and few and len(study.groups) > 1 and study.epsilon[0] < study.epsilon[1]):
        return
    owner, plan = study.groups[0], study.plan
    place = plan.labels.index(owner)
    methods = [study.focus, *(change.base for change in study.changes)]
    results = "; ".join(f"{method.name}: {study.mean(method)[0]:.2f}" for method in methods)
    held, filled = percent(plan.sizes[place] / plan.sizes.sum()), percent(plan.batch_shares[place])
    yield Sentence(
        text=f"Owner {owner} is the strictest, with ε = {study.epsilon[0]:.3g}. It holds {held} of the records and "
        f"fills {filled} of a batch of {study.focus.name}. Its {study.measure}: {results}."
    )


def _worst(study: TrainedStudy, change: Change) -> Sentence:
    """Compare two methods for the worst-served owner."""
    here, there = (interval(study.worst(method)).value for method in (change.method, change.base))
    numbers = f"{study.measure} {here:.2f} against {there:.2f}"
    return _compared(study, change, change.worst, f"the worst-served {study.who}", numbers)


def _everyone(study: TrainedStudy, change: Change) -> Sentence:
    """Compare two methods for everyone together."""
    name = "balanced accuracy" if study.measure == "recall" else "mean loss"
    here, there = (interval(method.everyone(study.measure)).value for method in (change.method, change.base))
    return _compared(study, change, change.everyone, "everyone together", f"{name} {here:.3f} against {there:.3f}")


def _compared(study: TrainedStudy, change: Change, moved: Interval, who: str, numbers: str) -> Sentence:
    """Return the sentence of a comparison, according to its interval over seeds."""
    method, base = change.method.name, change.base.name
    if not moved.clear and moved.count < MIN_SEEDS:
        text = f"For {who}, {_few(moved.count)} to tell {method} from {base}: {numbers}."
        return Sentence(text=text, evidence=_sure(moved))
    if not moved.clear:
        text = f"For {who}, {method} and {base} do not differ significantly: {numbers}."
        return Sentence(text=text, evidence=_sure(moved))
    gains = moved.value * study.better > 0
    text = f"{method} serves {who} {'better' if gains else 'worse'} than {base} does: {numbers}."
    return Sentence(text=text, evidence=_sure(moved), tone="good" if gains else "bad")


def _along(study: TrainedStudy, change: Change) -> Iterator[Sentence]:
    """Compare two methods for the worst-served owner during training, if the difference is significant."""
    if not change.along.clear:
        return
    here, there = (interval(study.along(method)).value for method in (change.method, change.base))
    gains = change.along.value * study.better > 0
    text = (
        f"During training, {change.method.name} serves the worst-served {study.who} {'better' if gains else 'worse'} "
        f"than {change.base.name}: {study.measure} {here:.2f} against {there:.2f}, averaged over training."
    )
    yield Sentence(text=text, evidence=_sure(change.along), tone="good" if gains else "bad")


def _gains(study: TrainedStudy, change: Change) -> Sentence:
    """Name the owners that gain and lose, by simultaneous intervals."""
    gain: list[object] = []
    lose: list[object] = []
    for label, difference in zip(study.groups, change.sure, strict=True):
        if difference.clear:
            (gain if difference.value * study.better > 0 else lose).append(label)
    count, left = len(study.groups), len(study.groups) - len(gain) - len(lose)
    seeds = max(difference.count for difference in change.sure)
    evidence = f"95 % intervals of all {study.who}s at once"
    if not gain and not lose:
        if seeds < MIN_SEEDS:
            text = f"Against {change.base.name}, {_few(seeds)} to tell which of {count} {study.who}s gain or lose"
            return Sentence(
                text=f"{text}: {_most(study, change)}.", evidence=f"{evidence} need {MIN_SEEDS} seeds or more"
            )
        text = f"Against {change.base.name}, none of {count} {study.who}s clearly gains or loses."
        return Sentence(text=text, evidence=evidence)
    sides = ((gain, "gains", "gain"), (lose, "loses", "lose"))
    parts = [f"{_named(some, study.who)} clearly {he if len(some) == 1 else they}" for some, he, they in sides if some]
    unsure = f"{_few(seeds)} to tell" if seeds < MIN_SEEDS else "the change is within noise"
    parts += [f"for {left} of {count} {unsure}"] * (left > 0)
    tone = "good" if not lose else "bad" if not gain else "plain"
    return Sentence(text=f"Against {change.base.name}, {'; '.join(parts)}.", evidence=evidence, tone=tone)


def _most(study: TrainedStudy, change: Change) -> str:
    """Name the owner with the largest change."""
    index = int(np.nanargmax([abs(difference.value) for difference in change.by_group]))
    here, there = (study.mean(method)[index] for method in (change.method, change.base))
    return f"most changes for {study.who} {study.groups[index]}, with {study.measure} {here:.2f} against {there:.2f}"


def slope(study: TrainedStudy, change: Change) -> Sentence:
    """Describe the dependence of a change on epsilon."""
    what = f"{change.method.name} minus {change.base.name}"
    if change.line is None:
        return Sentence(text=f"{what}: too few budgets differ for a regression line.")
    line = change.line.slope
    evidence = f"Slope {signed(line.value)} per unit of ε, 95 % interval {signed(line.low)} to {signed(line.high)}"
    if not line.clear:
        return Sentence(text=f"{what}: no significant dependence on the budget.", evidence=evidence)
    side = "smaller" if line.value * study.better < 0 else "larger"
    return Sentence(text=f"{what}: the {side} an owner's budget, the better the change.", evidence=evidence)


def _served(study: TrainedStudy) -> Sentence:
    """Name the owners that a single method serves best and worst."""
    mean = study.mean(study.focus)
    known = np.flatnonzero(~np.isnan(mean))
    ranked = known[np.argsort(study.better * mean[known], kind="stable")]
    worst, best = (f"{study.who} {study.groups[index]} ({mean[index]:.2f})" for index in (ranked[0], ranked[-1]))
    runs = len(study.focus.seeds)
    over = "In one run" if runs == 1 else f"Over {runs} seeds"
    text = f"{over} of {study.focus.name}, {study.measure} on held-out records is best for {best}, worst for {worst}."
    return Sentence(text=text)


def _kept(study: TrainedStudy) -> Sentence:
    """State that budgets were kept."""
    granted = np.asarray(study.plan.epsilon)
    grants = f"ε {granted.min():.3g}" if np.ptp(granted) == 0 else f"ε from {granted.min():.3g} to {granted.max():.3g}"
    count = len(granted)
    every = "The owner kept its budget" if count == 1 else f"All {count} owners kept their budgets"
    return Sentence(text=f"{every} in every run: {grants} granted, and no run has spent more.", tone="good")


def _audit(audited: Audited) -> Sentence:
    """Summarise an audit."""
    verdicts = audited.audit.verdicts
    contradicted = [verdict for verdict in verdicts if verdict.contradicted]
    if contradicted:
        return Sentence(
            text=f"The audit of {audited.name} contradicts what was promised to {_owners(contradicted)}.", tone="bad"
        )
    top = max(verdicts, key=lambda item: np.nan_to_num(audited.bounds[item.claim.owner]))
    bound = max(audited.bounds[top.claim.owner], 0.0)
    return Sentence(
        text=f"The audit of {audited.name} contradicts no promise: its largest lower bound is ε ≥ {bound:.3g}, for "
        f"owner {top.claim.owner}, of {top.claim.spent:.3g} spent. That is no proof.",
        evidence=audited.source,
    )


def _answers(answers: Sequence[Answer]) -> Sentence:
    """State the number of statistics."""
    tables = list(dict.fromkeys(answer.table for answer in answers))
    about = Path(tables[0]).name if len(tables) == 1 else f"{len(tables)} tables"
    return Sentence(text=f"{len(answers)} private statistics of {about}.", evidence="What they cost adds up")


def _answer(answer: Answer) -> Sentence:
    """Summarise a statistic."""
    estimate, cost = answer.estimate, answer.estimate.cost
    paid = ""
    if cost:
        ends = list(dict.fromkeys(f"{end:.3g}" for end in (min(cost.values()), max(cost.values()))))
        paid = f", for ε {ends[0]}" if len(ends) == 1 else f", for ε from {ends[0]} to {ends[1]}"
    if np.ndim(estimate.value) == 0:
        value, error = measured(float(estimate.value), float(estimate.standard_error))
        return Sentence(text=f"{answer.name}: {value}, with a standard error of {error}{paid}.")
    return Sentence(text=f"{answer.name}: {np.size(estimate.value)} numbers{paid}.")


def _sweep(swept: Swept) -> Sentence:
    """Name the best point of a sweep."""
    best = swept.sweep.ordered()[0]
    text = f"Of {len(swept.sweep.standings)} points of a sweep, {best.point.name} did best."
    return Sentence(text=text, evidence="It was chosen by its results, and looks better than it is.")


def _sure(difference: Interval) -> str:
    if math.isnan(difference.low):
        return f"Difference {signed(difference.value)}, and one seed has no interval"
    low, high = signed(difference.low), signed(difference.high)
    return f"Difference {signed(difference.value)}, 95 % interval {low} to {high}, {difference.count} seeds"


def _few(seeds: int) -> str:
    return "one seed is too few" if seeds == 1 else f"{seeds} seeds are too few"


def _named(labels: Sequence[object], who: str = "owner") -> str:
    return f"{who}{'s' * (len(labels) > 1)} {listed(labels)}"


def _owners(verdicts: Sequence[Verdict]) -> str:
    return _named([verdict.claim.owner for verdict in verdicts])
