"""A private statistic with a heavy tail: how much the area of 569 tumours varies, which two owners hold."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from inosgm._internal.files import write_durably
from inosgm.ledger.ledger import Ledger
from inosgm.owners import Owners
from inosgm.statistics import Table, run_statistic

EPSILON, DELTA = {"benign": 5.0, "malignant": 1.0}, 1e-5
COLUMN, BOUNDS = "area error", (0.0, 600.0)
SUMS, LEVEL = ".sums", 0.9
QUESTIONS: dict[str, dict[str, Any]] = {"mean": {"stratified": True}, "upper-tail-mean": {"level": LEVEL}}
"""The questions, each for an equal share of every budget: the mean of all records, and that of the largest tenth."""


def answers(folder: Path) -> Iterator[str]:
    """Ask about the table, and yield each answer beside the exact value; owners pay once.

    Args:
        folder: Where table, owners, ledger and answers are kept, as `inosgm stats` would take and write them.
    """
    folder.mkdir(exist_ok=True)
    values, diagnoses = _tumours()
    table, people = folder / "tumours.csv", folder / "owners.csv"
    _write(table, [(COLUMN, "diagnosis"), *zip(values.tolist(), diagnoses, strict=True)])
    rows = [(name, epsilon, DELTA, diagnoses.count(name)) for name, epsilon in EPSILON.items()]
    _write(people, [("owner", "epsilon", "delta", "records"), *rows])
    owners = Owners.from_csv(people)
    ledger, share = Ledger(folder / "ledger", owners=owners), 1 / len(QUESTIONS)
    for question, parameters in QUESTIONS.items():
        asked = {"bounds": BOUNDS, **parameters}
        rules: dict[str, Any] = {"share": share, "ledger": ledger, "progress": False, **asked}
        estimate = run_statistic(
            question, Table.of(str(table), COLUMN, "diagnosis"), owners, store=folder / SUMS / question, **rules
        )
        about = {"question": question, "table": str(table), "columns": [COLUMN], "share": share, "parameters": asked}
        write_durably(folder / f"{question}.json", json.dumps({**about, **estimate.to_dict()}).encode() + b"\n")
        weights = estimate.weights or dict.fromkeys(EPSILON, 1.0)
        exact = _exact(question, values, np.array([weights[name] for name in diagnoses]))
        shown = f"{estimate.value:.1f} +- {estimate.standard_error:.1f}"
        yield f"{question} of {COLUMN}: {shown} ({exact:.1f} without noise, which is NOT PRIVATE)"


def _exact(question: str, values: np.ndarray, weights: np.ndarray) -> float:
    """Return the answer without noise."""
    if question == "mean":
        return float(np.average(values, weights=weights))
    order = np.argsort(-values, kind="stable")
    reached = np.cumsum(weights[order])
    kept = np.diff(np.minimum(reached, (1 - LEVEL) * reached[-1]), prepend=0.0)
    return float(np.average(values[order], weights=kept))


def _tumours() -> tuple[np.ndarray, list[str]]:
    """Return the column, and the owner of each record."""
    found = load_breast_cancer()
    column = list(found.feature_names).index(COLUMN)
    return found.data[:, column], found.target_names[found.target].tolist()


def _write(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, whole or not at all, unless it is there: a table that was asked about stays what it is."""
    if not path.exists():
        stream = io.StringIO(newline="")
        csv.writer(stream).writerows(rows)
        write_durably(path, stream.getvalue().encode())
