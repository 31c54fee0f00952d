"""Data sets of openml.org, through scikit-learn, where there is a network."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import fetch_openml

from inosgm.datasets.dataset import Dataset, held_out


def openml(name: str, root: Path | None) -> Dataset:
    """Fetch a data set by its number or by its name (its first version); scikit-learn keeps a copy, in `root` if given.

    Raises:
        ConnectionError: if openml.org cannot be reached.
        ValueError: if it has no such data set, or one that is not a table with classes.
    """
    which = {"data_id": int(name)} if name.isdigit() else {"name": name, "version": 1}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A network error occurred")  # the error below says it, and what to do
            bunch = fetch_openml(
                **which, as_frame=True, parser="pandas", n_retries=1, delay=0.1, data_home=root and root / "openml"
            )
    except OSError as error:
        raise ConnectionError(
            f"openml:{name} could not be fetched ({error}): openml.org must be reachable; "
            "without a network use data that is embedded, or from files"
        ) from error
    return from_bunch(bunch, f"openml:{name}")


def from_bunch(bunch: Any, name: str) -> Dataset:
    """Convert the result of scikit-learn into a data set, every fifth record of a class held out.

    Numbers stay as they are: scale them by constants that you know without looking at the data. Columns of categories
    become a 1 among zeros, by the categories that the data set declares; a missing one only zeros.

    Raises:
        ValueError: for missing numbers, columns of text, and targets that are not classes.
    """
    if bunch.target is None or bunch.target.isna().any() or bunch.target.dtype.kind == "f":
        raise ValueError(f"{name} must have a class for every record, its target is another thing")
    columns = [_columns(name, bunch.data[column]) for column in bunch.data.columns]
    classes, y = np.unique(np.asarray(bunch.target.astype(str), dtype=str), return_inverse=True)
    with np.errstate(over="ignore"):  # a warning would tell everybody about a record
        x = np.concatenate(columns, axis=1, dtype=np.float32)
    return held_out(x, y, name=name, classes=classes.tolist())


def _columns(name: str, column: Any) -> np.ndarray:
    if hasattr(column, "cat"):
        codes: np.ndarray = np.asarray(column.cat.codes)
        return np.asarray(codes[:, None] == np.arange(len(column.cat.categories)))
    if column.dtype.kind not in "biuf" or column.isna().any():
        raise ValueError(f"{name} must hold numbers or categories, column {column.name!r} has text or misses some")
    return np.asarray(column, dtype=np.float64)[:, None]
