"""The log of a run: rows of JSON, the same numbers for TensorBoard, and a file of its own for what is private."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from inosgm._internal import validate as _validate
from inosgm._internal.extras import require_extra
from inosgm._internal.files import write_durably
from inosgm.owners import Label
from inosgm.training.metrics import Evaluation

MOST_OWNERS = 100
"""Up to how many owners TensorBoard gets scalars of each; the JSON rows always hold all."""


class RunLog:
    """Rows by step in `log.jsonl`, scalars in `tensorboard/`, private rows in `private.jsonl` (readable by its owner).

    A row is on disk before `write` returns. A row that a killed run left half-written is dropped when the log is opened
    again. Nothing holds a time of day, which would betray how long steps took: the log of a run that was killed and
    resumed equals that of an undisturbed one, and TensorBoard shows the step where it shows a time.

    Args:
        directory: Where the files are; it is made if it is not there.
        after: The step that a run resumes from: later rows are dropped, also in TensorBoard; -1 drops all. None
            keeps all.

    Raises:
        ValueError: for files that are no log.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     with RunLog(directory) as log:
    ...         log.write(10, learning_rate=0.1)
    ...         log.write(20, learning_rate=0.05)
    ...     with RunLog(directory, after=10) as log:
    ...         log.rows()
    [{'step': 10, 'learning_rate': 0.1}]
    """

    def __init__(self, directory: str | PathLike[str], *, after: int | None = None) -> None:
        after = None if after is None else _validate.count("after", after, least=-1)
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._public = _Rows(self._directory / "log.jsonl", after)
        self._private = _Rows(self._directory / "private.jsonl", after, private=True)
        self._scalars = _Scalars(self._directory / "tensorboard", self._public.read())
        self._closed = False

    def write(self, step: int, **values: Any) -> None:
        """Add a row, and its numbers to TensorBoard.

        Args:
            step: How many steps had been done; never less than in the row before.
            values: Anything for JSON, arrays, and whatever has a `to_dict`; None is left out of TensorBoard. An
                Evaluation becomes scalars for everybody, by class and by owner.

        Raises:
            ValueError: for what is private, NaN, infinite, or no JSON; nothing is written then.
        """
        step, row = self._row(step, values)
        private = next(_private_parts(row, ""), None)
        if private is not None:
            raise ValueError(f"{private} is private, computed on training records: give it to write_private")
        self._public.append(step, row)
        self._scalars.write(step, _scalars(values, row))

    def write_private(self, step: int, **values: Any) -> None:
        """Add a row to the file of its own that never leaves the run; TensorBoard does not get it."""
        self._private.append(*self._row(step, values))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that are not private."""
        return self._public.read()

    def private_rows(self) -> list[dict[str, Any]]:
        """Return the private rows."""
        return self._private.read()

    def close(self) -> None:
        """Close the files; nothing keeps running."""
        self._closed = True
        for part in (self._public, self._private, self._scalars):
            part.close()

    def _row(self, step: int, values: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return a row for JSON, or say why it is none."""
        if self._closed:
            raise ValueError("the log is closed: open it again, with after= if steps are repeated")
        step = _validate.count("step", step)
        return step, {"step": step, **{name: _plain(name, value) for name, value in values.items()}}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Rows:
    """A file of JSON lines that only grows, but for what a resumed run will write again."""

    def __init__(self, path: Path, after: int | None, *, private: bool = False) -> None:
        self._path, self._mode = path, 0o600 if private else 0o666
        self._file = -1
        self._last = 0
        if path.exists():
            self._mend(after)

    def _mend(self, after: int | None) -> None:
        """Drop a torn last line and the rows after a step, all at once or not at all."""
        content = self._path.read_bytes()
        lines = content.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        steps = [self._step(place, line) for place, line in enumerate(lines)]
        kept = [line for line, step in zip(lines, steps, strict=True) if after is None or step <= after]
        self._last = max((step for step in steps if after is None or step <= after), default=0)
        if b"".join(kept) != content:
            self._replace(b"".join(kept))

    def _step(self, place: int, line: bytes) -> int:
        try:
            return _validate.count("step", json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"line {place + 1} of {self._path} is no row of a log: move the file away, or run in another directory"
            ) from None

    def _replace(self, content: bytes) -> None:
        write_durably(self._path, content, mode=self._mode)

    def append(self, step: int, row: Mapping[str, Any]) -> None:
        if step < self._last:
            raise ValueError(
                f"step must not go back, from {self._last} to {step}: open the log with after=, or in another directory"
            )
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._mode)
            if self._mode == 0o600:
                os.fchmod(self._file, self._mode)  # whoever may have opened it up
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)
        self._last = step

    def read(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_bytes().splitlines()]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Scalars:
    """An event file as TensorBoard reads it, written anew from the rows whenever a log is opened.

    Events carry the step as their time of day: real times would tell how long steps took, which depends on batches
    that are private. Written here and now, not by tensorboardX's SummaryWriter, which has a thread.
    """

    def __init__(self, directory: Path, rows: list[dict[str, Any]]) -> None:
        self._path = directory / "events.out.tfevents.0.inosgm"
        for path in directory.glob("events.out.tfevents.*.inosgm"):
            path.unlink()
        self._writer: Any = None
        for row in rows:
            step, values = row["step"], {name: value for name, value in row.items() if name != "step"}
            if "evaluation" in values:
                values["evaluation"] = Evaluation.from_dict(values["evaluation"])
            self.write(step, _scalars(values, row))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if not scalars:
            return
        require_extra("tensorboardX")
        from tensorboardX import RecordWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        if self._writer is None:
            self._path.parent.mkdir(exist_ok=True)
            self._writer = RecordWriter(str(self._path))
            self._writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = Event(wall_time=float(step), step=step, summary=Summary(value=values))
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _plain(name: str, value: Any) -> Any:
    """Return a value as JSON has it; the name is for errors."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif hasattr(value, "tolist"):  # arrays, tensors and their numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise ValueError(
                f"{name} must have text as keys, got {wrong[0]!r}, which JSON forgets: give a list of rows"
            )
        return {key: _plain(f"{name}.{key}", part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}: leave it out, or write None")
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"{name} must be something that JSON can hold, got {type(value).__name__}")
    return value


