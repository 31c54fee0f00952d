"""Stores in a directory: listed, watched, and deleted only when they are old and idle."""

import json
import os
import time

import pytest
from job_tasks import Walk, added, specs
from typer.testing import CliRunner

from inosgm.cli.jobs import jobs
from inosgm.jobs import SerialExecutor, Store
from inosgm.jobs._seals import StoreDamaged
from inosgm.jobs.housekeeping import find_stores, seconds_of

DAY = 86400


@pytest.fixture
def runs(tmp_path):
    """A finished store that is two days old, and a fresh one with a running job."""
    done, busy = Store(tmp_path / "runs" / "done"), Store(tmp_path / "runs" / "deep" / "busy")
    SerialExecutor().run(Walk(), added(done, specs(2)), done, progress=False)
    job = added(busy, specs(2))[0].id
    busy.begin(job, 1)
    for folder, _, files in os.walk(tmp_path / "runs"):
        for name in files:
            os.utime(os.path.join(folder, name), (time.time() - 2 * DAY,) * 2)
    return tmp_path / "runs"


def call(*words, code=0):
    result = CliRunner().invoke(jobs, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_stores_are_listed_with_the_states_of_their_jobs(runs):
    listed = json.loads(call("list", runs, "--json"))["stores"]
    assert [store["path"] for store in listed] == [str(runs / "deep" / "busy"), str(runs / "done")]
    assert [(store["done"], store["running"], store["left"]) for store in listed] == [(0, 1, 1), (2, 0, 0)]
    assert "done" in call("list", runs)
    with pytest.raises(NotADirectoryError, match="name one that holds stores"):
        list(find_stores(runs / "nowhere"))


def test_only_what_is_old_and_idle_is_deleted_and_only_if_confirmed(runs):
    assert "would delete" in call("clean", runs, "--older-than", "1d")
    assert (runs / "done").exists()
    assert "no store" in call("clean", runs, "--older-than", "3d", "--yes")
    told = call("clean", runs, "--older-than", "1d", "--yes")
    assert "deleted" in told
    assert "busy" not in told
    assert not (runs / "done" / "jobs").exists()
    assert (runs / "deep" / "busy" / "jobs").exists()


def test_charges_stay_when_results_are_deleted(runs):
    """The rows of a store may be the only record of what owners have spent; a ledger may lie beside them."""
    store, beside = Store(runs / "done"), runs / "done" / "spent.ledger"
    beside.write_text("rows")
    rows = {
        path: path.read_bytes() for kind in ("ledger", "costs", "noise") for path in (runs / "done" / kind).iterdir()
    }
    os.utime(beside, (time.time() - 2 * DAY,) * 2)
    assert len(rows) == 5
    call("clean", runs, "--older-than", "1d", "--yes")
    assert beside.read_text() == "rows"
    assert all(path.read_bytes() == row for path, row in rows.items())
    assert "no store" in call("clean", runs, "--older-than", "0h", "--yes")
    assert "done" in call("list", runs)
    with pytest.raises(StoreDamaged, match="was charged before"):
        store.add(specs(2)[0])


def test_a_store_without_charges_is_deleted_whole(tmp_path):
    store = Store(tmp_path / "runs")
    added(store, specs(1))
    assert "deleted" in call("clean", tmp_path, "--older-than", "0h", "--yes")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1y"])
def test_an_age_has_a_unit(age):
    with pytest.raises(ValueError, match="such as 30d"):
        seconds_of(age)


def test_watching_ends_when_no_job_runs(runs):
    assert call("status", runs / "done", "--watch").count("2 done") == 1
