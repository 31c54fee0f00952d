"""The files that configurations name, read once where a command is started, not where its jobs run."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TextIO

import numpy as np

from inosgm.datasets import Dataset, load
from inosgm.experiments.config import FileOwners, TrainingConfig
from inosgm.experiments.features import Features, Keeper


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """The content of the files that some configurations name, so that their runs need no files. It can be pickled.

    Attributes:
        datasets: The data sets, by name; where a configuration names features, these are the inputs of the records.
        tables: The content of CSV files, by path.
        features: The features, by the name of the data set.
        keeper: Where the features are kept.
    """

    datasets: Mapping[str, Dataset]
    tables: Mapping[str, bytes]
    features: Mapping[str, Features] = field(default_factory=dict)
    keeper: Keeper | None = None

    def dataset(self, config: TrainingConfig) -> Dataset:
        """Return the data set of a configuration.

        Raises:
            ValueError: if it was not read, or was read with other features.
        """
        if config.data.name not in self.datasets:
            raise ValueError(f"data.name: the source must hold {config.data.name}, it holds {', '.join(self.datasets)}")
        features = self.features.get(config.data.name)
        if config.features != (None if features is None else features.wish):
            held = "no features" if features is None else features.wish.name
            raise ValueError(f"features: must be the same in all runs of a study, which begins with {held}")
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
        features = self.features.get(config.data.name)
        if features is not None:
            yield features.digest.encode()
        for name in ("x", "y", "x_test", "y_test") if features is None else ("y", "y_test"):
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
            features={name: replace(each, x=np.empty(0), x_test=np.empty(0)) for name, each in self.features.items()},
        )

    def for_run(self, config: TrainingConfig) -> Self:
        """Return it for a run directory, which keeps the features from now on, and must keep no others.

        Raises:
            ValueError: if the directory keeps other features.
        """
        if config.run is None or not self.features:
            return self
        keeper = Keeper(Path(config.run))
        keeper.kept()
        for features in self.features.values():
            keeper.require_same(features.digest)
        return replace(self, keeper=keeper)

    def keep_features(self) -> None:
        """Keep the features, so that they are not computed again."""
        for features in self.features.values():
            if self.keeper is not None:
                self.keeper.keep(features)


def read(*configs: TrainingConfig, keeper: Keeper | None = None) -> Source:
    """Read all files of some configurations, each once, and compute the features that they name.

    Args:
        configs: The configurations; those with the same data set have the same features.
        keeper: Where features may have been kept.

    Raises:
        FileNotFoundError: for data that is not there.
        ValueError: for files with something else in them, for a data set in two places, and for features that cannot
            be computed.
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
    datasets = {name: load(name, root) for name, root in roots.items()}
    wishes = {config.data.name: config.features for config in configs}
    features = {name: Features.of(wish, datasets[name], keeper) for name, wish in wishes.items() if wish is not None}
    for name, each in features.items():
        datasets[name] = replace(datasets[name], x=each.x, x_test=each.x_test)
    return Source(datasets=datasets, tables=tables, features=features, keeper=keeper)


def read_run(config: TrainingConfig) -> Source:
    """Read all files of a run, and take the features that its directory keeps, if it has one.

    Raises:
        FileNotFoundError: for data that is not there.
        ValueError: as `read`, and if the directory keeps the features of other records, of another file or module.
    """
    return read(config, keeper=None if config.run is None else Keeper(Path(config.run)))


def _tables_of(config: TrainingConfig) -> list[str]:
    """List the CSV files of a configuration."""
    owners = config.owners
    if not isinstance(owners, FileOwners):
        return []
    return [path for path in (owners.csv, owners.held_out) if path is not None]
