"""The files that configurations name, read once where a command is started, not where its jobs run."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self, TextIO

import numpy as np

from inosgm.datasets import Dataset, load
from inosgm.experiments.config import FileOwners, TrainingConfig


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """The content of the files that some configurations name, so that their runs need no files. It can be pickled.

    Attributes:
        datasets: The data sets, by name.
        tables: The content of CSV files, by path.
    """

    datasets: Mapping[str, Dataset]
    tables: Mapping[str, bytes]

    def dataset(self, config: TrainingConfig) -> Dataset:
        """Return the data set of a configuration.

        Raises:
            ValueError: if it was not read.
        """
        if config.data.name not in self.datasets:
            raise ValueError(f"data.name: the source must hold {config.data.name}, it holds {', '.join(self.datasets)}")
        return self.datasets[config.data.name]

    def table(self, path: str) -> TextIO:
        """Return a CSV file, open for reading.

        Raises:
            ValueError: if it was not read.
        """
        if path not in self.tables:
            raise ValueError(f"the source must hold {path}, it holds {', '.join(self.tables) or 'no CSV files'}")
        stream = io.BytesIO(self.tables[path])
        stream.name = path
        return io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")

    def parts(self, config: TrainingConfig) -> Iterator[bytes | memoryview]:
        """List everything that a configuration's results are a function of, for a fingerprint."""
        dataset = self.dataset(config)
        yield repr((dataset.name, dataset.classes, dataset.categories)).encode()
        for name in ("x", "y", "x_test", "y_test"):
            array = np.ascontiguousarray(getattr(dataset, name))
            yield f"{name} {array.dtype.str} {array.shape}".encode()
            yield array.reshape(-1).view(np.uint8).data
        for path in _tables_of(config):
            yield self.tables[path]

    def outline(self) -> Self:
        """Return it without the inputs of records, which is all that owners and plans need."""
        return replace(
            self,
            datasets={
                name: replace(data, x=np.empty((len(data.y), 0)), x_test=np.empty((len(data.y_test), 0)))
                for name, data in self.datasets.items()
            },
        )


def read(*configs: TrainingConfig) -> Source:
    """Read all files of some configurations, each once.

    Raises:
        FileNotFoundError: for data that is not there.
        ValueError: for files with something else in them, and for a data set in two places.
    """
    roots: dict[str, str | None] = {}
    for config in configs:
        name, root = config.data.name, config.data.root
        if roots.setdefault(name, root) != root:
            raise ValueError(f"data.root: must be the same wherever data.name is {name}, got {roots[name]} and {root}")
    tables = {path: b"" for config in configs for path in _tables_of(config)}
    for path in tables:
        with open(path, "rb") as file:
            tables[path] = file.read()
    return Source(datasets={name: load(name, root) for name, root in roots.items()}, tables=tables)


def _tables_of(config: TrainingConfig) -> list[str]:
    """List the CSV files of a configuration."""
    owners = config.owners
    if not isinstance(owners, FileOwners):
        return []
    return [path for path in (owners.csv, owners.held_out) if path is not None]
