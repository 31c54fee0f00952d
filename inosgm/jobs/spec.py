"""The spec of a job: everything that its result is a function of, hashed to an id."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from inosgm._internal import keys
from inosgm._internal import validate as _validate

PAIRS = "pairs of"
"""How JSON writes a mapping whose keys are not all text, so that 1 and "1" stay different keys."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JobSpec:
    """Everything that the result of a job is a function of. Equal specs have equal ids; any change is another job.

    Args:
        kind: What is done, such as "train".
        configuration: What it is done with, as JSON has it. Its `seed`, 0 if there is none, is the root of all seeds.
        data_fingerprint: Stands for the data; see `Store.fingerprint`, which takes one that betrays nothing.
        code_version: Stands for the code.
        index: Which of the jobs that agree in all the rest.

    Raises:
        ValueError: for a configuration that JSON cannot hold.

    >>> learning = {"lr": 0.1, "seed": 7}
    >>> spec = JobSpec(kind="train", configuration=learning, data_fingerprint="d", code_version="1", index=3)
    >>> spec == JobSpec.from_json(spec.to_json())
    True
    >>> spec.id
    'ddc3b029a0dca93f22cea3d223f071fd'
    """

    kind: str
    configuration: Mapping[str, Any]
    data_fingerprint: str
    code_version: str
    index: int = 0

    def __post_init__(self) -> None:
        for name in ("kind", "data_fingerprint", "code_version"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be text, got {getattr(self, name)!r}")
        if not isinstance(self.configuration, Mapping):
            raise TypeError(f"configuration must be a mapping, got {self.configuration!r}")
        object.__setattr__(self, "index", _validate.count("index", self.index))
        _ = self.id  # raises for what JSON cannot hold

    @cached_property
    def id(self) -> str:
        """The name of the job: a digest of everything else, the same on every machine."""
        return keys.Purpose.JOB_ID.hex(self.to_json())

    @property
    def seed_sequence(self) -> np.random.SeedSequence:
        """The child, by index, of the configuration's seed: never a matter of who runs the job, or when."""
        return keys.job_sequence(self.configuration.get("seed", 0), self.index)

    @property
    def seed(self) -> int:
        """A seed of 63 bits, for whatever wants a number."""
        return keys.seed_of(self.seed_sequence)

    def require_code(self, here: str) -> None:
        """Raise unless the code of this process, whose version is given, is that of the job.

        Raises:
            RuntimeError: saying what to do.
        """
        if here != self.code_version:
            raise RuntimeError(
                f"this worker has other code than the command that made the job, {here} and not {self.code_version}: "
                "install the same versions, and the same modules of your own, wherever jobs run"
            )

    def to_json(self) -> str:
        """Return it as JSON, always with the same text."""
        values = {
            "kind": self.kind,
            "configuration": _to_json(self.configuration, "configuration"),
            "data_fingerprint": self.data_fingerprint,
            "code_version": self.code_version,
            "index": self.index,
        }
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a spec.

        Raises:
            ValueError: if it is something else.
        """
        try:
            values = json.loads(text)
            return cls(**{**values, "configuration": _from_json(values["configuration"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not the JSON text of a job: {error!r}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobSpec) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


def _to_json(value: Any, path: str) -> Any:
    """Return a value as JSON has it, with every key as it was."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and PAIRS not in value:
            return {key: _to_json(part, f"{path}.{key}") for key, part in value.items()}
        pairs = [[_to_json(key, path), _to_json(part, f"{path}.{key}")] for key, part in value.items()]
        return {PAIRS: sorted(pairs, key=repr)}
    if isinstance(value, list | tuple):
        return [_to_json(part, path) for part in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    raise ValueError(f"{path} must be something that JSON can hold, got {value!r}")


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {PAIRS}:
            return {_from_json(key): _from_json(part) for key, part in value[PAIRS]}
        return {key: _from_json(part) for key, part in value.items()}
    return [_from_json(part) for part in value] if isinstance(value, list) else value
