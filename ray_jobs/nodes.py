"""Whether every node of a cluster can work: asked before the first job."""

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from inosgm.jobs import Store, interrupts
from inosgm.jobs.processes import THREADS
from ray_jobs.capacity import Request

SAME = ("inosgm", "numpy", "scipy", "torch", "pyarrow")
"""Packages that results depend on, or that records are read with: every node needs the versions of the command."""

WAIT = 0.5
"""Seconds between two checks for Ctrl-C while nodes answer."""

MISSING = re.compile(r"No module named '[\w.]+'|Can't get attribute '[\w.]+'")
"""What may be shown of an error of Python that may come from a task: names of modules, not of data."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """The report of a node.

    Attributes:
        versions: Of Python and of `SAME`, as far as they are installed.
        store: Why the store cannot be used there; empty if it can.
    """

    versions: Mapping[str, str]
    store: str

    def problems(self, wanted: Mapping[str, str]) -> list[str]:
        """Return in what a node differs from the process that asks, whose versions these are."""
        found = [
            f"{name} {self.versions[name]} instead of {version}" if name in self.versions else f"{name} is missing"
            for name, version in wanted.items()
            if self.versions.get(name) != version
        ]
        return [*found, *[self.store] * bool(self.store)]


class StoreOutOfReach(RuntimeError):
    """A store that a worker cannot open. Its words show no record: none is read for that."""


def opened(uri: str) -> Store:
    """Open a store in a worker.

    Raises:
        StoreOutOfReach: if that cannot be, saying why.
    """
    try:
        store = Store(uri)
        there = store.exists()
    except Exception as error:
        raise StoreOutOfReach(f"the store {uri} is out of reach ({type(error).__name__}: {error})") from None
    if not there:
        raise StoreOutOfReach(
            f"the store {uri} is not there: use a path that all nodes of the cluster share, or an object store"
        )
    return store


def look(uri: str) -> Look:
    """Return what the node that this runs on has."""
    try:
        opened(uri)
    except StoreOutOfReach as trouble:
        return Look(versions=versions(), store=str(trouble))
    return Look(versions=versions(), store="")


def versions() -> dict[str, str]:
    """Return the versions of Python and of `SAME`, as far as they are installed here."""
    found = {"python": platform.python_version()}
    for name in SAME:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_nodes(request: Request, store: Store) -> None:
    """Raise if a node that may get work lacks a package, has another version of one, or cannot use the store.

    Nothing is begun or charged before. Nodes that die meanwhile do not count, and nodes that join later are not asked.

    Raises:
        RuntimeError: with a line for each such node.
    """
    ask: Any = ray.remote(num_cpus=0, max_retries=0, runtime_env={"env_vars": environment(request)})(look)
    nodes = {node["NodeID"]: _name(node) for node in _living() if request.held_by(node["Resources"])}
    asked = {
        ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(store.uri): node
        for node in nodes
    }
    wanted, problems, waiting = versions(), list[str](), list(asked)
    while waiting and not interrupts.asked():
        answered, waiting = ray.wait(waiting, timeout=WAIT)
        for answer in answered:
            node = asked[answer]
            try:
                found = ray.get(answer).problems(wanted)
            except RayError as error:
                found = [first_words(error)] if node in {one["NodeID"] for one in _living()} else []
            problems += [f"{nodes[node]}: {'; '.join(found)}"] * bool(found)
    if problems:
        raise RuntimeError(
            "\n  ".join([f"{len(problems)} of {len(nodes)} nodes of the cluster cannot do the work:", *problems])
            + "\nevery node needs the same packages in the same versions, and the store; nothing was begun or charged"
        )


def first_words(error: RayError) -> str:
    """Return in a line why a worker failed before it had work; of errors that may show data, only names of modules."""
    text = str(error)
    missing = MISSING.search(text)
    if isinstance(error, RayTaskError):
        cause = error.cause
        return str(cause) if isinstance(cause, StoreOutOfReach) else missing[0] if missing else type(cause).__name__
    if missing:
        return missing[0]
    told = text.strip().splitlines()
    begun_badly = isinstance(error, RayActorError) and getattr(error, "actor_init_failed", False)
    return told[-1].partition(":")[0] if begun_badly else f"{type(error).__name__}: {told[0] if told else ''}"


def environment(request: Request) -> dict[str, str]:
    """Return what libraries read before they are imported: how many threads, and no GPU where none was asked for."""
    threads = dict.fromkeys(THREADS, str(request.threads))
    return threads if request.num_gpus else threads | {"CUDA_VISIBLE_DEVICES": ""}


def living() -> list[dict[str, float]]:
    """Return what the nodes of the cluster have that are alive."""
    return [node["Resources"] for node in _living()]


def _living() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _name(node: Mapping[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}:{node['NodeManagerPort']})"
