"""The store: jobs, their ledger rows, attempts and results, as records that are created once."""

import errno
import io
import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from time import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import SecretKey
from inosgm.accounting.units import ADD_REMOVE
from inosgm.jobs._compaction import compacted
from inosgm.jobs._liveness import Place, here
from inosgm.jobs._records import Records, records_at
from inosgm.jobs._seals import StoreDamaged, checksum, pack, seal, unpack, unseal
from inosgm.jobs._states import ENDINGS, JobState, states_of
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.task import Result
from inosgm.ledger.charges import CostTable
from inosgm.ledger.cost import Cost
from inosgm.ledger.refusals import JobMismatch
from inosgm.mechanism.noise import name_of_noise

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger

FORMAT = 1
"""The format of records; a store of another format is refused, because its records would be misread."""


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed: the type of the error, and its traceback, which may show data."""

    kind: str
    traceback: str


class Store:
    """Jobs, their charges, attempts and results, at a path or in an object store.

    **Guarantee.** Every record is created exclusively: of several writers, on any machines, the first one wins and the
    others get an error. So a job has one ledger row, an attempt one worker and a job one result, even if a network
    partition hides workers that still run. A record is seen whole or not at all, and carries a checksum. The guarantee
    assumes that the file system, or the object store, creates records exclusively; one that was seen not to is refused.

    Names of records are public: ids of jobs, numbers of attempts. Fingerprints of data are keyed with a secret of the
    store, so that guesses about records cannot be tested with them. `salt` and `jobs/*/key` are secrets. Checkpoints
    and tracebacks are unreleased. The key, the checkpoints and the tracebacks of a job are deleted
    when it is done, with all drafts of them; what a killed process has left of a finished job is deleted by
    `sweep`, when the store is next written to.

    Args:
        uri: A path, or a URI that fsspec knows. Creating this object writes nothing.
        lease: Seconds without a heartbeat after which a worker on another machine is taken for dead. A store that
            exists has its own.

    Raises:
        ValueError: for a place that cannot hold a store.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     store = Store(directory)
    ...     job = store.add(JobSpec(kind="sum", configuration={"n": 3}, data_fingerprint="", code_version="1"))
    ...     store.states()[job].status
    'left'
    """

    def __init__(self, uri: str | os.PathLike[str], *, lease: float = 30.0) -> None:
        self._records: Records = records_at(os.fspath(uri))
        self._lease = _validate.number("lease", lease, above=0)
        self._made = False
        self._costs: set[str] = set()

    @property
    def uri(self) -> str:
        """The place of the store."""
        return self._records.uri

    @property
    def lease(self) -> float:
        """Seconds without a heartbeat after which a worker on another machine is taken for dead."""
        with suppress(FileNotFoundError):
            self._lease = float(self._sealed("store.json")["lease"])
        return self._lease

    def exists(self) -> bool:
        """Return whether anything was ever written here."""
        try:
            return bool(self._sealed("store.json"))
        except FileNotFoundError:
            return False

    def probe(self) -> None:
        """Raise if nothing can be written here, or if records are not created exclusively."""
        self._records.probe()

    def sweep(self) -> None:
        """Delete secrets of finished jobs that killed processes have left; the first writing call does it.

        A store that this user may not write to is left as it is.
        """
        try:
            states = self.states()
            for job, state in states.items():
                if state.done and state.leftovers:
                    self.cleanup(job)
            done = {job for job, state in states.items() if state.done}
            self._records.sweep(lambda name: name.startswith("jobs/") and name.split("/")[1] in done)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise

    def require_shared(self) -> None:
        """Raise if other processes cannot see the store."""
        if self.uri.startswith("memory:"):
            raise ValueError(
                f"store must be one that other processes see, got {self.uri}: take a path, or SerialExecutor"
            )

    def fingerprint(self, parts: Iterable[Any]) -> str:
        """Return a fingerprint of data for the specs of this store: a digest keyed with a secret of the store.

        Args:
            parts: Bytes, or arrays in one piece.
        """
        self._make()
        state = blake2b(key=bytes.fromhex(self._sealed("salt")["salt"]), digest_size=16)
        for part in parts:
            view = memoryview(part).cast("B")
            state.update(view.nbytes.to_bytes(8, "big"))
            state.update(view)
        return state.hexdigest()

    def add(self, spec: JobSpec, key: int | None = None) -> str:
        """Add a job; adding the same job again changes nothing.

        Args:
            spec: The job.
            key: The key of its noise; a random secret if not given.

        Returns:
            Its id.
        """
        self._make()
        with suppress(FileNotFoundError):
            self._records.read(f"jobs/{spec.id}/spec.json")
            return spec.id
        with suppress(FileNotFoundError):
            self._records.read(f"ledger/{spec.id}.json")
            raise StoreDamaged(
                f"{self.uri}: job {spec.id} was charged before, and its other records are gone: restore them, "
                "or use another store, where it is another job that owners pay for again"
            )
        chosen = SecretKey.drawn().to_text() if key is None else str(_validate.count("key", key))
        with suppress(FileExistsError):
            self._create(f"jobs/{spec.id}/key", {"key": chosen}, secret=True)
        with suppress(FileExistsError):
            self._create(f"jobs/{spec.id}/spec.json", json.loads(spec.to_json()))
        return spec.id

    def spec(self, job: str) -> JobSpec:
        """Return the spec of a job."""
        return JobSpec.from_json(json.dumps(self._sealed(f"jobs/{job}/spec.json")))

    def specs(self) -> dict[str, JobSpec]:
        """Return all jobs by id, in the order of their indices."""
        found = [(job, self.spec(job)) for job in self.states()]
        return dict(sorted(found, key=lambda pair: (pair[1].index, pair[0])))

    def states(self) -> dict[str, JobState]:
        """Return the state of every job, from one listing."""
        return states_of(self._records.names())

    def state(self, job: str) -> JobState:
        """Return the state of a job."""
        found = states_of(self._records.names(f"jobs/{job}"))[job]
        with suppress(FileNotFoundError):
            found.charged = bool(self._sealed(f"ledger/{job}.json"))
        return found

    def key(self, job: str) -> int:
        """Return the key of a job's noise.

        Raises:
            FileNotFoundError: once the job is done.
            JobMismatch: if it is not the one whose noise was charged.
        """
        key = SecretKey.from_text(self._sealed(f"jobs/{job}/key")["key"])
        with suppress(FileNotFoundError):
            if self._sealed(f"ledger/{job}.json")["noise"] != name_of_noise(key):
                raise JobMismatch(f"job {job!r} was charged for the noise of another key than the one that is there")
        return key

    def charge(self, job: str, costs: Sequence[Cost], ledger: "Ledger | None" = None) -> None:
        """Write the ledger row of a job, one for all of its costs; the same once more changes nothing.

        Args:
            job: Its id.
            costs: What it asks of owners: of each stage, and of what it releases beside.
            ledger: A ledger that is charged before, with all costs or none. It knows the noise of the job's key by a
                digest, and that of costs after the first by the same digest, a slash and their place; it does not let
                another job go through with the same noise.

        Raises:
            JobMismatch: when the job was charged with other costs, or for other noise, and when its noise is that of
                another job of the store.
            BudgetExceeded: when the ledger cannot pay; no row is written then.
            TypeError: for what is no sequence of costs.
            ValueError: for no costs: a job that asks nothing of owners is not charged.
        """
        for cost in [costs] if isinstance(costs, Cost) else costs:
            if isinstance(costs, Cost) or not isinstance(cost, Cost):
                raise TypeError(f"costs must be a tuple of Cost, got {costs!r}: put one cost into a tuple, (cost,)")
        if not costs:
            raise ValueError("costs must hold one at least: a task returns None for a job that asks nothing of owners")
        try:
            noise = name_of_noise(self.key(job))
        except FileNotFoundError:
            if self.state(job).charged:
                return  # by somebody else, who has done the job meanwhile
            raise StoreDamaged(f"{self.uri}: the key of job {job} is gone: restore it, or take another store") from None
        try:
            self._create(f"noise/{noise}.json", {"job": job})
        except FileExistsError:
            raise JobMismatch(
                f"job {job!r} has the noise of another job of {self.uri}, whose sums it would give away: take another "
                "key, or another store"
            ) from None
        if ledger is not None:
            names = [noise, *(f"{noise}/{place}" for place in range(1, len(costs)))]
            try:
                ledger.charge(
                    *(
                        replace(cost, job=name, fingerprint=job, repeatable=True)  # every attempt has the job's key
                        for name, cost in zip(names, costs, strict=True)
                    )
                )
            except JobMismatch as refusal:
                raise JobMismatch(
                    f"{refusal}. The ledger knows this `key:` from another store or run: go on with that, or take "
                    "another key"
                ) from None
        entries = [
            {"cost": self._write_cost(cost), "step": cost.step, "steps": cost.steps, "note": cost.note}
            for cost in costs
        ]
        row = {"job": job, "noise": noise, "costs": entries}
        try:
            self._create(f"ledger/{job}.json", row)
        except FileExistsError:
            if _told(self._sealed(f"ledger/{job}.json")) != _told(row):
                raise JobMismatch(
                    f"job {job!r} was charged before with another cost, or for other noise: no noise may be used twice"
                ) from None

    def _write_cost(self, cost: Cost) -> str:
        """Write the cost of a step, unless it is there, and return its digest."""
        table = CostTable.of(cost, np.arange(len(cost.labels)))
        state = blake2b(json.dumps(cost.labels).encode(), digest_size=16)
        state.update(table.digest().encode() + (cost.unit.encode() if cost.unit != ADD_REMOVE else b""))
        digest = state.hexdigest()
        if digest not in self._costs:
            with suppress(FileExistsError):
                entry = {"labels": list(cost.labels), "unit": cost.unit, **table.to_row()}
                self._create(f"costs/{digest}.json", entry)
            self._costs.add(digest)
        return digest

    def charged(self, job: str) -> tuple[Cost, ...]:
        """Return the costs that a job was charged with.

        Raises:
            FileNotFoundError: if it was not charged.
        """
        return tuple(self._charged(job, entry) for entry in _entries(self._sealed(f"ledger/{job}.json")))

    def _charged(self, job: str, entry: dict[str, Any]) -> Cost:
        known = self._sealed(f"costs/{entry['cost']}.json")
        table = CostTable.from_row(known)
        return Cost(
            labels=tuple(known["labels"]),
            sample_rates=table.sample_rates[table.group],
            noise_multipliers=table.noise_multipliers[table.group],
            step=entry["step"],
            steps=entry["steps"],
            job=job,
            note=entry["note"],
            unit=known.get("unit", ADD_REMOVE),
        )

    def charges(self) -> dict[str, tuple[Cost, ...]]:
        """Return the costs that all jobs were charged with, by job."""
        return {name[7:-5]: self.charged(name[7:-5]) for name in self._records.names("ledger")}

    def begin(self, job: str, attempt: int) -> None:
        """Claim an attempt; raise FileExistsError if it is claimed."""
        self._create(
            f"jobs/{job}/attempts/{attempt}/begun.json", {**here(), "time": time(), "token": secrets.token_hex(8)}
        )

    def begun(self, job: str, attempt: int) -> Place:
        """Return the process that claimed an attempt."""
        return self._sealed(f"jobs/{job}/attempts/{attempt}/begun.json")

    def heartbeat(self, job: str, attempt: int) -> None:
        """Record that an attempt is alive."""
        self._records.replace(f"jobs/{job}/attempts/{attempt}/beat", repr(time()).encode())

    def last_heartbeat(self, job: str, attempt: int) -> float:
        """Return the time of the last heartbeat of an attempt, by the clock of its worker."""
        with suppress(FileNotFoundError):
            return float(self._records.read(f"jobs/{job}/attempts/{attempt}/beat"))
        return float(self.begun(job, attempt)["time"])

    def end(self, job: str, attempt: int, ending: str, failure: Failure | None = None) -> None:
        """Record how an attempt ended; an earlier record stays."""
        if ending not in ENDINGS:
            raise ValueError(f"ending must be one of {', '.join(ENDINGS)}, got {ending!r}")
        values = {} if failure is None else asdict(failure)
        with suppress(FileExistsError):
            self._create(f"jobs/{job}/attempts/{attempt}/{ending}.json", values, secret=True)

    def failure(self, job: str, attempt: int) -> Failure:
        """Return why an attempt failed."""
        return Failure(**self._sealed(f"jobs/{job}/attempts/{attempt}/failed.json"))

    def abandon(self, job: str, attempts: int, line: str) -> None:
        """Record that a job failed permanently after a number of attempts."""
        with suppress(FileExistsError):
            self._create(f"jobs/{job}/failed-{attempts}.json", {"line": line})

    def reason(self, job: str, attempts: int) -> str:
        """Return in a line why a job failed permanently."""
        return str(self._sealed(f"jobs/{job}/failed-{attempts}.json")["line"])

    def save(self, job: str, attempt: int, step: int, content: bytes) -> None:
        """Save a checkpoint of an attempt; it replaces the one before."""
        folder = f"jobs/{job}/attempts/{attempt}"
        self._records.replace(f"{folder}/checkpoint-{step}", pack(content), secret=True)
        for name in self._checkpoints(folder):
            if int(name.rpartition("-")[2]) < step:
                self._records.remove(name)

    def latest(self, job: str) -> bytes | None:
        """Return the latest complete checkpoint of any attempt."""
        names = self._checkpoints(f"jobs/{job}/attempts")
        for name in sorted(names, key=lambda name: -int(name.rpartition("-")[2])):
            with suppress(FileNotFoundError):
                content = unpack(self._records.read(name))
                if content is not None:
                    return content
        return None

    def commit(self, job: str, attempt: int, result: Result) -> bool:
        """Make the result of an attempt that of the job; False if another attempt was faster.

        Its key and all checkpoints are deleted then.
        """
        values: dict[str, Any] = {"attempt": attempt, "values": dict(result.values), "arrays": None}
        if result.secret:
            values["secret"] = True
        file = f"jobs/{job}/attempts/{attempt}/arrays.npz"
        if result.arrays:
            content = _npz(result)
            self._records.replace(file, content, secret=True)
            values["arrays"] = checksum(content).hex()
        try:
            self._create(f"jobs/{job}/result.json", values, secret=result.secret)
            won = True
        except FileExistsError:
            won = False
            self.end(job, attempt, "fenced")
        self.cleanup(job)
        return won

    def cleanup(self, job: str) -> None:
        """Delete the key of a finished job, and everything that attempts have left beside its result.

        The key is deleted last: as long as it exists, every run sees that there is something to delete. If the result
        is damaged, nothing is deleted.
        """
        try:
            kept = f"jobs/{job}/attempts/{self._sealed(f'jobs/{job}/result.json')['attempt']}/arrays.npz"
        except StoreDamaged:
            return
        self._strip(job, "" if self._forgotten(job) else kept)
        self._records.remove(f"jobs/{job}/key")

    def _strip(self, job: str, kept: str) -> None:
        """Delete checkpoints, arrays but for one record, tracebacks, and the drafts of all records of a job."""
        for name in self._records.names(f"jobs/{job}/attempts"):
            record = name.rpartition("/")[2]
            if record.startswith("checkpoint-") or (record == "arrays.npz" and name != kept):
                self._records.remove(name)
            elif record == "failed.json":
                self._hide(name)
        self._records.clear(f"jobs/{job}")  # drafts of writers that were killed

    def _hide(self, name: str) -> None:
        """Delete the traceback of an attempt that failed, which may show data, and keep the type of the error."""
        with suppress(StoreDamaged):
            failure = Failure(**self._sealed(name))
            if failure.traceback:
                self._records.replace(name, seal(asdict(replace(failure, traceback=""))), secret=True)

    def forget(self, job: str) -> None:
        """Delete the arrays of a result that was used, and keep the rest: the job stays done.

        A late attempt finds the result, and deletes its own arrays.

        Raises:
            FileNotFoundError: if there is no result.
        """
        self._sealed(f"jobs/{job}/result.json")
        self.discard(job)

    def discard(self, job: str) -> None:
        """Delete what attempts at a job have left, the arrays of its result included.

        A job without a result keeps its key: a running attempt ends by itself, and deletes its own arrays.
        """
        with suppress(FileExistsError):
            self._create(f"jobs/{job}/forgotten.json", {})
        self._strip(job, "")

    def done(self, job: str) -> bool:
        """Return whether a job has a result."""
        try:
            self._records.read(f"jobs/{job}/result.json")
        except FileNotFoundError:
            return False
        return True

    def result(self, job: str) -> Result:
        """Return the result of a job, without arrays if they were forgotten.

        Raises:
            FileNotFoundError: if it has none yet.
            StoreDamaged: for a result that is not what was written. Its noise cannot be repeated, because its key is
                gone: restore it from a copy, or run the job in another store, where owners pay for it again.
        """
        values = self._sealed(f"jobs/{job}/result.json")
        arrays: dict[str, np.ndarray] = {}
        if values["arrays"] is not None and not self._forgotten(job):
            file = f"jobs/{job}/attempts/{values['attempt']}/arrays.npz"
            try:
                content = self._records.read(file)
            except FileNotFoundError:
                if self._forgotten(job):  # just now
                    return Result(values=values["values"], secret=values.get("secret", False))
                raise StoreDamaged(f"{self.uri}/{file} is gone: restore it from a copy") from None
            if checksum(content).hex() != values["arrays"]:
                raise StoreDamaged(f"{self.uri}/{file} is not what was written: restore it from a copy")
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                arrays = dict(found)
        return Result(values=values["values"], arrays=arrays, secret=values.get("secret", False))

    def _forgotten(self, job: str) -> bool:
        try:
            self._records.read(f"jobs/{job}/forgotten.json")
        except FileNotFoundError:
            return False
        return True

    def values(self, job: str) -> dict[str, Any]:
        """Return the values of a result without its arrays, which may be large; see `result`."""
        values: dict[str, Any] = self._sealed(f"jobs/{job}/result.json")["values"]
        return values

    def results(self) -> dict[str, Result]:
        """Return all results, by job, in the order of the indices."""
        states = self.states()
        return {job: self.result(job) for job in self.specs() if states[job].done}

    def compact(self) -> None:
        """Write all results but secret ones into one file, `results.parquet`: see `compacted` for its columns."""
        states = self.states()
        done = ((job, spec, self.result(job)) for job, spec in self.specs().items() if states[job].done)
        self.put("results.parquet", compacted(entry for entry in done if not entry[2].secret))

    def put(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Write a document beside the jobs, or put another in its place; only its owner can read a secret one."""
        self._make()
        self._records.replace(_document(name), content, secret=secret)

    def claim(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """Write a document that is written once, and return its content, which may be that of an earlier writer."""
        self._make()
        with suppress(FileExistsError):
            self._create(_document(name), values)
        return self.claimed(name)

    def claimed(self, name: str) -> dict[str, Any]:
        """Return a document that is written once; FileNotFoundError if it has not been."""
        return self._sealed(_document(name))

    def get(self, name: str) -> bytes:
        """Return a document; FileNotFoundError if there is none."""
        return self._records.read(_document(name))

    def _make(self) -> None:
        """Create the store, unless it exists."""
        if self._made:
            return
        try:
            known = self._sealed("store.json")
        except FileNotFoundError:
            self._records.probe()
            with suppress(FileExistsError):
                self._create("salt", {"salt": secrets.token_hex(32)}, secret=True)
            with suppress(FileExistsError):
                self._create("store.json", {"format": FORMAT, "lease": self._lease})
            known = self._sealed("store.json")
        if known["format"] != FORMAT:
            raise ValueError(f"{self.uri} is a store of format {known['format']}, this version knows {FORMAT}")
        self._made = True
        self.sweep()

    def _create(self, name: str, values: dict[str, Any], *, secret: bool = False) -> None:
        """Create a record. An equal one that exists is ours: the answer was lost, and the request was repeated."""
        content = seal(values)
        try:
            self._records.create(name, content, secret=secret)
        except FileExistsError:
            if self._records.read(name) != content:
                raise

    def _sealed(self, name: str) -> dict[str, Any]:
        return unseal(self._records.read(name), f"{self.uri}/{name}")

    def _checkpoints(self, folder: str) -> list[str]:
        return [name for name in self._records.names(folder) if name.rpartition("/")[2].startswith("checkpoint-")]

    def __repr__(self) -> str:
        return f"<Store {self.uri}>"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.uri,)


def _entries(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the costs of a ledger row; a row of the first format is itself the only cost."""
    found: list[dict[str, Any]] = row.get("costs", [row])
    return found


def _told(row: dict[str, Any]) -> list[Any]:
    """Return the content of a ledger row without its notes."""
    return [row["job"], row["noise"], *([entry[name] for name in ("cost", "step", "steps")] for entry in _entries(row))]


def _document(name: str) -> str:
    """Return the name of a document, which must not be that of anything else."""
    if "/" in name or name in ("store.json", "salt") or not name.strip("."):
        raise ValueError(f"name must be that of a document, without slashes, got {name!r}")
    return name


def _npz(result: Result) -> bytes:
    """Return arrays as an npz file: the same bytes for the same arrays."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in result.arrays.items():
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), part.getvalue())
    return stream.getvalue()
