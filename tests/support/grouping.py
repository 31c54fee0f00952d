"""A pytest plugin that decides which tests one process of pytest-xdist runs, in the order of their files.

`--dist loadgroup` itself writes the name of a group into an attribute of the test that pytest 9.2 does not read any
more (pytest-xdist 3.8): every test is then a group of its own, and a fixture of a file is made by every process.
"""

import os
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED = 'scope="module"'
"""What a file contains whose tests look at one thing that takes its time to make: one process makes it, once."""


def group_of(nodeid, root=Path()):
    """Return the name of the group of a test: its own, unless it uses Ray or shares what takes its time to make."""
    file = nodeid.partition("::")[0]
    if Path(file).stem.startswith("test_ray_"):
        return "ray"  # one cluster at a time: several starve each other
    return file if shares(root / file) else nodeid


@cache
def shares(file):
    """Say whether a file has a fixture that is made once for all of its tests."""
    return SHARED in file.read_text(encoding="utf-8")


class GroupScheduling(LoadScopeScheduling):
    """Sends all tests of a group to one process; the largest groups first."""

    def _split_scope(self, nodeid):
        return group_of(nodeid, self.config.rootpath)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Say how many processes `-n auto` starts: one more than cores, since tests of Ray and of kills mostly wait."""
    return (os.cpu_count() or 1) + 1
