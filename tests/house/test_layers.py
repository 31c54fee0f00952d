"""The direction of imports: every room imports the rooms below it only, and no file is part of a cycle.

All imports count: eager ones, lazy ones inside functions, those for type checkers, and `import_module("...")`. A name
that a package exports counts as an import of the module that defines it.
"""

import sys

import pytest
from import_graph import LAYER_OF, Graph, cycle_of, room_of

# The third-party packages that a room or a file may import; all may import numpy and scipy.
MAY_IMPORT = {
    "inosgm._internal": {"array_api_compat", "yaml"},
    "inosgm.owners": {"array_api_compat"},
    "inosgm.ledger": {"dp_accounting"},  # a ledger exports its events as theirs
    "inosgm.planning": {"pydantic"},
    "inosgm.mechanism": {"array_api_compat"},
    "inosgm.mechanism.secure_generator": {"cryptography"},
    "inosgm.mechanism.noise": {"torch"},  # noise for a tensor: torch is loaded already if there is one
    "inosgm.jobs": {"fsspec", "pyarrow", "rich"},
    "inosgm.datasets": {"sklearn"},
    "inosgm.statistics": {"fsspec", "pyarrow"},
    "inosgm.training": {"opacus", "rich", "tensorboardX", "torch"},
    "inosgm.methods.adapdp": {"torch"},
    "inosgm.methods.ipate": {"torch"},
    "inosgm.experiments": {"pyarrow", "pydantic", "torch"},
    "inosgm.audit": {"array_api_compat", "pyarrow", "rich", "torch"},
    "inosgm.reports": {"jinja2", "markupsafe", "matplotlib"},
    "inosgm.cli": {"rich", "sklearn", "torch", "typer"},
    "inosgm.cli.stats.several": {"pydantic"},  # checks a file of questions
    "ray_jobs": {"pyarrow", "ray", "typer"},
    "ray_jobs.verify_gpus": {"torch"},
}


@pytest.fixture(scope="module")
def graph():
    return Graph()


def test_every_room_has_a_layer(graph):
    assert {room_of(module) for module in graph.file_of} == set(LAYER_OF)


def test_imports_point_downwards(graph):
    upward = [
        found
        for found in graph.own
        if room_of(found.source) != room_of(found.target)
        and LAYER_OF[room_of(found.source)] <= LAYER_OF[room_of(found.target)]
    ]
    assert not list(map(str, upward)), "move what is imported to a lower room, or pass it as an argument"


def test_no_files_import_each_other_in_a_circle(graph):
    assert cycle_of((found.source, found.target) for found in graph.own) == []


def test_rooms_import_the_packages_that_they_may(graph):
    used, strangers = set(), []
    for found in graph.third_party:
        package = found.target.partition(".")[0]
        granting = [part for part in MAY_IMPORT if f"{found.source}.".startswith(f"{part}.")]
        granting = [part for part in granting if package in MAY_IMPORT[part]]
        used.update((part, package) for part in granting)
        if not granting and package not in {*sys.stdlib_module_names, "numpy", "scipy"}:
            strangers.append(str(found))
    assert not strangers, "these packages belong to other rooms"
    idle = {(part, package) for part, packages in MAY_IMPORT.items() for package in packages} - used
    assert not idle, "these permissions are not used: take them off the list"
