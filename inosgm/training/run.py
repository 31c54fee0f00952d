"""A run: a directory from which training resumes, bit for bit, after it was killed at any moment."""

import fcntl
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from inosgm._internal.files import sync_directory, write_durably
from inosgm._internal.keys import Purpose, SecretKey
from inosgm.planning.plan import Plan
from inosgm.training.checkpoints import Checkpoint

RESULTS = MODEL, CURVE = ("model.pt", "curve.json")
"""The results of a run: the last parameters, and the evaluations by step."""

REVISING = "revising.json"
"""The file that is there while a revision is made."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A revision that was begun: the process that opens the run next finishes it first."""

    number: int
    """The number of revisions of the plan, this one included."""
    step: int
    """The number of steps of the run that are kept."""
    plan: Plan
    """The plan that is followed from there on, with the new budgets."""

    def to_bytes(self) -> bytes:
        """Return the content of the file that says so."""
        return json.dumps({"number": self.number, "step": self.step, "plan": self.plan.to_json()}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` returned."""
        values = json.loads(content)
        return cls(number=values["number"], step=values["step"], plan=Plan.from_json(values["plan"]))


class RunFiles:
    """The checkpoints and plans of a run, to look at, also while another process trains in it.

    Args:
        directory: The directory of the run.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory)

    def revisions(self) -> int:
        """Return how many plans were ever followed, those that were abandoned included."""
        return len(list(self.path.glob("plan-*.json")))

    def stages(self) -> int:
        """Return how many plans the run was begun with; the others are revisions."""
        stages = self.path / "stages"
        return int(stages.read_text()) if stages.exists() else 1

    def shards(self) -> int:
        """Return into how many shards batches are cut, whatever the number of workers: the bits of a step follow it."""
        shards = self.path / "shards"
        return int(shards.read_text()) if shards.exists() else 1

    def plan(self, revision: int) -> Plan:
        """Return the plan of a stage or of a revision."""
        return Plan.from_json((self.path / f"plan-{revision}.json").read_bytes())

    def revising(self) -> Revision | None:
        """Return the revision that was begun and not finished, if there is one."""
        begun = self.path / REVISING
        return Revision.from_bytes(begun.read_bytes()) if begun.exists() else None

    def latest(self, at_most: int | None = None) -> Checkpoint | None:
        """Return the checkpoint to resume from, or the last one of at most so many steps; None if there is none."""
        places = [place for place in self._places() if at_most is None or place[1] <= at_most]
        return Checkpoint.from_file(self._file(*max(places))) if places else None

    def _places(self) -> list[tuple[int, int]]:
        names = (re.fullmatch(r"checkpoint-(\d+)-(\d+)\.pt", path.name) for path in self.path.glob("checkpoint-*.pt"))
        return [(int(name[1]), int(name[2])) for name in names if name]

    def _file(self, revision: int, step: int) -> Path:
        return self.path / f"checkpoint-{revision}-{step}.pt"


class Run(RunFiles):
    """The directory of a run: checkpoints, the plans they followed, the ledger, the log, and the key.

    The key makes coins and noise repeatable, so anybody who reads the file `key` can subtract the noise: it is
    readable by its owner only, and deleted with the last step. One process at a time trains in a directory.

    Args:
        directory: Made if it does not exist.

    Raises:
        BlockingIOError: while another process trains in the directory.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o660)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise BlockingIOError(f"another process trains in {self.path}: wait for it, or take another run") from None
        for draft in self.path.glob(".*.draft"):  # left by a process that was killed while writing
            draft.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # processes that load records have inherited it
        os.close(self._lock)

    def key(self) -> int:
        """Return the secret of this run, made up when it begins.

        Raises:
            ValueError: when the run is finished, was begun with a key that its directory does not hold, or is a copy.
        """
        path, place = self.path / "key", self.path / "place"
        if not path.exists():
            if self.latest() is not None:
                raise ValueError(f"{self.path} does not hold its key: give the one that the run was begun with")
            write_durably(path, SecretKey.drawn().to_text().encode(), mode=0o600)
        here = str(path.stat().st_ino)
        if not place.exists():
            write_durably(place, here.encode())
        elif place.read_text() != here:
            raise ValueError(
                f"{self.path} is a copy of a run, with the same key: going on with both would use its noise twice. Go "
                f"on with the original; if that is gone, delete {place} to make this one the run"
            )
        return SecretKey.from_text(path.read_text())

    def forget_key(self) -> None:
        """Delete the key, durably: nobody can repeat the noise of this run any more, nor take it away."""
        (self.path / "key").unlink(missing_ok=True)
        (self.path / "place").unlink(missing_ok=True)
        sync_directory(self.path / "key")

    def save_stages(self, plans: Sequence[Plan]) -> None:
        """Write down which plans the run is begun with."""
        if len(plans) > 1:
            write_durably(self.path / "stages", str(len(plans)).encode())
        for stage, plan in reversed(list(enumerate(plans))):  # the first one says that a run has begun
            self.save_plan(stage, plan)

    def save_shards(self, shards: int) -> None:
        """Write down into how many shards batches are cut."""
        if shards > 1:
            write_durably(self.path / "shards", str(shards).encode())

    def save_plan(self, revision: int, plan: Plan) -> None:
        """Write down which plan a revision follows."""
        write_durably(self.path / f"plan-{revision}.json", plan.to_json().encode())

    def begin_revision(self, revision: Revision) -> None:
        """Write down that a revision is begun, all that it takes to finish it."""
        write_durably(self.path / REVISING, revision.to_bytes())

    def end_revision(self) -> None:
        """Write down that the revision is finished."""
        (self.path / REVISING).unlink(missing_ok=True)
        sync_directory(self.path / REVISING)

    def save(self, checkpoint: Checkpoint, *, needed: bool = False) -> None:
        """Write a checkpoint, whole or not at all; one that is not needed may be left out, which is not done here."""
        mode = 0o660 if checkpoint.private is None else 0o600
        write_durably(self._file(checkpoint.revision, checkpoint.step), checkpoint.to_bytes(), mode=mode)

    def save_results(self, model: Mapping[str, Any], curve: str) -> None:
        """Write what the run has come to: parameters for `load_state_dict`, and the learning curve."""
        stream = io.BytesIO()
        torch.save(dict(model), stream)
        write_durably(self.path / MODEL, stream.getvalue())
        write_durably(self.path / CURVE, curve.encode())

    def drop_before(self, step: int) -> None:
        """Delete every checkpoint of fewer steps than these."""
        for place in self._places():
            if place[1] < step:
                self._file(*place).unlink()

    def keep_latest(self, checkpoints: int) -> None:
        """Delete all but so many of the latest checkpoints."""
        for place in sorted(self._places())[:-checkpoints]:
            self._file(*place).unlink()

    def drop_after(self, step: int) -> None:
        """Delete every checkpoint of more steps than these, and what was made of the last one."""
        for name in RESULTS:
            (self.path / name).unlink(missing_ok=True)
        for place in self._places():
            if place[1] > step:
                self._file(*place).unlink()


def key_of_revision(key: int, revision: int) -> int:
    """Return the key of a revision, whose noise is its own: a plan that changed has other sums."""
    if not revision:
        return key
    return Purpose.REVISION_KEY.key_from(key, revision)
