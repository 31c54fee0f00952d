"""The page: sections, in the order in which they are read."""

import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.metadata import version
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from inosgm import __version__
from inosgm._internal.text import visible
from inosgm._internal.yaml import write
from inosgm.audit.secret_files import WARNING
from inosgm.experiments.config import TrainingConfig
from inosgm.reports import answer_pictures, audit_pictures, glossary, learning_pictures, plan_pictures
from inosgm.reports import narrative as words
from inosgm.reports.contents import Answer, Audited, Contents, Swept, breaches
from inosgm.reports.pictures import Picture
from inosgm.reports.styles import styles_of
from inosgm.reports.tables import Table, measured, number, short
from inosgm.reports.trained import Study, Trained

PACKAGES = ("numpy", "torch", "dp-accounting")
"""Whose versions a page names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyPart:
    """What a page shows of a study."""

    study: Study
    owners: Table
    pictures: dict[str, Picture]
    tuning: Table | None
    tried: Picture | None
    slopes: tuple[words.Sentence, ...]
    commands: tuple[str, ...]
    private: dict[str, Table]


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditPart:
    """What a page shows of an audit."""

    found: Audited
    verdicts: Table
    roc: Picture


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerPart:
    """What a page shows of a private statistic."""

    answer: Answer
    name: str
    asked: str
    text: str
    picture: Picture | None
    cost: Table | None
    command: str


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepPart:
    """What a page shows of a sweep."""

    swept: Swept
    points: Table
    picture: Picture | None


class Page:
    """A page about what was read.

    Args:
        contents: What was read.
        title: What the page is called; made from the contents if not given.
    """

    def __init__(self, contents: Contents, title: str | None = None) -> None:
        self.contents, self.title = contents, title or _title(contents)

    @cached_property
    def studies(self) -> list[StudyPart]:
        """What was trained."""
        several = len(self.contents.studies) > 1
        return [
            _study(self.contents, study, f"{place + 1}-" if several else "")
            for place, study in enumerate(self.contents.studies)
        ]

    @cached_property
    def audits(self) -> list[AuditPart]:
        """Audits."""
        return [
            AuditPart(
                found=one, verdicts=audit_pictures.verdicts_of(one), roc=audit_pictures.roc_of(one, f"roc-{place + 1}")
            )
            for place, one in enumerate(self.contents.audits)
        ]

    @cached_property
    def answers(self) -> list[AnswerPart]:
        """Private statistics."""
        return [_answer(one, f"statistic-{place + 1}") for place, one in enumerate(self.contents.answers)]

    @cached_property
    def sweeps(self) -> list[SweepPart]:
        """Sweeps."""
        from inosgm.experiments.standings import Metric

        metric = Metric.balanced_accuracy
        return [
            SweepPart(
                swept=one,
                points=answer_pictures.points_of({"": one.sweep.ordered()}, metric),
                picture=answer_pictures.tried({"": one.sweep.standings}, metric, f"sweep-{place + 1}"),
            )
            for place, one in enumerate(self.contents.sweeps)
        ]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in their order."""
        found: list[Picture | None] = []
        for part in self.studies:
            found += [*part.pictures.values(), part.tried]
        found += [part.roc for part in self.audits]
        found += [part.picture for part in self.answers]
        found += [part.picture for part in self.sweeps]
        return [picture for picture in found if picture is not None]

    def html(self) -> str:
        """Return the page: one file that needs no other."""
        folder = resources.files("inosgm.reports") / "templates"
        made = Environment(
            loader=PackageLoader("inosgm.reports"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters["yaml"] = _yaml
        made.filters["breaches"] = breaches
        made.filters["svg"] = lambda picture: [Markup(part) for part in picture.parts()]
        made.filters["samples"] = lambda picture: [(name, Markup(sample)) for name, sample in picture.key_samples()]
        text = made.get_template("page.html").render(
            page=self,
            contents=self.contents,
            introductions=words.introductions(self.contents),
            meanings=glossary.meanings(self.contents),
            headline=words.headline(self.contents),
            sentences=words.sentences(self.contents),
            style=Markup((folder / "page.css").read_text(encoding="utf-8")),
            warning=WARNING,
            versions=_versions(),
        )
        return re.sub(r"(\d) %", "\\1\u00a0%", visible(text.lstrip()))  # no line begins with a percent sign


def _title(contents: Contents) -> str:
    """Return what a page is called if nobody says."""
    if contents.studies:
        names = list(dict.fromkeys(study.name for study in contents.studies))
        return f"Who gets what: {', '.join(names)}"
    if contents.audits:
        return f"Audit: {contents.audits[0].config.data.name}"
    return "Private statistics" if contents.answers else "A sweep"


def _study(contents: Contents, study: Study, name: str) -> StudyPart:
    methods = list(study.methods.values())
    metrics = [one.metric for one in methods if one.tuning and one.metric]
    tuning, tried = None, None
    if metrics:
        points = {one.name: one.tuning for one in methods if one.tuning}
        tuning = answer_pictures.points_of(points, metrics[0])
        tried = answer_pictures.tried(points, metrics[0], f"{name}tuning", styles_of(study))
    return StudyPart(
        study=study,
        owners=contents.owners(study),
        pictures=_pictures(contents, study, name),
        tuning=tuning,
        tried=tried,
        slopes=tuple(words.slope(study, one) for one in study.changes),
        commands=tuple(_commands(methods)),
        private={one.name: _diagnostics(one) for one in methods if one.private},
    )


def _pictures(contents: Contents, study: Study, name: str) -> dict[str, Picture]:
    """Return the pictures of a study, by what they show; those that make no sense are left out."""
    made = {
        "budgets": plan_pictures.budgets(study, contents.audits_of(study), f"{name}budgets"),
        "pull": plan_pictures.pull(study, f"{name}pull"),
        "curves": learning_pictures.curves(study, f"{name}curves"),
        "change": learning_pictures.change(study, f"{name}change") if study.owned else None,
        "worst": learning_pictures.worst(study, f"{name}worst"),
        "tail": plan_pictures.tail(study, f"{name}tail"),
    }
    return {what: picture for what, picture in made.items() if picture is not None}


def _commands(methods: Sequence[Trained]) -> list[str]:
    """Return what to type to train the same again, given the configurations as files."""
    files = [f"{re.sub(r'[^a-z0-9]+', '-', one.name.lower()).strip('-')}.yaml" for one in methods]
    seeds = max(one.asked for one in methods)
    if len(methods) == 1:
        return [f"inosgm train {files[0]}" + (f" --seeds {seeds}" if seeds > 1 else "")]
    return [f"inosgm compare {' '.join(files)} --seeds {seeds}"]


def _diagnostics(one: Trained) -> Table:
    """Return what the last row of diagnostics on training records says. NOT PRIVATE."""
    last = one.private[-1]
    learnt = last["learnt_and_clipped"] or [None] * len(last["labels"])
    condition = np.array(last["condition"], dtype=np.float64)
    np.fill_diagonal(condition, np.inf)
    rows = []
    for place, label in enumerate(last["labels"]):
        against = int(condition[place].argmin())
        pair = [number(condition[place, against]), str(last["labels"][against])] if len(condition) > 1 else ["-", "-"]
        shares = [number(last["clipped"][place]), number(learnt[place])]
        rows.append((str(label), str(last["records"][place]), short(last["lengths"][place]), *shares, *pair))
    return Table(
        caption=f"After {last['step']} steps, on training records",
        header=("owner", "records", "length of its sum", "clipped", "clipped and learnt", "condition", "against"),
        rows=tuple(rows),
        notes=("condition: where it is at most 0, this owner's loss may rise while the other's falls",),
    )


def _answer(answer: Answer, name: str) -> AnswerPart:
    found = answer.estimate
    single = np.ndim(found.value) == 0
    return AnswerPart(
        answer=answer,
        name=answer.name,
        asked=", ".join(
            name.replace("_", " ") + (f" {_plain(value)}" if value is not True else "")
            for name, value in answer.parameters.items()
            if value is not False
        ),
        text=" ± ".join(measured(float(found.value), float(found.standard_error))) if single else "",
        picture=answer_pictures.picture_of(answer, name),
        cost=answer_pictures.cost_of(answer),
        command=_asked(answer),
    )


def _asked(answer: Answer) -> str:
    """Return what was typed, as far as an answer knows."""
    words = ["inosgm", "stats", answer.question, answer.table, "--columns", *answer.columns]
    for name, value in answer.parameters.items():
        given = value if isinstance(value, list) else [value] * (not isinstance(value, bool))
        words += [] if value is False else [f"--{name.replace('_', '-')}", *map(_plain, given)]
    return f"{shlex.join([*words, '--share', f'{answer.share:g}'])} --owners ..."


def _yaml(config: TrainingConfig) -> str:
    """Return a configuration as a file that reads as the same, without what goes without saying."""
    return write(config.model_dump(exclude_none=True, exclude_defaults=True))


def _plain(value: Any) -> str:
    """Show a parameter."""
    if isinstance(value, list):
        return ", ".join(map(_plain, value[:12])) + ", ..." * (len(value) > 12)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _versions() -> dict[str, Any]:
    """Return which code wrote the page."""
    return {"inosgm": __version__, "Python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
