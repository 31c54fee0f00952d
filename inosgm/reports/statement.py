"""A statement for one owner: what was promised, what was spent on what, and what an attacker can learn from it."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from inosgm._internal.files import write_durably
from inosgm._internal.text import visible
from inosgm.accounting.units import described
from inosgm.owners import Label
from inosgm.planning.plan import Plan
from inosgm.reports.contents import Answer, Contents
from inosgm.reports.tables import percent, short
from inosgm.reports.trained import TrainedStudy

MAX_NAMES = 20
"""Largest number of owners that an error about an unknown owner lists."""

ACCOUNTANTS = {
    "pld": "privacy loss distributions, rounded towards larger epsilons",
    "rdp": "Renyi differential privacy",
}
"""Descriptions of accountants, by the family of their names."""

NOT_COVERED = (
    "The name of the owner, its number of records (or of units of several records) and its budget are public; they are "
    "not protected.",
    "The statement covers what the named runs and answers were charged. Any other use of the same records, and any "
    "copy of them, is not known here.",
    "The guarantee does not keep anybody from learning what follows from all other records: facts about people in "
    "general are what the results are for.",
    "Whoever can read the computers on which the results were computed sees the records themselves. Running times, "
    "memory, logs of other programs and backups are not covered.",
    "Choosing settings by looking at results on the same records is covered only as far as those runs are listed.",
)
"""What no statement covers, in plain words."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with paragraphs and, if there are rows, a table above them."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A page about one owner that somebody can sign. It has no private numbers.

    Attributes:
        owner: The owner.
        sections: What the page says, in order.
    """

    owner: Label
    sections: tuple[Section, ...]

    @property
    def title(self) -> str:
        """The title of the page."""
        return f"Privacy statement for {visible(str(self.owner))}"

    def markdown(self) -> str:
        """Return the statement as Markdown."""
        lines = [f"# {_plain(self.title)}"]
        for section in self.sections:
            lines += ["", f"## {section.heading}", ""]
            if section.rows:
                lines += [_row(section.header), _row(["---"] * len(section.header)), *map(_row, section.rows), ""]
            lines += [f"- {_plain(text)}" for text in section.paragraphs]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """Return the statement as a page that needs no other file."""
        body = [f"<h1>{escape(self.title)}</h1>"]
        for section in self.sections:
            body.append(f"<h2>{escape(section.heading)}</h2>")
            if section.rows:
                head = "".join(f"<th>{escape(cell)}</th>" for cell in section.header)
                rows = ("".join(f"<td>{escape(visible(cell))}</td>" for cell in row) for row in section.rows)
                body.append(f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
            if section.paragraphs:
                body.append(
                    "<ul>" + "".join(f"<li>{escape(visible(text))}</li>" for text in section.paragraphs) + "</ul>"
                )
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
        )

    def write(self, output: str | os.PathLike[str]) -> Path:
        """Write the statement: Markdown if the name of the file ends in .md, else HTML."""
        path = Path(output)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a directory: name a file, such as {path / 'statement.html'}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, (self.markdown() if path.suffix == ".md" else self.html()).encode())
        return path


STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#20232a;background:#fff}"
    "table{border-collapse:collapse}td,th{border:1px solid #9aa0ac;padding:.3rem .6rem;text-align:left}"
    "@media print{body{margin:0}}"
)
"""The look of the page: one column, black on white, so that it can be printed and signed."""


def statement(contents: Contents, owner: str) -> Statement:
    """Return the statement for an owner about everything that was read.

    **Guarantee.** It is computed from plans, charges and released answers. Audits and diagnostics, which are as secret
    as the records, are not used.

    Args:
        contents: What was read (`inosgm.reports.read`).
        owner: The owner's label, as text.

    Raises:
        ValueError: if no run and no answer charged such an owner.
    """
    studies = [(study, label) for study in contents.studies for label in study.plan.labels if str(label) == owner]
    answers = [answer for answer in contents.answers if owner in map(str, answer.estimate.cost or {})]
    if not studies and not answers:
        known = dict.fromkeys(str(label) for study in contents.studies for label in study.plan.labels)
        known |= dict.fromkeys(str(label) for answer in contents.answers for label in answer.estimate.cost or {})
        names = ", ".join(list(known)[:MAX_NAMES])
        raise ValueError(f"owner {owner!r} was charged for nothing that was named; owners are {names}")
    label = studies[0][1] if studies else owner
    return Statement(
        owner=label,
        sections=(
            _promised(studies, owner),
            _spent(studies, answers, owner),
            _attacker(studies),
            Section(heading="What is not covered", paragraphs=NOT_COVERED),
            Section(heading="Signed", header=("Name", "Role", "Date", "Signature"), rows=((" ",) * 4,)),
        ),
    )


def _promised(studies: Iterable[tuple[TrainedStudy, Label]], owner: str) -> Section:
    rows = []
    for study, label in studies:
        for unit in study.units:
            plan = next(trained.plan for trained in study.methods.values() if trained.unit == unit)
            index = plan.labels.index(label)
            epsilon, delta = np.asarray(plan.epsilon)[index], np.asarray(plan.delta)[index]
            numbers = (f"{int(plan.sizes[index])} {plan.unit_name}s", short(epsilon), f"{delta:g}")
            rows.append((study.name, *numbers, described(unit).removeprefix("about ")))
    if not rows:
        return Section(heading="What was promised", paragraphs=(f"Answers do not state what {owner} granted.",))
    return Section(
        heading="What was promised",
        header=("Data", "Number", "Epsilon granted", "Delta", "Protected"),
        rows=tuple(rows),
        paragraphs=("Differential privacy: results would be almost as likely without what is protected.",),
    )


def _spent(studies: Iterable[tuple[TrainedStudy, Label]], answers: Iterable[Answer], owner: str) -> Section:
    rows, paragraphs = [], []
    for study, label in studies:
        for trained in study.methods.values():
            runs = f"{len(trained.seeds)} of {trained.asked}" if trained.asked > 1 else "1"
            spent = short(trained.spent[trained.plan.labels.index(label)])
            rows.append((f"training with {trained.name}", runs, spent, _mechanism(trained.plan)))
        for expense in study.together:
            together = float(expense.together[expense.labels.index(label)])
            paragraphs.append(
                f"All {expense.runs} runs on {study.name} together, those included that only served to choose "
                f"settings, cost epsilon {together:.4g}. Each run keeps the budget; all of them together are covered "
                "by it only if this number does not exceed it."
            )
    for answer in answers:
        costs = {str(label): epsilon for label, epsilon in (answer.estimate.cost or {}).items()}
        rows.append((f"{answer.name} ({answer.table})", "1", short(costs[owner]), "noise on bounded sums"))
    paragraphs.append(
        "Epsilon spent is that of the most expensive run of a line. Charges of runs were written before their results."
    )
    return Section(
        heading="What was spent, on what",
        header=("Use", "Runs", "Epsilon spent by one", "Mechanism and accountant"),
        rows=tuple(rows),
        paragraphs=tuple(paragraphs),
    )


def _mechanism(plan: Plan) -> str:
    family = str(plan.accountant).partition("-")[0]
    return f"Gaussian noise on {plan.steps} sums of sampled {plan.unit_name}s; {ACCOUNTANTS.get(family, family)}"


def _attacker(studies: Iterable[tuple[TrainedStudy, Label]]) -> Section:
    """Return what an attacker can reach against one run of the method that a study is about."""
    paragraphs = [
        "The attacker sees all results, knows all other records, and wants to know whether one given record was used, "
        "or one given unit if units of several records are protected. No computing power helps against these limits."
    ]
    for study, label in studies:
        plan = study.focus.plan
        exposure = plan.exposure([label])
        hit, rate = float(exposure.true_positive_rate[0, 1]), exposure.false_positive_rates[1]
        paragraphs += [
            f"{study.focus.name} on {study.name}, one run: an attacker who wrongly accuses {percent(rate)} of the "
            f"{plan.unit_name}s that were not used recognises at most {percent(hit)} of those that were.",
            "The largest gap between the two rates, for any attack, is "
            f"{100 * float(exposure.advantage[0]):.3g} percentage points.",
        ]
        for expense in study.together:
            index = expense.labels.index(label)
            most = min(
                1.0, math.exp(min(float(expense.together[index]), 50.0)) * rate + float(np.asarray(plan.delta)[index])
            )
            paragraphs.append(
                f"An attacker who sees all {expense.runs} runs recognises at most {percent(most)} of them."
            )
        if np.isfinite(exposure.excess[0]) and exposure.excess[0] > 0:
            paragraphs.append(
                f"Delta is {float(exposure.excess[0]):.3g}: an attack gains this much because other owners chose other "
                "budgets."
            )
    if len(paragraphs) == 1:
        paragraphs.append(
            "For a single answer with epsilon e and delta d, an attacker who wrongly accuses a share f of the records "
            "that were not used recognises at most a share of exp(e) f + d of those that were."
        )
    return Section(heading="What an attacker can and cannot learn", paragraphs=tuple(paragraphs))


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is: labels of owners may hold anything."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|" else letter for letter in visible(text))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell if cell == "---" else _plain(cell) for cell in cells) + " |"
