"""The features that a configuration trains on: computed once, kept privately, and known by a digest."""

import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from inosgm._internal.files import write_durably
from inosgm._internal.keys import Purpose
from inosgm.datasets import Dataset
from inosgm.datasets.files import read_npz
from inosgm.experiments.config.problems import about
from inosgm.experiments.config.records import FeaturesConfig
from inosgm.jobs import Store
from inosgm.training import features as _features
from inosgm.training.features.frozen import require_finite
from inosgm.training.predictions import as_numpy

NAME = "features.npz"
"""The file of a run directory or a store that keeps features, which are as private as the records."""


class Keeper:
    """Where features are kept for its owner only: a run directory or a store, never a place that others share.

    Args:
        place: The directory of a run, or a store.
    """

    def __init__(self, place: Path | Store) -> None:
        self._place, self._digest = place, ""

    def kept(self) -> dict[str, np.ndarray]:
        """Return the arrays that are kept: `digest`, and `x` and `x_test` if a module has computed them; or none."""
        with suppress(FileNotFoundError):
            content = self._place.get(NAME) if isinstance(self._place, Store) else (self._place / NAME).read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                arrays = dict(archive)
            self._digest = str(arrays["digest"])
            return arrays
        return {}

    def require_same(self, digest: str) -> None:
        """Raise if a run was begun with other features; a store refuses other data by the fingerprint of its jobs."""
        if self._digest not in ("", digest) and isinstance(self._place, Path):
            raise ValueError(
                f"features: {self._place} holds a run with other features: its records, file or module have changed "
                "since. Restore them, or take another directory (--run)"
            )

    def keep(self, features: "Features") -> None:
        """Keep features, unless they are kept already; embeddings of a file are kept by their digest only."""
        if features.digest == self._digest:
            return
        self.require_same(features.digest)
        stream = io.BytesIO()
        arrays: dict[str, Any] = {} if features.wish.from_file else {"x": features.x, "x_test": features.x_test}
        np.savez(stream, digest=np.array(features.digest), **arrays)
        if isinstance(self._place, Store):
            self._place.put(NAME, stream.getvalue(), secret=True)
        else:
            write_durably(self._place / NAME, stream.getvalue(), mode=0o600)
        self._digest = features.digest


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The features of all records of a data set.

    Attributes:
        wish: Which features they are.
        digest: Stands for all that they are a function of: the records and the module, or the embeddings themselves.
        x: The features of the training records.
        x_test: The features of the held-out records.
    """

    wish: FeaturesConfig
    digest: str
    x: np.ndarray
    x_test: np.ndarray

    @classmethod
    def of(cls, wish: FeaturesConfig, dataset: Dataset, keeper: Keeper | None = None) -> Self:
        """Read the features of a data set from a file, or compute them unless they are kept.

        Args:
            wish: Which features.
            dataset: The records.
            keeper: Where features may have been kept.

        Raises:
            ValueError: for a module that does not process each record independently, for records that it cannot take,
                for a file with other rows than the data set, and if a run directory keeps other features.
            FileNotFoundError: for a file that is not there.
        """
        known = {} if keeper is None else keeper.kept()
        with about("features"):
            if wish.from_file:
                arrays = _embeddings(wish.name, dataset)
                digest = _digest(arrays)
            else:
                arrays = {"x": dataset.x, "x_test": dataset.x_test}
                module = _features.make(wish.name, input_shape=dataset.input_shape, **wish.options)
                state = {f"module {name}": as_numpy(value) for name, value in module.state_dict().items()}
                digest = _digest({**arrays, **state}, repr((wish.name, sorted(wish.options.items()))))
        if keeper is not None:
            keeper.require_same(digest)
        if not wish.from_file and str(known.get("digest")) == digest:
            arrays = {name: known[name] for name in arrays}
        elif not wish.from_file:
            with about("features"):
                _features.require_frozen(module, dataset.x)
                arrays = {name: _features.transform(module, records) for name, records in arrays.items()}
        return cls(wish=wish, digest=digest, **arrays)


def _embeddings(path: str, dataset: Dataset) -> dict[str, np.ndarray]:
    """Return the embeddings of a file as float32: one row of finite numbers for each record."""
    records = {"x": (len(dataset.y), "training"), "x_test": (len(dataset.y_test), "held-out")}
    arrays = dict(zip(records, read_npz(Path(path), list(records)), strict=True))
    for name, array in arrays.items():
        count, which = records[name]
        if array.ndim < 2 or len(array) != count:
            rows = f"a row for each of the {count} {which} records"
            raise ValueError(f"{path}: {name} must have {rows}, got an array of shape {array.shape}")
        if array.dtype.kind != "f":
            raise ValueError(f"{path}: {name} must hold floating-point numbers, got {array.dtype}")
        arrays[name] = array.astype(np.float32)
        require_finite(arrays[name])
    if arrays["x"].shape[1:] != arrays["x_test"].shape[1:]:
        shapes = f"{arrays['x'].shape[1:]} and {arrays['x_test'].shape[1:]}"
        raise ValueError(f"{path}: rows of x and x_test must have the same shape, got {shapes}")
    return arrays


def _digest(arrays: Mapping[str, Any], module: str = "") -> str:
    """Return the digest of arrays with their names, and of the description of a module."""
    state = Purpose.FEATURES_ID.hasher(module.encode())
    for name, array in arrays.items():
        state.update(f" {name} {array.dtype.str} {array.shape} ".encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()
