"""Every node is asked, before the first job, whether it has the packages, their versions and the store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_worker import S3FS
from ray.exceptions import RayTaskError

from ray_jobs.nodes import Look, StoreOutOfReach, first_words, versions

HERE = Path(__file__).parents[1] / "support"


@pytest.fixture
def places(tmp_path):
    """A directory with a `s3fs`, one with an old numpy, as far as metadata say, and one for objects."""
    for name in ("s3", "old", "objects"):
        (tmp_path / name).mkdir()
    (tmp_path / "s3" / "s3fs.py").write_text(S3FS)
    old = tmp_path / "old" / "numpy-1.0.1.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0.1\n")
    return tmp_path


def told(places, kind, uri, second):
    """Run jobs on two nodes, of which the second has another PYTHONPATH, and return what is said."""
    paths = {name: os.pathsep.join([*(str(place) for place in some), str(HERE)]) for name, some in second.items()}
    environment = {**os.environ, "PYTHONPATH": paths["first"], "FAKE_S3": str(places / "objects")}
    command = [sys.executable, HERE / "cluster_worker.py", kind, uri, paths["second"]]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", ["actors", "datasets"])
def test_a_node_without_s3fs_is_named_before_anything_is_begun(places, kind):
    """Fails on 76c85f1: workers there end again and again until the other node has done all jobs, or none can."""
    found = told(places, kind, "s3://bucket/store", {"first": [places / "s3"], "second": []})
    first, node, *_ = found.splitlines()
    assert first == "1 of 2 nodes of the cluster cannot do the work:"
    assert (
        "the store s3://bucket/store is out of reach (ImportError: store 's3://bucket/store' cannot be reached" in node
    )
    assert "s3fs" in node
    assert found.endswith("nothing was begun or charged\ncharged 0\n")


def test_so_is_one_with_other_versions_and_one_without_a_package(places):
    """Fails on 76c85f1, where the jobs are done."""
    second = [places / "s3", places / "old"]
    found = told(places, "actors", "s3://bucket/store", {"first": [places / "s3"], "second": second})
    assert f": numpy 1.0.1 instead of {versions()['numpy']}\n" in found
    assert "charged 0" in found


def test_nodes_that_have_everything_do_the_jobs(places):
    both = {"first": [places / "s3"], "second": [places / "s3"]}
    assert told(places, "actors", "s3://bucket/store", both) == "done\n"


def test_what_a_node_lacks_is_listed():
    mine = {"python": "3.11.7", "numpy": "2.0", "torch": "2.5"}
    assert Look(versions=mine, store="").problems(mine) == []
    assert Look(versions={**mine, "scipy": "1"}, store="").problems(mine) == []
    theirs = Look(versions={"python": "3.11.7", "numpy": "1.0"}, store="the store x is not there")
    assert theirs.problems(mine) == ["numpy 1.0 instead of 2.0", "torch is missing", "the store x is not there"]


def test_words_of_a_worker_show_no_data():
    def raised(cause, text=""):
        return RayTaskError("hello", f"Traceback\n{text}{type(cause).__name__}: {cause}", cause)

    assert first_words(raised(ValueError("Jane Doe, 52"))) == "ValueError"
    missing = ModuleNotFoundError("No module named 'own.model'")
    assert first_words(raised(missing)) == "No module named 'own.model'"
    assert first_words(raised(StoreOutOfReach("the store x is not there"))) == "the store x is not there"
