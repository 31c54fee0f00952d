"""Reports: what they say, to whom, and how a real browser shows them."""

import csv
import json
import re
import stat
from contextlib import chdir
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from browser import CHROMIUM, Browser
from scipy import stats
from typer.testing import CliRunner

from inosgm import Ledger, Owners, Plan
from inosgm._internal.yaml import read as read_yaml
from inosgm.audit.auditing import lira
from inosgm.audit.bounds import Bound
from inosgm.audit.mechanism_audit import CanaryBound, MechanismAudit
from inosgm.cli import report as _cli_report
from inosgm.cli.program import app
from inosgm.datasets import load
from inosgm.experiments import SeedStudy as Runs
from inosgm.experiments import compare, train
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.plans import planned
from inosgm.reports import read, report
from inosgm.reports.contents import Contents
from inosgm.reports.intervals import interval, regression
from inosgm.reports.narrative import headline, introductions, sentences
from inosgm.reports.page import Page
from inosgm.reports.pictures import Picture
from inosgm.reports.statement import statement
from inosgm.reports.trained import RunSource, Trained, TrainedStudy
from inosgm.training.curve import LearningCurve
from inosgm.training.metrics import evaluation

EVIL = ["<script>alert(1)</script>", "\"b\" & 'c' 東京", "$\\frac$ #0072b2"]
"""Names of owners that must be shown, and never run."""


def settings(**changes):
    values = {
        "data": {"name": "digits"},
        "owners": {"csv": "owners.csv", "held_out": "held_out.csv"},
        "model": {"name": "logistic_regression"},
        "plan": {"method": "scale", "steps": 4, "expected_batch": 128, "clip_norm": 1.0},
        "tail": {"kind": "linear", "fraction": 0.6},
        "optimizer": {"name": "SGD", "lr": 1.0},
        "training": {"evaluate_every": 2},
    }
    return TrainingConfig.from_dict({**values, **changes})


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A directory with everything that a report can be about, small."""
    place = tmp_path_factory.mktemp("demo")
    digits = load("digits")
    with chdir(place):
        for name, count in (("owners.csv", len(digits.y)), ("held_out.csv", len(digits.y_test))):
            rows = [(EVIL[row % 3], (1, 2, 8)[row % 3], 1e-5) for row in range(count)]
            with open(name, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("owner", "epsilon", "delta"), *rows])
        compare(
            settings(),
            ("dp-sgd", "idp-sgd", "ino-sgd"),
            seeds=2,
            tune={"optimizer.lr": [1.0, 2.0]},
            store="demo/comparison",
            progress=False,
        )
        lira(settings(), 8, store="demo/audit", runs=0, progress=False)
        train(settings(run="run", training={"diagnostics": True}))
        table = "owner,epsilon,delta,records\na,1,1e-5,50\nb,4,1e-5,150\n"
        (place / "grants.csv").write_text(table)
        (place / "wages.csv").write_text("wage\n" + "".join(f"{10 * row}\n" for row in range(200)))
        (place / "demo" / "statistics").mkdir()
        wish = ["stats", "mean", "wages.csv", "--column", "wage", "--bounds", "0", "2000", "--budgets", "grants.csv"]
        asked = CliRunner().invoke(app, [*wish, "--rows-in-order", "--output", "demo/statistics/mean.json"])
        assert asked.exit_code == 0, asked.output
    return place


@pytest.fixture(scope="module")
def page(demo):
    """The page about everything, NOT PRIVATE."""
    return report(demo / "demo", output=demo / "whole.html", title="All & <everything>")


@pytest.fixture(scope="module")
def public(demo):
    """The page about the comparison alone, with its figures."""
    return report(demo / "demo" / "comparison", output=demo / "public.html", figures=demo / "figures")


class Outline(HTMLParser):
    """What a page is made of."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.ids, self.links, self.headings, self.text = [], [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]
        self.headings += [int(tag[1])] if re.fullmatch(r"h[1-6]", tag) else []

    def handle_data(self, data):
        self.text.append(data)


