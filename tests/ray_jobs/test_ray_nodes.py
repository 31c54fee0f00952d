"""Every node is asked, before the first job, whether it has the packages, their versions and the store."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_worker import S3FS
from job_tasks import Walk, specs
from ray.exceptions import RayTaskError

from inosgm.jobs import Store
from ray_jobs import RayDataExecutor, RayExecutor, nodes
from ray_jobs.nodes import Look, StoreOutOfReach, first_words, versions

SCRIPT = Path(__file__).parents[1] / "support" / "cluster_worker.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What is said about jobs on two nodes that have everything, with one without `s3fs`, and with an old numpy.

    It is old as far as metadata say. All are nodes of one cluster, to which they are added one after the other.
    """
    folder = tmp_path_factory.mktemp("nodes")
    for name in ("s3", "old", "objects"):
        (folder / name).mkdir()
    (folder / "s3" / "s3fs.py").write_text(S3FS)
    old = folder / "old" / "numpy-1.0.1.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0.1\n")

    def path(*names):
        return os.pathsep.join([*(str(folder / name) for name in names), os.environ["PYTHONPATH"]])

    command = [sys.executable, SCRIPT, path(), path("s3", "old")]
    environment = {**os.environ, "PYTHONPATH": path("s3"), "FAKE_S3": str(folder / "objects")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.long
def test_nodes_that_have_everything_do_the_jobs(told):
    assert told["whole"] == ["done", 2]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["actors", "datasets"])
def test_a_node_without_s3fs_is_named_before_anything_is_begun(told, kind):
    """Fails on 76c85f1: workers there end again and again until the other node has done all jobs, or none can."""
    found, charged = told[kind]
    first, node, *_ = found.splitlines()
    assert first == "1 of 3 nodes of the cluster cannot do the work:"
    about = f"the store s3://bucket/{kind} is out of reach (ImportError: store 's3://bucket/{kind}' cannot be reached"
    assert about in node
    assert "s3fs" in node
    assert found.endswith("nothing was begun or charged")
    assert charged == 0


@pytest.mark.long
def test_so_is_one_with_other_versions(told):
    """Fails on 76c85f1, where the jobs are done."""
    found, charged = told["old"]
    assert found.startswith("2 of 4 nodes of the cluster cannot do the work:\n")
    assert f": numpy 1.0.1 instead of {versions()['numpy']}\n" in found
    assert charged == 0


@pytest.mark.usefixtures("embedded_ray")
@pytest.mark.parametrize("executor", [RayExecutor(), RayDataExecutor()])
def test_a_node_that_differs_is_named_before_anything_is_begun(tmp_path, monkeypatch, executor):
    """As the tests above, with one node, of a command that has an older numpy and a store that is not there."""
    here, store = versions(), Store(tmp_path / "store")
    monkeypatch.setattr(nodes, "versions", lambda: here | {"numpy": "1.0.1"})
    with pytest.raises(RuntimeError, match="1 of 1 nodes of the cluster cannot do the work") as refused:
        executor.run(Walk(), specs(2), store, progress=False)
    assert f": numpy {here['numpy']} instead of 1.0.1\n" in str(refused.value)
    assert len(store.charges()) == 0
    with pytest.raises(RuntimeError, match=r"the store .*none is not there: use a path that all nodes"):
        nodes.check_nodes(executor.request, Store(tmp_path / "none"))


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
