"""Real tables, who owns their rows, and what these owners grant."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyarrow import csv
from sklearn.datasets import load_breast_cancer, load_diabetes

from inosgm import Owners
from inosgm.datasets.embedded import TUMOUR_RANGES
from inosgm.datasets.tables import within

DELTA = 1e-6
WRONG = "wage, 2 % in cents"
"""Wages of which some were written down in another unit: the errors are ours, not those of the table."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns of real data, and an owner for each row.

    Attributes:
        name: What the table is called.
        columns: Numbers or text, by name.
        groups: The label of each row's owner, by what the row holds.
        epsilon: What each owner grants.
        by: What owners differ in, in words.
    """

    name: str
    columns: Mapping[str, np.ndarray]
    groups: np.ndarray
    epsilon: Mapping[str, float]
    by: str

    def owners(self, factor: float, deal: int | None = None) -> Owners:
        """Return the owners with all budgets times a factor.

        Args:
            factor: What all budgets are multiplied with.
            deal: None for owners by groups; a number for labels that are dealt out anew, as many of each, so that
                owners have nothing to do with the values.
        """
        labels = self.groups if deal is None else np.random.default_rng(deal).permutation(self.groups)
        return Owners(of_record=labels, epsilon={k: factor * v for k, v in self.epsilon.items()}, delta=DELTA)

    def data(self, columns: tuple[str, ...]) -> np.ndarray:
        """Return one column as it is, or several side by side."""
        if len(columns) == 1:
            return self.columns[columns[0]]
        return np.stack([self.columns[name] for name in columns], axis=1)


def _read(root: str | os.PathLike[str], name: str) -> dict[str, np.ndarray]:
    """Read a table of ../shared/data: whole numbers become numbers like all others, text stays text."""
    path = Path(root) / name / f"{name}.csv.gz"
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not there: put {path.name} into {path.parent}, or give --data-dir")
    table = csv.read_csv(path)
    columns = {column: np.asarray(table[column]) for column in table.column_names}
    return {name: c.astype(np.float64 if c.dtype.kind in "if" else str) for name, c in columns.items()}


def cps1988(root: str | os.PathLike[str]) -> Table:
    """Return weekly wages in US dollars: a few are very high."""
    columns = _read(root, "cps1988")
    wrong = np.random.default_rng(0).random(columns["wage"].size) < 0.02
    columns[WRONG] = np.where(wrong, 100 * columns["wage"], columns["wage"])
    columns |= {f"log {name}": np.log(columns[name]) for name in ("wage", WRONG)}
    epsilon = {"afam": 0.25, "cauc": 1.0}
    return Table(name="cps1988", columns=columns, groups=columns["ethnicity"], epsilon=epsilon, by="ethnicity")


def nmes1988(root: str | os.PathLike[str]) -> Table:
    """Return visits to physicians and stays in hospitals of people over 65."""
    columns = _read(root, "nmes1988")
    columns["any stay"] = (columns["hospital"] > 0).astype(np.float64)
    epsilon = {"poor": 0.25, "average": 1.0, "excellent": 2.0}
    return Table(name="nmes1988", columns=columns, groups=columns["health"], epsilon=epsilon, by="health")


def adult(root: str | os.PathLike[str]) -> Table:
    """Return hours of work, capital gains and ages; what is missing there is missing in columns of text only."""
    columns = _read(root, "adult")
    columns["female"] = (columns["sex"] == "Female").astype(np.float64)
    epsilon = {"<=50K": 1.0, ">50K": 0.25}
    return Table(name="adult", columns=columns, groups=columns["income"], epsilon=epsilon, by="income")


def breast_cancer() -> Table:
    """Return measures of 569 tumours; those without "mean" in their name with public ranges mapped to [-1, 1]."""
    bunch = load_breast_cancer()
    columns = dict(zip(map(str, bunch.feature_names), bunch.data.T, strict=True))
    scaled = within(bunch.data, TUMOUR_RANGES).astype(np.float64).T
    columns |= {name.removeprefix("mean "): column for name, column in zip(list(columns)[:10], scaled, strict=False)}
    groups = np.array([str(name) for name in bunch.target_names])[bunch.target]
    epsilon = {"benign": 4.0, "malignant": 1.0}
    return Table(name="breast cancer", columns=columns, groups=groups, epsilon=epsilon, by="diagnosis")


def diabetes() -> Table:
    """Return 442 patients: ten measures, and how far the disease had gone a year later."""
    bunch = load_diabetes(scaled=False)
    columns = dict(zip(map(str, bunch.feature_names), bunch.data.T, strict=True)) | {"progression": bunch.target}
    groups = np.where(columns["sex"] == columns["sex"].min(), "sex 1", "sex 2")
    epsilon = {"sex 1": 4.0, "sex 2": 1.0}
    return Table(name="diabetes", columns=columns, groups=groups, epsilon=epsilon, by="sex")


EMBEDDED: dict[str, Callable[[], Table]] = {"breast cancer": breast_cancer, "diabetes": diabetes}
FILED: dict[str, Callable[[str | os.PathLike[str]], Table]] = {"cps1988": cps1988, "nmes1988": nmes1988, "adult": adult}


def load(names: list[str], root: str | os.PathLike[str] | None) -> dict[str, Table]:
    """Return tables by name; those of files need the data directory.

    Raises:
        FileNotFoundError: for a table that is not there.
    """
    wanted = [name for name in names if name in FILED]
    if wanted and root is None:
        raise FileNotFoundError(f"{', '.join(wanted)} need the data directory: give --data-dir, or set INOSGM_DATA")
    return {name: EMBEDDED[name]() if name in EMBEDDED else FILED[name](str(root)) for name in names}
