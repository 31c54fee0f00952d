"""The HTML page of a report, section by section."""

import platform
import re
import shlex
from collections.abc import Sequence
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
from inosgm.reports.contents import Answer, Contents, breaches
from inosgm.reports.pictures import Picture
from inosgm.reports.tables import TextTable, measured, number, short
from inosgm.reports.trained import Trained, TrainedStudy

PACKAGES = ("numpy", "torch", "dp-accounting")
"""Packages whose versions are on the page: they may change numbers."""


Section = dict[str, Any]
"""The values that the template shows of a study, an audit, an answer or a sweep, by name."""


class Page:
    """The page of a report.

    Args:
        contents: What was read.
        title: What the page is called; made from the contents if not given.
    """

    def __init__(self, contents: Contents, title: str | None = None) -> None:
        self.contents, self.title = contents, title or _title(contents)

    @cached_property
    def studies(self) -> list[Section]:
        """The sections of studies."""
        several = len(self.contents.studies) > 1
        return [
            _study(self.contents, study, f"{index + 1}-" if several else "")
            for index, study in enumerate(self.contents.studies)
        ]

    @cached_property
    def audits(self) -> list[Section]:
        """The sections of audits."""
        return [
            Section(
                found=audited,
                verdicts=audit_pictures.verdicts_of(audited),
                roc=audit_pictures.roc_of(audited, f"roc-{index + 1}"),
            )
            for index, audited in enumerate(self.contents.audits)
        ]

    @cached_property
    def answers(self) -> list[Section]:
        """The sections of private statistics."""
        return [_answer(answer, f"statistic-{index + 1}") for index, answer in enumerate(self.contents.answers)]

    @cached_property
    def sweeps(self) -> list[Section]:
        """The sections of sweeps."""
        from inosgm.experiments.sweep_results import Metric

        metric = Metric.balanced_accuracy
        return [
            Section(
                swept=swept,
                points=answer_pictures.points_of({"": swept.sweep.ordered()}, metric),
            )
            for swept in self.contents.sweeps
        ]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in their order on the page."""
        pictures: list[Picture | None] = []
        for section in self.studies:
            pictures += section["pictures"].values()
        pictures += [section["roc"] for section in self.audits]
        pictures += [section["picture"] for section in self.answers]
        return [picture for picture in pictures if picture is not None]

    def html(self) -> str:
        """Return the page: one file that needs no other."""
        folder = resources.files("inosgm.reports") / "templates"
        made = Environment(
            loader=PackageLoader("inosgm.reports"),
            autoescape=True,  # labels of owners may hold anything
            undefined=StrictUndefined,  # a typing error in the template raises instead of leaving a gap
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters["yaml"] = _yaml
        made.filters["breaches"] = breaches
        made.filters["svg"] = lambda picture: [Markup(element) for element in picture.parts()]
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
    """Return the default title of a page."""
    if contents.studies:
        names = list(dict.fromkeys(study.name for study in contents.studies))
        return f"Who gets what: {', '.join(names)}"
    if contents.audits:
        return f"Audit: {contents.audits[0].config.data.name}"
    return "Private statistics" if contents.answers else "A sweep"


def _study(contents: Contents, study: TrainedStudy, name: str) -> Section:
    methods = list(study.methods.values())
    metrics = [trained.metric for trained in methods if trained.tuning and trained.metric]
    points = {trained.name: trained.tuning for trained in methods if trained.tuning}
    return Section(
        study=study,
        owners=contents.owners(study),
        pictures=_pictures(contents, study, name),
        tuning=answer_pictures.points_of(points, metrics[0]) if metrics else None,
        slopes=tuple(words.slope(study, change) for change in study.changes),
        commands=tuple(_commands(methods)),
        private={trained.name: _diagnostics(trained) for trained in methods if trained.private},
    )


def _pictures(contents: Contents, study: TrainedStudy, name: str) -> dict[str, Picture]:
    """Return the pictures of a study by name, without those that do not apply."""
    made = {
        "budgets": plan_pictures.budgets(study, contents.audits_of(study), f"{name}budgets"),
        "pull": plan_pictures.pull(study, f"{name}pull"),
        "curves": learning_pictures.curves(study, f"{name}curves"),
        "change": learning_pictures.change(study, f"{name}change") if study.owned else None,
        "worst": learning_pictures.worst(study, f"{name}worst"),
    }
    return {what: picture for what, picture in made.items() if picture is not None}


def _commands(methods: Sequence[Trained]) -> list[str]:
    """Return the command that repeats the training, given the configurations as files."""
    files = [f"{re.sub(r'[^a-z0-9]+', '-', trained.name.lower()).strip('-')}.yaml" for trained in methods]
    seeds = max(trained.asked for trained in methods)
    if len(methods) == 1:
        return [f"inosgm train {files[0]}" + (f" --seeds {seeds}" if seeds > 1 else "")]
    return [f"inosgm compare {' '.join(files)} --seeds {seeds}"]


def _diagnostics(trained: Trained) -> TextTable:
    """Return a table of the last diagnostics on training records. NOT PRIVATE."""
    last = trained.private[-1]
    learnt = last["learnt_and_clipped"] or [None] * len(last["labels"])
    condition = np.array(last["condition"], dtype=np.float64)
    np.fill_diagonal(condition, np.inf)
    rows = []
    for index, label in enumerate(last["labels"]):
        against = int(condition[index].argmin())
        pair = [number(condition[index, against]), str(last["labels"][against])] if len(condition) > 1 else ["-", "-"]
        shares = [number(last["clipped"][index]), number(learnt[index])]
        rows.append((str(label), str(last["records"][index]), short(last["lengths"][index]), *shares, *pair))
    return TextTable(
        caption=f"After {last['step']} steps, on training records",
        header=("owner", "records", "length of its sum", "clipped", "clipped and learnt", "condition", "against"),
        rows=tuple(rows),
        notes=("condition: where it is at most 0, this owner's loss may rise while the other's falls",),
    )


def _answer(answer: Answer, name: str) -> Section:
    estimate = answer.estimate
    single = np.ndim(estimate.value) == 0
    return Section(
        answer=answer,
        name=answer.name,
        asked=", ".join(
            name.replace("_", " ") + (f" {_plain(value)}" if value is not True else "")
            for name, value in answer.parameters.items()
            if value is not False
        ),
        text=" ± ".join(measured(float(estimate.value), float(estimate.standard_error))) if single else "",
        picture=answer_pictures.picture_of(answer, name),
        cost=answer_pictures.cost_of(answer),
        command=_asked(answer),
    )


def _asked(answer: Answer) -> str:
    """Return the command of an answer, as far as the answer knows it."""
    words = ["inosgm", "stats", answer.question, answer.table, "--columns", *answer.columns]
    for name, value in answer.parameters.items():
        given = value if isinstance(value, list) else [value] * (not isinstance(value, bool))
        words += [] if value is False else [f"--{name.replace('_', '-')}", *map(_plain, given)]
    return f"{shlex.join([*words, '--share', f'{answer.share:g}'])} --budgets ..."


def _yaml(config: TrainingConfig) -> str:
    """Return a configuration as YAML, without defaults."""
    return write(config.model_dump(exclude_none=True, exclude_defaults=True))


def _plain(value: Any) -> str:
    """Return a parameter as text."""
    if isinstance(value, list):
        return ", ".join(map(_plain, value[:12])) + ", ..." * (len(value) > 12)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _versions() -> dict[str, Any]:
    """Return the versions of the code that wrote the page."""
    return {"inosgm": __version__, "Python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
