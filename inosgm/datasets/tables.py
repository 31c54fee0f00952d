"""Tables from files: cardiotocography and adult, scaled by constants that are written here.

A mean or a maximum of the data would be a release that nobody pays for. The ranges below stay the same whatever the
file holds. They are round numbers, set by hand with these public files known: for data of your own, choose before you
look.
"""

import csv
import io
from pathlib import Path

import numpy as np

from inosgm.datasets.dataset import Dataset, held_out
from inosgm.datasets.files import read_text
from inosgm.datasets.places import located

CTG_RANGES = {
    "LB": (110, 160),  # baseline of the fetal heart rate: what FIGO calls normal, in beats per minute
    "AC": (0, 0.01),  # accelerations, movements, contractions, decelerations: per second
    "FM": (0, 0.02),
    "UC": (0, 0.01),
    "DL": (0, 0.01),
    "DS": (0, 0.001),
    "DP": (0, 0.002),
    "ASTV": (0, 100),  # percentages of time with abnormal variability, and means of variability
    "MSTV": (0, 3),
    "ALTV": (0, 100),
    "MLTV": (0, 20),
    "Width": (0, 150),  # the histogram of the heart rate
    "Min": (50, 150),
    "Max": (120, 200),
    "Nmax": (0, 10),
    "Nzeros": (0, 3),
    "Mode": (110, 160),
    "Mean": (110, 160),
    "Median": (110, 160),
    "Variance": (0, 100),
    "Tendency": (-1, 1),
}
"""The range of each feature that is mapped to [-1, 1]."""

ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation"),
    *("relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country"),
)
ADULT_RANGES = {"age": (17, 90), "education_num": (1, 16), "hours_per_week": (1, 99)}
ADULT_AMOUNTS = {"capital_gain": 1e5, "capital_loss": 1e4}
ADULT_WORDS = {
    "workclass": "Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    "education": "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
    "Preschool Prof-school Some-college",
    "marital_status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated "
    "Widowed",
    "occupation": "Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
    "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
    "Transport-moving",
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native_country": "Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France "
    "Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan "
    "Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South "
    "Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia",
}
"""The words of each column as the description of the data lists them; "?" says that one is missing."""


@np.errstate(all="ignore")  # a warning would tell everybody about a record
def within(values: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Map each column's range to [-1, 1], and clip values to [-3, 3].

    >>> within(np.array([[5.0, 110.0], [10.0, 999.0]]), np.array([(0, 10), (110, 160)]))
    array([[ 0., -1.],
           [ 1.,  3.]], dtype=float32)
    """
    low, high = np.asarray(ranges, dtype=np.float64).T
    return np.asarray(np.clip(2 * (values - low) / (high - low) - 1, -3, 3), dtype=np.float32)


def cardiotocography(root: Path) -> Dataset:
    """Read the 2,126 fetal cardiotocograms of 21 features, every fifth of a class held out."""
    (path,) = located("cardiotocography", root)
    columns = _columns(path, read_text(path), (*CTG_RANGES, "NSP"))
    x = np.stack([_numbers(path, name, columns[name]) for name in CTG_RANGES], axis=1)
    with np.errstate(invalid="ignore"):  # a warning would tell everybody about a record
        labels = _numbers(path, "NSP", columns["NSP"]).astype(np.int64) - 1
    classes = ("normal", "suspicious", "pathological")
    return held_out(within(x, np.array(list(CTG_RANGES.values()))), labels, name="cardiotocography", classes=classes)


def adult(root: Path) -> Dataset:
    """Read the 32,561 + 16,281 people of the census of 1994; their sampling weights (fnlwgt) are left out.

    A word becomes a 1 among zeros, a missing one only zeros; ranges become [-1, 1], amounts of money logarithms in
    [0, 1]: 104 features.
    """
    table, *more = paths = located("adult", root)
    if not more:
        columns = _columns(table, read_text(table), (*ADULT_COLUMNS, "income", "split"))
        test = np.array([part == "test" for part in columns["split"]])
    else:
        header = ",".join((*ADULT_COLUMNS, "income"))
        texts = ["\n".join([header, *_official(path)]) for path in paths]
        parts = [_columns(path, text, header.split(",")) for path, text in zip(paths, texts, strict=True)]
        columns = {name: [*parts[0][name], *parts[1][name]] for name in parts[0]}
        test = np.arange(len(columns["income"])) >= len(parts[0]["income"])
        table = table.parent
    x = _features(table, columns)
    y = _one_hot(table, "income", columns["income"], ["<=50K", ">50K"]) @ np.arange(2)
    return Dataset(name="adult", x=x[~test], y=y[~test], x_test=x[test], y_test=y[test], classes=("<=50K", ">50K"))


def _official(path: Path) -> list[str]:
    """Return the rows of UCI's files, whose test part begins with a remark and ends every row with a dot."""
    lines = [line.strip().removesuffix(".") for line in read_text(path).splitlines()]
    return [line for line in lines if line and not line.startswith("|")]


def _features(path: Path, columns: dict[str, list[str]]) -> np.ndarray:
    ranges = np.stack([_numbers(path, name, columns[name]) for name in ADULT_RANGES], axis=1)
    amounts = [
        np.log1p(np.clip(_numbers(path, name, columns[name]), 0, most)) / np.log1p(most)
        for name, most in ADULT_AMOUNTS.items()
    ]
    words = [_one_hot(path, name, columns[name], known.split()) for name, known in ADULT_WORDS.items()]
    blocks = [within(ranges, np.array(list(ADULT_RANGES.values()))), np.stack(amounts, axis=1), *words]
    return np.concatenate(blocks, axis=1, dtype=np.float32)


def _columns(path: Path, text: str, names: tuple[str, ...] | list[str]) -> dict[str, list[str]]:
    """Return the named columns of a CSV text whose first line names them."""
    header, *rows = [row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row] or [[]]
    missing = [name for name in names if name not in header]
    if missing:
        raise ValueError(  # without the first line, which is a record where the names are missing
            f"{path} must have the column {missing[0]!r}, and its first line must name the columns"
        )
    short = [number for number, row in enumerate(rows, 1) if len(row) != len(header)]
    if short:
        raise ValueError(f"{path} must have {len(header)} entries in every row, row {short[0]} has not")
    return {name: [row[header.index(name)] for row in rows] for name in names}


def _numbers(path: Path, name: str, values: list[str]) -> np.ndarray:
    """Return a column as finite numbers; errors do not show what a record holds."""
    try:
        numbers = np.array(values, dtype=np.float64)
    except ValueError:
        raise ValueError(f"{path} must hold numbers in column {name!r}") from None
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers))) + 1
        raise ValueError(f"{path} must hold finite numbers in column {name!r}, row {row} has none")
    return numbers


def _one_hot(path: Path, name: str, values: list[str], words: list[str]) -> np.ndarray:
    place = {word: i for i, word in enumerate(words)} | {"?": len(words)}
    unknown = [row for row, value in enumerate(values, 1) if value not in place]
    if unknown:
        raise ValueError(f"{path} must hold published words in column {name!r}, row {unknown[0]} has another")
    return np.eye(len(words) + 1, len(words), dtype=np.int64)[[place[value] for value in values]]
