"""What killed processes leave behind: no file of a finished store or run may hold a key or an unreleased sum."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import killed_worker
import numpy as np
import pytest
from typer.testing import CliRunner

from inosgm._internal.scratch import scratch_directory
from inosgm.cli.program import app
from inosgm.jobs import JobSpec, Result, Store

SCRIPT = Path(__file__).parents[1] / "support" / "killed_worker.py"


EVERY = pytest.mark.parametrize("every", [30, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
"""Kills before every thirtieth call that changes files, and before every one."""


def killed_everywhere(command, folder, every):
    """Kill a worker before its calls, finish its work each time, and return the folders."""
    subprocess.run([sys.executable, SCRIPT, command, folder, str(every)], check=True)
    return sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def found_in(folder, secrets):
    """Return the files that hold one of these contents."""
    return [str(path.relative_to(folder)) for path in files(folder) if any(one in path.read_bytes() for one in secrets)]


def keys_of(folder):
    """Return the digits of the keys that the killed process had made in a folder."""
    text = (folder.parent / f"keys-{folder.name}").read_text()
    return [word.encode() for word in text.replace('"', " ").split() if word.isdecimal() and len(word) > 20]


@EVERY
@pytest.mark.parametrize("command", ["store", "statistic"])
def test_a_finished_store_holds_no_secret_of_a_writer_that_was_killed_anywhere(tmp_path, command, every):
    folders = killed_everywhere(command, tmp_path, every)
    known = [killed_worker.SECRET, str(killed_worker.KEY).encode()]
    assert sum(len(keys_of(folder)) for folder in folders) > 10 / every  # the search below is for something
    left = {}
    for folder in folders:
        left[folder.name] = found_in(folder, [*known, *keys_of(folder)])
        left[folder.name] += [str(path) for path in (folder / "store" / "jobs").rglob(".*")]  # drafts of any kind
        if command == "statistic":
            left[folder.name] += [str(path) for path in folder.rglob("arrays.npz")]
    assert not {name: found for name, found in left.items() if found}


@EVERY
def test_a_finished_run_holds_no_secret_of_a_process_that_was_killed_anywhere(tmp_path, every):
    folders = killed_everywhere("run", tmp_path, every)
    assert sum(len(keys_of(folder)) for folder in folders) > 10 / every
    left = {folder.name: found_in(folder, keys_of(folder)) for folder in folders}
    left = {name: found + [path.name for path in (tmp_path / name).glob(".*")] for name, found in left.items()}
    assert not {name: found for name, found in left.items() if found}


def done(store, **result):
    """Return a job that is done."""
    spec = JobSpec(kind="sum", configuration={}, data_fingerprint="", code_version="1")
    job = store.add(spec, key=killed_worker.KEY)
    store.begin(job, 1)
    store.commit(job, 1, Result(**result))
    return job


@pytest.mark.parametrize("kind", ["directory", "object store"])
def test_what_comes_after_the_end_of_a_job_goes_when_the_store_is_opened(tmp_path, kind):
    """A process that slept writes key, checkpoint and arrays of a job that others have finished, and is killed."""
    place = tmp_path / "store" if kind == "directory" else f"memory://{tmp_path.name}"
    store = Store(place)
    job = done(store, arrays={"sum": np.ones(2)})
    store._create(f"jobs/{job}/key", {"key": str(killed_worker.KEY)})
    store.save(job, 1, 5, b"half")
    store._records.replace(f"jobs/{job}/attempts/2/arrays.npz", b"records")
    assert store.states()[job].leftovers
    Store(place).fingerprint([b""])
    assert not store.states()[job].leftovers
    assert [name.rpartition("/")[2] for name in store._records.names("jobs") if "attempts" in name] == [
        "arrays.npz",
        "begun.json",
    ]
    assert store.result(job).arrays["sum"].tolist() == [1, 1]
    store.forget(job)
    store._records.replace(f"jobs/{job}/attempts/2/arrays.npz", b"records")
    Store(place).fingerprint([b""])
    assert not store.states()[job].arrays


@pytest.mark.parametrize("command", [["jobs", "status"], ["jobs", "summary"], ["report", "--output", "page.html"]])
def test_commands_that_look_at_a_store_delete_secrets_of_jobs_that_are_done(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    job = done(store)
    (tmp_path / "store" / "jobs" / job / ".draft-0123456789abcdef").write_bytes(b"the key")
    CliRunner().invoke(app, [*command, "store"])  # which may find nothing to show
    assert not found_in(tmp_path, [b"the key"])


def test_a_store_that_cannot_be_written_to_is_looked_at_all_the_same(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    job = done(store)
    (tmp_path / "store" / "jobs" / job / ".draft-0123456789abcdef").write_bytes(b"the key")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "unlink", refuse)
    assert Store(tmp_path / "store").fingerprint([b""])


def test_the_scratch_folder_of_a_killed_process_is_deleted_and_that_of_a_living_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pid = os.fork()
    if not pid:
        with scratch_directory("job") as folder:
            Path(folder, "private.jsonl").write_text("unreleased")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert len(found_in(tmp_path, [b"unreleased"])) == 1
    with scratch_directory("job") as mine:
        assert not found_in(tmp_path, [b"unreleased"])
        assert os.stat(mine).st_mode & 0o777 == 0o700
        with scratch_directory("audit") as other:
            assert sorted(map(str, tmp_path.iterdir())) == sorted([mine, other])
    assert not list(tmp_path.iterdir())


def test_a_scratch_folder_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make, swept = tempfile.mkdtemp, []

    def swept_first(**options):
        folder = make(**options)
        if not swept:
            swept.append(folder)
            with scratch_directory("other"):
                assert not os.path.exists(folder)
        return folder

    monkeypatch.setattr("inosgm._internal.scratch.mkdtemp", swept_first)
    with scratch_directory("job") as folder:
        assert os.path.isdir(folder)
        assert folder not in swept
