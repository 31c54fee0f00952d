"""A cluster to which nodes are added that lack something; as a script: the PYTHONPATHs of both.

The first two nodes, and this process, have a `s3fs` that keeps objects in a directory; a node that is added has it if
its PYTHONPATH says so.
"""

import json
import sys

import patience  # noqa: F401  # of Ray, with a busy machine
import ray
from job_tasks import Walk, specs
from ray.cluster_utils import Cluster

from inosgm.jobs import Store
from ray_jobs import RayDataExecutor, RayExecutor

S3FS = '''
"""Stands in for the package of this name: objects are files below FAKE_S3, created exclusively."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from fsspec import AbstractFileSystem

__version__ = "2026.1"


class S3FileSystem(AbstractFileSystem):
    protocol = "s3"

    def _at(self, path):
        return Path(os.environ["FAKE_S3"], self._strip_protocol(path))

    def pipe_file(self, path, value, mode="overwrite", **_):
        self._at(path).parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=os.environ["FAKE_S3"], delete=False) as file:
            file.write(value)
        if mode != "create":
            os.replace(file.name, self._at(path))
            return
        try:
            os.link(file.name, self._at(path))  # whole, and only if there is none
        finally:
            os.unlink(file.name)

    def cat_file(self, path, **_):
        return self._at(path).read_bytes()

    def find(self, path, **_):
        root = Path(os.environ["FAKE_S3"])
        return [str(one.relative_to(root)) for one in self._at(path).rglob("*") if one.is_file()]

    def rm_file(self, path):
        self._at(path).unlink()
'''


def tried(name, executor):
    """Try to get two jobs done, and return the error and the number of jobs that were charged."""
    store = Store(f"s3://bucket/{name}")
    try:
        executor.run(Walk(), specs(2), store, progress=False)
    except RuntimeError as error:
        return str(error), len(store.charges())
    return "done", len(store.charges())


def main(without_s3fs, with_old_numpy):
    """Print what becomes of jobs on two nodes that have everything, beside one without s3fs, and beside an old one."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        cluster.connect()
        found = {"whole": tried("whole", RayExecutor())}
        cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": without_s3fs})
        found["actors"] = tried("actors", RayExecutor())
        found["datasets"] = tried("datasets", RayDataExecutor())
        cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": with_old_numpy})
        found["old"] = tried("old", RayExecutor())
        print(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