def test_a_page_has_its_sections_and_the_table_of_the_terminal(page, demo):
    text, contents = page.read_text(encoding="utf-8"), read(demo / "demo")
    order = ["owners", "learning", "change", "worst", "tuning", "audits", "answers", "run", "limits"]
    places = [text.index(f'<h2 id="{name}"') for name in order]
    assert places == sorted(places)
    shown = "".join(Outline(page).text)
    study = contents.studies[0]
    table = contents.owners(study)
    assert table.header == ("owner", "granted", "spent", "audited, INO-SGD", "DP-SGD", "IDP-SGD", "INO-SGD")
    assert [row[0] for row in table.rows] == [*EVIL, "everyone"]
    assert [row[1] for row in table.rows] == ["1", "2", "8", ""]
    for row in table.rows:
        for cell in row:
            assert cell in shown
            assert cell in contents.table()
    assert "inosgm compare dp-sgd.yaml idp-sgd.yaml ino-sgd.yaml --seeds 2" in shown
    (together,) = study.together
    assert f"{together.runs} runs" in shown
    assert together.runs == 12  # two values for each of three methods, then two seeds for each
    assert all(together.together > study.spent("add/remove"))


def test_configurations_on_a_page_read_as_what_was_trained(public, demo):
    for one in read(demo / "demo" / "comparison").studies[0].methods.values():
        texts = re.findall(r"<pre>(data:.*?)</pre>", public.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert one.config in [TrainingConfig.from_dict(read_yaml(text)) for text in texts]


def test_names_are_shown_and_never_run(page, public, demo):
    for path in (page, public):
        outline = Outline(path)
        assert not [tag for tag, _ in outline.tags if tag == "script"]
        assert not [name for _, found in outline.tags for name in found if name.startswith("on")]
        assert all(name in "".join(outline.text) for name in EVIL)
    assert "<title>All &amp; &lt;everything&gt; (NOT PRIVATE)</title>" in page.read_text(encoding="utf-8")
    for file in (demo / "figures").glob("*.svg"):
        assert "<script" not in file.read_text(encoding="utf-8")


def test_a_page_needs_nothing_else_and_can_be_read_aloud(page):
    outline = Outline(page)
    assert all(link.startswith(("#", "data:")) for link in outline.links)
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)
    assert len(set(outline.ids)) == len(outline.ids)
    assert outline.headings[0] == 1
    assert max(np.diff(outline.headings)) <= 1
    pictures = [found for tag, found in outline.tags if tag == "svg" and "aria-hidden" not in found]
    assert len(pictures) > 12
    assert all(
        found["role"] == "img" and set(found["aria-labelledby"].split()) <= set(outline.ids) for found in pictures
    )
    assert all("scope" in found for tag, found in outline.tags if tag == "th")
    figures = sum(tag == "figure" for tag, _ in outline.tags)
    assert sum(found.get("class") == "numbers" for tag, found in outline.tags if tag == "details") == figures


def test_what_is_secret_is_marked_and_for_its_owner_only(page, public, demo, tmp_path):
    assert "NOT PRIVATE" in page.read_text(encoding="utf-8")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "NOT PRIVATE" not in public.read_text(encoding="utf-8")
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    path = tmp_path / "page.html"
    assert report(demo / "run", output=path) == path
    told = path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert not re.search("NOT PRIVATE|clipped and learnt", told)
    report(demo / "run", output=path, private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # also of a file that everybody could read
    assert "clipped and learnt" in path.read_text(encoding="utf-8")
    report(demo / "demo" / "audit", output=path, figures=tmp_path / "figures")
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "figures").iterdir()} == {0o600}
    assert {picture.name for picture in Page(read(demo / "demo")).pictures if picture.secret} == {"budgets", "roc-1"}


def test_the_same_runs_give_the_same_page_and_figures(public, demo):
    again = Page(read(demo / "demo" / "comparison"))
    assert again.html() == public.read_text(encoding="utf-8")
    names = ["budgets", "pull", "curves", "change", "worst"]
    assert [picture.name for picture in again.pictures] == names
    files = {file.name for file in (demo / "figures").iterdir()}
    assert files == {f"{name}.{ending}" for name in names for ending in ("svg", "png")}
    for ending in ("svg", "png"):
        assert again.pictures[0].file(ending) == (demo / "figures" / f"budgets.{ending}").read_bytes()


