"""One function for all data sets: by name, from a library, from files or from openml.org."""

import os
from importlib import import_module
from os import PathLike
from pathlib import Path

from inosgm._internal.extras import require_extra
from inosgm._internal.imports import imported
from inosgm.datasets.dataset import Dataset

EMBEDDED = ("breast_cancer", "digits", "mnist5k")
FILED = {
    "adult": "tables",
    "cardiotocography": "tables",
    "cifar10": "images",
    "cifar100": "images",
    "fashion_mnist": "images",
    "mnist": "images",
    "names": "names",
    "pneumoniamnist": "images",
}
NAMES = (*EMBEDDED, *FILED)
"""The names that `load` accepts."""


def load(name: str, root: str | PathLike[str] | None = None) -> Dataset:
    """Load a data set.

    Embedded in libraries: breast_cancer, digits, mnist5k. From files in a data directory: adult, cardiotocography,
    cifar10, cifar100, fashion_mnist, mnist, names, pneumoniamnist. "openml:NAME" and "openml:NUMBER" come from
    openml.org. "package.module:function" is a user's own, called with the data directory.

    Args:
        name: Which one.
        root: The data directory, with a folder of that name; what INOSGM_DATA says if not given.

    Returns:
        All of it, in memory: images take 4 bytes per pixel (MNIST 220 MB, CIFAR-10 740 MB).

    Raises:
        ValueError: for a name that is not known, or files with something else in them.
        FileNotFoundError: saying where to put which files.
        ConnectionError: if openml.org cannot be reached.

    >>> load("digits")
    <Dataset digits: 1442 + 355 records of shape (1, 8, 8), 10 classes>
    """
    known = root or os.environ.get("INOSGM_DATA")
    if name in EMBEDDED:
        return _call("embedded", name)
    if name.startswith("openml:"):
        return _call("openml", "openml", name.removeprefix("openml:"), Path(known) if known else None)
    if ":" in name:
        own = imported(name)(known)
        if not isinstance(own, Dataset):
            raise TypeError(f"{name} must return a Dataset of inosgm.datasets, got {type(own).__name__}")
        return own
    if name not in FILED:
        known_names = ", ".join(sorted(NAMES))
        raise ValueError(f"name must be one of {known_names}, openml:NAME, or package.module:function, got {name!r}")
    try:
        return _call(FILED[name], name, Path(known or "$INOSGM_DATA"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; --data-dir, root= or INOSGM_DATA names the data directory") from None


def _call(module: str, function: str, *arguments: object) -> Dataset:
    """Call a loader, whose module is imported only now: each needs other libraries."""
    if module in ("embedded", "openml"):
        require_extra("sklearn")
    dataset: Dataset = getattr(import_module(f"inosgm.datasets.{module}"), function)(*arguments)
    return dataset
