"""The demonstration, in a small size: everything is made once, and a second time only looked at."""

import json
from dataclasses import replace

import pytest

from inosgm import Ledger
from inosgm.cli.demonstration import Size, run
from inosgm.jobs import Executor, SerialExecutor

SMALL = Size(steps=6, rates=(1.0, 9.0), fractions=(0.7,), strengths=(0.5,), seeds=2, shadows=8, runs=100)


class Nobody(Executor):
    """Fails if it is asked to work."""

    def pool(self, task, store):
        raise AssertionError("nothing should be left to do")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, told = tmp_path_factory.mktemp("demo") / "demo", []
    contents = run(folder, SerialExecutor(), size=SMALL, progress=False, tell=told.append)
    return folder, contents.table(), told


def test_it_ends_in_a_table_and_a_page(made):
    folder, table, told = made
    header, *rows = [line.split() for line in table.splitlines()]
    assert header[:6] == ["owner", "granted", "spent", "audited,", "INO-SGD,", "adjusted"]
    assert header[6:] == ["DP-SGD", "IDP-SGD", "INO-SGD", "INO-SGD,", "adjusted"]
    owners = rows[:10]
    assert [row[0] for row in owners] == [str(digit) for digit in range(10)]
    for row in owners:
        assert 0.98 * float(row[1]) < float(row[2]) <= float(row[1])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(method in page for method in ("DP-SGD", "IDP-SGD", "INO-SGD", "INO-SGD, adjusted"))
    assert "Owner 0 is the strictest, with ε = 0.1. It holds 10" in page
    assert any("upper-tail-mean of area error" in line for line in told)


def test_nobody_pays_more_than_they_grant_for_the_statistics(made):
    folder, _, _ = made
    ledger = Ledger(folder / "statistics" / "ledger")
    spent = ledger.spent()
    assert 1 < spent["benign"] <= 5  # it pays only what the estimates need
    assert 0.6 < spent["malignant"] <= 1
    answer = json.loads((folder / "statistics" / "upper-tail-mean.json").read_text())
    assert abs(answer["value"] - 86.4) < 6 * answer["standard_error"]  # false alarms: 2e-9


def test_a_second_run_does_nothing_but_look(made):
    folder, table, _ = made
    spent = Ledger(folder / "statistics" / "ledger").spent()
    assert run(folder, Nobody(), size=SMALL, progress=False, tell=lambda _: None).table() == table
    assert Ledger(folder / "statistics" / "ledger").spent() == spent
    with pytest.raises(AssertionError, match="nothing should be left"):
        run(folder, Nobody(), size=replace(SMALL, seeds=3), progress=False, tell=lambda _: None)


def test_what_other_code_has_made_is_moved_aside_and_other_things_are_left_alone(tmp_path, monkeypatch):
    folder, told = tmp_path / "demo", []
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other things"):
        run(folder, Nobody(), size=SMALL, progress=False, tell=told.append)
    (folder / "demo.json").write_text('{"code": "0.0.1+older"}')
    with pytest.raises(AssertionError):
        run(folder, Nobody(), size=SMALL, progress=False, tell=told.append)
    assert (tmp_path / "demo-0.0.1+older" / "thesis.txt").read_text() == "mine"
    assert "was made by other code" in told[0]
    (folder / "demo.json").write_text('{"code": "0.0.1+older"}')  # and once more
    with pytest.raises(AssertionError):
        run(folder, Nobody(), size=SMALL, progress=False, tell=told.append)
    assert (tmp_path / "demo-0.0.1+older-again" / "demo.json").exists()


def test_nothing_is_audited_or_shown_after_a_run_that_tunes_was_given_up(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr("inosgm.experiments.TrainingTask.run", fails)
    with pytest.raises(RuntimeError, match="runs failed permanently"):
        run(tmp_path / "demo", SerialExecutor(), size=SMALL, progress=False, tell=lambda _: None)
    assert not (tmp_path / "demo" / "audit").exists()