def _private_parts(value: Any, name: str) -> Iterator[str]:
    """Find what is marked private, however deep."""
    if isinstance(value, Mapping):
        if value.get("private"):
            yield name or "the row"
        for key, part in value.items():
            yield from _private_parts(part, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for part in value:
            yield from _private_parts(part, name)


def _scalars(values: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, float]:
    """Return what TensorBoard shows of a row."""
    scalars: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Evaluation):
            prefix = "" if name == "evaluation" else f"{name}/"
            scalars |= {f"{prefix}{tag}": number for tag, number in _scalars_of(value) if number is not None}
        else:
            scalars |= _numbers(name, row[name])
    return scalars


def _numbers(name: str, value: Any) -> dict[str, float]:
    """Return the numbers in a value, those of a mapping one level down."""
    if isinstance(value, Mapping):
        return {tag: number for key, part in value.items() for tag, number in _numbers(f"{name}/{key}", part).items()}
    return {name: float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else {}


def _scalars_of(found: Evaluation) -> Iterator[tuple[str, float | None]]:
    """List what an evaluation says, by owner where there are not too many."""
    for name in ("loss", "accuracy", "balanced_accuracy", "spread"):
        yield name, getattr(found, name)
    for name, value in found.metrics.items():
        yield f"metric/{_tag(name)}", value
    for label, recall in found.recall_by_class.items():
        yield f"recall/class/{_tag(label)}", recall
    if len(found.by_owner) <= MOST_OWNERS:
        for label, owner in found.by_owner.items():
            for name in ("loss", "accuracy", "recall"):
                yield f"{name}/owner/{_tag(label)}", getattr(owner, name)


def _tag(label: Label) -> str:
    """Return a label as one part of a tag: slashes and what cannot be printed become %XX, so no two labels collide."""
    kept = (
        c if c.isprintable() and c not in "%/" else "".join(f"%{byte:02X}" for byte in c.encode()) for c in str(label)
    )
    return "".join(kept)
