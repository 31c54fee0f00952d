"""A run whose checkpoints are kept by the store of a job."""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Self

import torch

from inosgm._internal.scratch import scratch_directory
from inosgm.jobs import Attempt
from inosgm.training.checkpoints import Checkpoint
from inosgm.training.run import Run

KEPT = ("plan-*.json", "log.jsonl")
"""Files that a later attempt needs beside a checkpoint."""

PAUSE = 10.0
"""Seconds between checkpoints, at least, where nobody has said how often: a job of seconds is faster done again."""


class AttemptRun(Run):
    """A run in its own folder that resumes from the furthest checkpoint of any attempt at the job.

    Its checkpoints go to the store, not into the folder, which may be gone when the job is resumed.

    Args:
        directory: An empty folder.
        attempt: The attempt that is being made.
        pause: Seconds between checkpoints, at least; but when the attempt is asked to stop, and before anybody sees how
            far it has got, there is one in any case.
    """

    def __init__(self, directory: str | os.PathLike[str], attempt: Attempt, pause: float = 0.0) -> None:
        content = attempt.latest()
        self._begun = None if content is None else _unpack(content, Path(directory))
        super().__init__(directory)
        self._attempt, self._pause, self._saved = attempt, pause, monotonic()

    @classmethod
    @contextmanager
    def of(cls, attempt: Attempt, pause: float) -> Iterator[Self]:
        """Make a run in a folder that is deleted afterwards."""
        with scratch_directory("job") as folder:
            yield cls(folder, attempt, pause)

    def latest(self, at_most: int | None = None) -> Checkpoint | None:
        """Return the checkpoint that the attempt began with, which is in no file: a killed process leaves none."""
        return self._begun

    def save(self, checkpoint: Checkpoint, *, needed: bool = False) -> None:
        """Save a checkpoint, with what goes with it, in the store of the job."""
        if monotonic() - self._saved < self._pause and not needed and not self._attempt.stopping():
            return
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr(self._file(checkpoint.revision, checkpoint.step).name, checkpoint.to_bytes())
            for path in (path for pattern in KEPT for path in sorted(self.path.glob(pattern))):
                archive.write(path, path.name)
        self._attempt.save(checkpoint.step, stream.getvalue())
        self._saved = monotonic()

    def save_results(self, model: Mapping[str, Any], curve: str) -> None:
        """Do nothing: what the run comes to is the result of the job."""


def _unpack(content: bytes, folder: Path) -> Checkpoint:
    """Write what goes with a checkpoint into a folder, and return the checkpoint itself."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = (name for name in archive.namelist() if name.startswith("checkpoint-"))
        archive.extractall(folder, [other for other in archive.namelist() if other != name])
        return Checkpoint.from_file(io.BytesIO(archive.read(name)))


@contextmanager
def threads() -> Iterator[None]:
    """Train with one thread, or with as many as OMP_NUM_THREADS says: bits depend on their number."""
    before = torch.get_num_threads()
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    torch.set_num_threads(max(1, int(said)) if said.isdecimal() else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
