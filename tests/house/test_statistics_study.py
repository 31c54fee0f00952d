"""The pieces of the study of statistics work together, on embedded data and for a few releases."""

import csv

import numpy as np
import pytest

from examples.statistics_study import __main__ as study
from examples.statistics_study import opendp_peer, truths
from examples.statistics_study.answering import WAYS, answers
from examples.statistics_study.measuring import HEAD, measured
from examples.statistics_study.questions import QUESTIONS
from examples.statistics_study.running import DEALT, run
from examples.statistics_study.tables import EMBEDDED, FILED, load
from examples.statistics_study.ways import EACH_ONCE, STRATIFIED, STRICTEST, WEIGHTED
from inosgm import HardTail

TABLES = load([*EMBEDDED], None)
AREA = next(q for q in QUESTIONS if (q.statistic, q.table) == ("mean", "breast cancer"))


def test_owners_that_are_dealt_out_hold_as_many_rows_and_grant_the_same():
    for table in TABLES.values():
        related, dealt = (table.owners(2.0, deal) for deal in (None, 0))
        assert related.labels == dealt.labels
        assert related.sizes.tolist() == dealt.sizes.tolist()
        assert related.epsilon.tolist() == dealt.epsilon.tolist() == [2 * table.epsilon[k] for k in related.labels]
        assert np.any(related.of_record != dealt.of_record)


def test_errors_are_split_into_bias_and_deviation():
    found = np.random.default_rng(0).normal(3.0, 2.0, (500, 4))
    about = dict(table="", owners="", factor=1.0, statistic="", of="", way="")
    row = measured(found, np.full(4, 2.0), 0.5, **about)
    assert row.rmse**2 == pytest.approx(row.bias**2 + row.deviation**2)
    assert row.bias == pytest.approx(4.0, rel=0.1)
    assert row.deviation == pytest.approx(8.0, rel=0.1)


def test_truths():
    values = np.random.default_rng(1).exponential(size=1000)
    assert truths.upper_tail_mean(0.9)(values) == pytest.approx(np.sort(values)[-100:].mean())
    trimmed = truths.about_median(lambda n: HardTail(0.1 * n))(values)
    nearest = np.argsort(np.abs(values - np.median(values)))[:900]
    assert trimmed == pytest.approx(values[nearest].mean())
    rows = np.random.default_rng(2).normal(size=(200, 3))
    line = np.column_stack([rows, rows @ [1.0, 2.0, 3.0] + 4])
    line[:20, -1] += 100
    assert truths.least_trimmed_squares(0.9)(line) == pytest.approx([4, 1, 2, 3])
    assert truths.projector(rows, -rows[:2] / 3) == pytest.approx(truths.projector(rows, rows[:2] / 3))


def test_what_is_answered_again_is_answered_the_same():
    table = TABLES["breast cancer"]
    data, owners = table.data(AREA.columns), table.owners(1.0)
    first, second = (answers(AREA, data, owners, EACH_ONCE, 3) for _ in range(2))
    assert np.array_equal(first, second)
    assert len(np.unique(first)) == 3


def test_weights_by_budgets_help_where_owners_are_dealt_out_and_bias_where_they_differ(monkeypatch):
    monkeypatch.setattr(opendp_peer, "AVAILABLE", False)
    rows = {(row.factor, row.owners == DEALT, row.way): row for row in run([AREA], TABLES, releases=50)}
    assert rows[0.25, True, WEIGHTED].rmse < 0.7 * rows[0.25, True, STRICTEST].rmse
    for way in (
        EACH_ONCE,
        STRATIFIED,
        STRICTEST,
    ):  # unbiased: a mean error of 5 of its standard errors has probability 6e-7
        assert rows[4, False, way].bias < 5 * rows[4, False, way].deviation / np.sqrt(50)
    assert rows[4, False, WEIGHTED].bias > 5 * rows[4, False, WEIGHTED].deviation / np.sqrt(50)


def test_the_study_writes_numbers_figures_and_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(opendp_peer, "AVAILABLE", False)
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "statistics.md").write_text("# Words\n<!-- errors -->old<!-- end -->\nmore words\n")
    study.main(["--tables", *EMBEDDED, "--releases", "2", "--out", str(tmp_path / "out"), "--pages", str(pages)])
    page = (pages / "statistics.md").read_text()
    assert "old" not in page
    assert "more words" in page
    assert "| mean | breast cancer" in page
    names = {"statistics.csv", "statistics-budgets.svg", "statistics-ratios.svg"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    with (pages / "statistics.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == HEAD
    assert {row[0] for row in rows} == set(EMBEDDED)
    assert {row[5] for row in rows} <= set(WAYS)
    assert "minutes of processor time" in capsys.readouterr().out


@pytest.mark.skipif(not opendp_peer.AVAILABLE, reason="opendp is not installed")
def test_opendp_at_the_same_budget_has_the_noise_that_it_should():
    values = np.random.default_rng(3).uniform(0, 10, 2000)
    for chain, sensitivity in ((opendp_peer.mean, 10 / 2000), (opendp_peer.centred_mean, 5 / 2000)):
        found = chain(values, (0.0, 10.0), 1.0, 1e-6).releases(400)
        deviation = found.std() / sensitivity
        assert 3.7 < deviation < 6.2  # 4.22 is the least that (1, 1e-6) allows, OpenDP's rule gives 4.6: 5 errors off
        assert abs(found.mean() - values.mean()) < 5 * found.std() / 20


@pytest.mark.shared_data
def test_the_tables_of_files(shared_data):
    sizes = {name: table.groups.size for name, table in load([*FILED], shared_data).items()}
    assert sizes == {"cps1988": 28155, "nmes1988": 4406, "adult": 48842}
    for table in load([*FILED], shared_data).values():
        for question in QUESTIONS:
            if question.table == table.name:
                assert len(table.data(question.columns)) == table.groups.size


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="--data-dir"):
        load(["adult"], None)
    with pytest.raises(FileNotFoundError, match="cps1988"):
        load(["cps1988"], tmp_path)