def test_what_cannot_be_shown_is_refused_in_a_line(demo, tmp_path):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.yaml").write_text("a: 1")
    for place, message in (
        (tmp_path / "nowhere", "there is no"),
        (tmp_path / "a.json", "no answer of `inosgm stats --output`"),
        (tmp_path / "b.yaml", "no answer"),
        (tmp_path, "holds nothing that a report can show"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            read(place)
    with chdir(demo):
        Runs(settings(), 1, store=tmp_path / "new").begin()
    with pytest.raises(ValueError, match="no results yet"):
        read(tmp_path / "new")
    with pytest.raises(ValueError, match=r"yet:\n  left out: .*no results yet"):
        read(tmp_path)
    with pytest.raises(IsADirectoryError, match="name a file"):
        report(demo / "run", output=tmp_path)


def test_a_run_that_was_stopped_has_spent_what_its_ledger_says(demo, tmp_path):
    with chdir(demo):
        train(
            settings(run=str(tmp_path / "run"), key=7, training={"checkpoint_every": 1, "evaluate_every": 1}), steps=3
        )
    (tmp_path / "run" / "checkpoint-0-3.pt").unlink()  # as if it had been killed before it was written
    spent = Ledger(tmp_path / "run" / "ledger").spent()
    found = read(tmp_path / "run").studies[0]
    assert found.spent("add/remove").tolist() == pytest.approx([spent[label] for label in found.plan.labels])
    assert np.all(found.spent("add/remove") > found.plan.spent(2))
    text = report(tmp_path / "run", output=tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Not all is done: step 2 of 4 with INO-SGD" in text
    assert "NOT PRIVATE against whoever knows it" in text  # its key


def test_an_audit_of_something_else_is_not_put_beside_a_study(demo):
    contents = read(demo / "demo")
    (one,), (study,) = contents.audits, contents.studies
    assert one.about(study)
    assert not replace(one, config=one.config.changed({"data": {"name": "mnist5k"}})).about(study)
    assert not replace(one, name="without privacy").about(study)


def test_where_bounds_of_an_audit_come_from_is_said(demo):
    contents = read(demo / "demo")
    (one,), (study,) = contents.audits, contents.studies
    assert "no bound is above 0" in contents.owners(study).notes[0]
    claim = one.audit.claims[0]
    leak = Bound(
        epsilon=claim.spent / 2,
        delta=claim.delta,
        confidence=0.95,
        route="gaussian",
        contradicts=False,
        plain=0.0,
        scale=0.5,
        evidence="",
    )
    seen = CanaryBound(canary="made up", moves=1.0, bound=leak)
    found = MechanismAudit(claim=claim, promised=1.0, runs=100, confidence=0.95, rows=(seen,))
    contents = replace(contents, audits=(replace(one, audit=replace(one.audit, mechanisms=(found,))),))
    source = "bounds above 0 come from attacks on the mechanism itself"
    assert source in contents.owners(study).notes[0]
    assert source in Page(contents).html().lower()


def test_what_lies_elsewhere_or_is_damaged_is_left_out(demo, tmp_path):
    (tmp_path / "audit").symlink_to(demo / "demo" / "audit")
    with pytest.raises(ValueError, match="holds nothing that a report can show"):
        read(tmp_path)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "part.json").write_text('{"question": 1, "estimand": 1, "value": 1}')
    (tmp_path / "mean.json").write_bytes((demo / "demo" / "statistics" / "mean.json").read_bytes())
    found = read(tmp_path)
    assert len(found.answers) == 1
    assert [note.endswith("part.json: damaged") for note in found.notes] == [True]


def test_titles_and_names_do_not_steer_what_shows_them():
    text = Page(Contents(studies=(made(2, lambda epsilon: 0 * epsilon),)), "a\x1b[2J\u202eb").html()
    assert "a\ufffd[2J\ufffdb" in text
    assert not set(text) & {"\x1b", "\u202e"}


def test_the_command(demo, tmp_path):
    command = typer.Typer()
    command.command()(_cli_report.report)
    answer = demo / "demo" / "statistics" / "mean.json"
    wish = [str(answer), "--output", str(tmp_path / "page.html")]
    found = CliRunner().invoke(command, [*wish, "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["report"] == wish[2]
    assert told["headline"].startswith('Mean of "wage": ')
    assert not told["secret"]
    (row,) = told["statistics"]
    assert row["statistic"] == 'Mean of "wage"'
    assert row["epsilon spent"] == "1"  # the strictest budget suffices for the unbiased estimate
    assert CliRunner().invoke(command, [*wish, "--quiet"]).stdout == f"{wish[2]}\n"
    assert f"{json.loads(answer.read_bytes())['value']:.6g}" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_statement_tells_an_owner_what_was_spent_and_nothing_private(demo, tmp_path, ending):
    command = typer.Typer()
    command.command()(_cli_report.report)
    runs = [str(demo / "demo" / "comparison"), str(demo / "demo" / "audit"), str(demo / "run")]
    path = tmp_path / f"statement.{ending}"
    wish = [*runs, "--statement", "--owner", EVIL[0], "--output", str(path)]
    found = CliRunner().invoke(command, wish)
    assert found.exit_code == 0, (found.output, found.exception)
    text = path.read_text(encoding="utf-8")
    contents = read(*runs)
    (study,) = contents.studies
    index = study.plan.labels.index(EVIL[0])
    assert all(f"{trained.spent[index]:.4g}" in text for trained in study.methods.values())
    (together,) = study.together
    assert f"{together.runs} runs" in text
    assert f"{together.together[index]:.4g}" in text
    exposure = study.focus.plan.exposure([EVIL[0]])
    assert f"{100 * exposure.advantage[0]:.3g} percentage points" in text
    assert "<script>" not in text
    audited = contents.audits[0].bounds[EVIL[0]]  # as secret as the records
    assert str(audited) not in text
    assert "recall" not in text
    assert "udit" not in text
    assert statement(read(runs[0], runs[2]), EVIL[0]).html() == statement(contents, EVIL[0]).html()


def test_a_statement_about_units_counts_units():
    """The number of patients is public, and is no number of records."""
    many = {
        "sample_rates": [0.5],
        "sensitivities": [1.0],
        "sizes": [7],
        "noise_scale": 9.0,
        "steps": 1,
        "labels": ["a"],
    }
    plan = Plan(**many, unit_name="patient", epsilon=[1.0], delta=[1e-5], accountant="pld")
    trained = SimpleNamespace(plan=plan, unit=plan.unit, name="INO-SGD", seeds=[0], asked=1, spent=plan.spent())
    study = SimpleNamespace(
        plan=plan, name="visits", units=[plan.unit], methods={"": trained}, focus=trained, together=()
    )
    text = statement(SimpleNamespace(studies=[study], answers=[]), "a").markdown()
    assert "| 7 patients |" in text
    assert "sampled patients" in text
    assert "patients that were not used" in text
    assert "Records |" not in text


def test_a_statement_about_nobody_is_refused(demo):
    answer = str(demo / "demo" / "statistics" / "mean.json")
    with pytest.raises(ValueError, match="owner 'c' was charged for nothing that was named; owners are a, b"):
        statement(read(answer), "c")
    assert "Mean of" in statement(read(answer), "a").markdown()
    with pytest.raises(ValueError, match="--statement and --owner go together"):
        _cli_report.report([answer], statement=True)


def made(owners, gain, *, seeds=4, records=40, noise=0.02, way=None):
    """A study of made-up runs: INO-SGD changes the recall of every owner by a gain that may depend on its epsilon.

    During training it changes it by another one, if there is one.
    """
    epsilon = np.linspace(0.5, 5, owners)
    labels = [f"clinic {place}" for place in range(owners)]
    columns = {"owner": labels, "epsilon": epsilon, "delta": [1e-5] * owners, "records": [100] * owners}
    ino = settings(owners={"by": "class", "epsilon": 1, "delta": 1e-5})
    methods, who, true = {}, np.repeat(labels, records), np.arange(owners * records) % 2
    for name, config in (("IDP-SGD", ino.changed({"tail": {"kind": "none"}})), ("INO-SGD", ino)):
        plan, curves = planned(config, Owners.from_table(columns), None).last, []
        for seed in range(seeds):
            draw = np.random.default_rng([seed, name == "INO-SGD"])
            curve = LearningCurve()
            for step, gained in ((0, lambda epsilon: 0 * epsilon), (2, way), (4, gain)):
                if gained is None:
                    continue
                level = 0.5 + (name == "INO-SGD") * gained(epsilon) + noise * draw.standard_normal(owners)
                right = np.tile(np.arange(records), owners) < np.repeat((records * level).round(), records)
                found = evaluation(np.ones(true.size), np.where(right, true, 1 - true), true, owners=who)
                curve.append(step, found)
            curves.append(curve)
        methods[name] = Trained(
            name=name,
            source=RunSource(path=name, costs=(), keyed=None, code=None),
            config=config,
            plan=plan,
            spent=plan.spent(),
            seeds=tuple(range(seeds)),
            curves=tuple(curves),
            asked=seeds,
        )
    return TrainedStudy(name="made up", methods=methods)


@pytest.mark.parametrize(
    ("gain", "first", "line"),
    [
        (lambda epsilon: 0.4 - 0.06 * epsilon, "serves the worst-served owner better", "the smaller an owner's budget"),
        (lambda epsilon: -0.3 + 0 * epsilon, "serves the worst-served owner worse", "no significant dependence"),
        (lambda epsilon: 0 * epsilon, "do not differ significantly", "no significant dependence"),
    ],
)
def test_words_say_what_numbers_say(gain, first, line):
    contents = Contents(studies=(made(8, gain),))
    told = " ".join(one.text for one in sentences(contents))
    assert first in headline(contents).text
    assert line in told
    one = contents.studies[0].changes[0]
    values = [contents.studies[0].worst(method) for method in (one.method, one.base)]
    band = stats.ttest_rel(*values).confidence_interval()
    assert (one.worst.low, one.worst.high) == pytest.approx((band.low, band.high))


@pytest.mark.parametrize(("seeds", "count"), [(1, "one seed is"), (2, "2 seeds are")])
def test_few_seeds_are_not_taken_for_no_difference(seeds, count):
    study = made(8, lambda epsilon: -0.4 * (epsilon > 4), seeds=seeds, noise=0.1)
    base = study.methods["IDP-SGD"]
    study = replace(study, methods={"DP-SGD": replace(base, name="DP-SGD"), **study.methods})
    assert not any(found.clear for one in study.changes for found in one.sure)
    told = [one.text for one in sentences(Contents(studies=(study,)))]
    for one in study.changes:
        against = [text for text in told if one.base.name in text]
        assert any(
            f"Against {one.base.name}, {count} too few to tell which of 8 owners gain" in text for text in against
        )
        assert any("most changes for owner clinic 7, with recall" in text for text in against)
        here, there = (method.everyone("recall").mean() for method in (one.method, one.base))
        assert any(f"balanced accuracy {here:.3f} against {there:.3f}" in text for text in against)
    assert not any("within noise" in text or "none of" in text for text in told)


def test_clear_harm_comes_before_what_is_not_clear():
    study = made(8, lambda epsilon: -0.4 * (epsilon > 4))
    idp, ino = study.methods.values()
    plan = {**ino.config.model_dump()["plan"], "method": "uniform"}
    dp = replace(idp, name="DP-SGD", config=idp.config.changed({"plan": plan}))
    same = replace(idp, curves=ino.curves)
    study = TrainedStudy(name="made up", methods={"DP-SGD": dp, "IDP-SGD": same, "INO-SGD": ino})
    assert [one.base.name for one in study.changes] == ["IDP-SGD", "DP-SGD"]
    found = headline(Contents(studies=(study,))).text
    assert found.startswith("INO-SGD serves the worst-served owner worse than DP-SGD does")


def test_a_page_about_statistics_alone_tells_all_of_them(demo):
    (answer,) = read(demo / "demo" / "statistics").answers
    contents = Contents(answers=(answer, replace(answer, question="upper-tail-mean")))
    assert headline(contents).text == "2 private statistics of wages.csv."
    assert [one.text.split(":")[0] for one in sentences(contents)] == ['Mean of "wage"', 'Upper tail mean of "wage"']
    assert len(contents.table().splitlines()) == 3
    assert "standard error" in Page(contents).html()


@pytest.mark.parametrize(("way", "told"), [(0.3, "better than IDP-SGD"), (-0.3, "worse than IDP-SGD"), (0.0, None)])
def test_what_happens_on_the_way_is_told_apart_from_the_end(way, told):
    study = made(4, lambda epsilon: 0 * epsilon, way=lambda epsilon: way + 0 * epsilon)
    contents = Contents(studies=(study,))
    assert "do not differ significantly" in headline(contents).text
    found = [one.text for one in sentences(contents) if one.text.startswith("During training")]
    assert [told in text for text in found] == ([True] if told else [])
    curve = study.focus.curves[0]
    worst = [min(owner.recall for owner in found.by_owner.values()) for found in curve.evaluations]
    assert study.along(study.focus)[0] == pytest.approx((worst[1] + worst[2]) / 2)
    assert introductions(contents)[0].startswith("4 owners hold the 400 training records of made up.")


def test_lines_and_intervals_are_those_of_scipy():
    draw = np.random.default_rng(0)
    x, y = draw.uniform(size=9), draw.normal(size=9)
    found, known = regression(x, y), stats.linregress(x, y)
    margin = stats.t.ppf(0.975, 7) * known.stderr
    assert found.slope.value == pytest.approx(known.slope)
    assert (found.slope.low, found.slope.high) == pytest.approx((known.slope - margin, known.slope + margin))
    assert found.value == pytest.approx(known.intercept + known.slope * found.at)
    assert interval(y).low == pytest.approx(stats.t.interval(0.95, 8, y.mean(), stats.sem(y))[0])
    assert not interval(np.ones(3)).clear  # a few runs that agree do not say how runs vary
    assert regression(x[:2], y[:2]) is None


def test_overspending_and_unfinished_runs_are_said_loudly():
    study = made(3, lambda epsilon: 0 * epsilon)
    one = study.methods["INO-SGD"]
    worse = replace(one, spent=one.spent * 2, asked=9)
    contents = Contents(studies=(replace(study, methods={**study.methods, "INO-SGD": worse}),))
    assert headline(contents).text.startswith("made up: INO-SGD BREAKS what 3 of 3 owners granted: a run spends ")
    assert [one.text for one in sentences(contents) if one.tone == "bad"] == [
        "Not all is done: 4 of 9 runs with INO-SGD."
    ]


def test_of_many_owners_the_strictest_and_the_worst_are_shown():
    study = made(500, lambda epsilon: 0.3 - 0.1 * epsilon, seeds=2)
    contents = Contents(studies=(study,))
    table = contents.owners(study)
    assert len(table.rows) == 41
    assert "460 of 500 owners are not shown" in table.notes[1]
    worst = study.groups[int(np.argmin(study.mean(study.focus)))]
    assert {"clinic 0", "clinic 1", worst} <= {row[0] for row in table.rows}
    pictures = {picture.name: picture for picture in Page(contents).pictures}
    assert len(pictures["curves"].panels) == 12
    assert "488 of 500" in pictures["curves"].note
    assert all(isinstance(one, Picture) and len(one.table.rows) <= 40 for one in pictures.values())


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium: install it, or say where it is with INOSGM_CHROMIUM")
    with Browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


BOXES = """[...document.querySelectorAll(".panel svg")].map(one => one.getBoundingClientRect())
    .map(box => [box.width, box.height])"""
OVER = """[...document.querySelectorAll("body *")].filter(one => !one.closest(".scroll, pre, svg, .unseen, .skip"))
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"""
CUT = """[...document.querySelectorAll("caption span")].filter(one => one.checkVisibility())
    .filter(one => one.getBoundingClientRect().right > one.closest(".scroll").getBoundingClientRect().right + 1)
    .map(one => one.textContent)"""
BODY = "getComputedStyle(document.body).color"
INK = "getComputedStyle(document.querySelector('.panel svg text')).fill"


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_a_browser_shows_it_in_any_light_and_on_a_phone(page, browser, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(OVER) == []
    assert browser.value(CUT) == []
    boxes = np.array(browser.value(BOXES))
    assert len(boxes) > 12
    assert boxes.min() > 60
    assert browser.value("getComputedStyle(document.body).color") == (
        "rgb(233, 238, 243)" if dark else "rgb(28, 39, 51)"
    )
    assert browser.value(INK) == ("rgb(166, 178, 190)" if dark else "rgb(91, 102, 115)")


def test_text_stands_out_from_what_is_behind_it():
    text = (files("inosgm.reports") / "templates" / "page.css").read_text(encoding="utf-8")
    looks = [dict(re.findall(r"--(\w+): #([0-9a-f]{6})\b", part)) for part in text.split("@media (")[:2]]
    assert len(looks) == 2

    def light(colour):
        parts = np.array([int(colour[place : place + 2], 16) for place in (0, 2, 4)]) / 255
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    for look in looks:
        pairs = [(one, behind) for one in ("ink", "faint", "blue") for behind in ("back", "paper", "wash")]
        for one, behind in [*pairs, ("bad", "alarm"), ("ink", "alarm"), ("good", "back"), ("bad", "back")]:
            dark, bright = sorted((light(look[one]), light(look[behind])))
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (one, behind)


def test_a_browser_prints_what_was_run_on_white(page, browser):
    browser.open(page, width=720, dark=True, media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("document.querySelector('#run ~ details pre').getBoundingClientRect().height") > 100
    assert browser.value("document.documentElement.scrollWidth") <= 720
