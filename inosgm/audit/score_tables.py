"""Tables of what a model says about records: losses or probabilities, from anywhere, as scores."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from scipy.special import logit


def columns_of(table: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return columns of a file as arrays."""
    if not table.is_file():
        raise FileNotFoundError(f"{table}: no such file")
    parquet = table.suffix == ".parquet"
    content = pyarrow.parquet.read_table(table) if parquet else pyarrow.csv.read_csv(table)
    missing = [name for name in names if name not in content.column_names]
    if missing:
        raise ValueError(f"{table} has no column {missing[0]!r}; its columns are {', '.join(content.column_names)}")
    empty = [name for name in names if content[name].null_count]
    if empty:
        raise ValueError(f"{table}: column {empty[0]!r} has empty cells; every record needs a value")
    return {name: content[name].to_numpy(zero_copy_only=False) for name in names}


def from_loss(name: str, values: np.ndarray) -> np.ndarray:
    """Return minus the loss, refusing what is no number."""
    return -_numbers(name, values)


def from_probability(name: str, values: np.ndarray) -> np.ndarray:
    """Return log odds of probabilities; those of 0 and 1 become those of the nearest float64 numbers."""
    numbers = _numbers(name, values)
    if ((numbers < 0) | (numbers > 1)).any():
        raise ValueError(f"column {name!r} must hold probabilities from 0 to 1: is it a loss (--loss)?")
    return np.asarray(logit(np.clip(numbers, np.finfo(np.float64).tiny, 1 - 2.0**-53)))


def _numbers(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "iuf":
        raise ValueError(f"column {name!r} must hold numbers, got {values.dtype}")
    return values.astype(np.float64)
