"""The tasks of the study: records, owners, model and the size of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from inosgm.datasets.rules import ByClass, OnePerClass, Rule
from inosgm.datasets.settings import SETTINGS

SCALE = ("scale",)
BOTH = ("scale", "sample")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The points that tuning starts from; it moves on from the best of them until no neighbour is better.

    Attributes:
        rates: Learning rates.
        tails: Fractions of the expected total sensitivity in the linear tail of INO-SGD.
        strengths: Strengths of the correction in the loss. Those after training need no run: all are tried.
        temperatures: How fast ASC follows losses.
    """

    rates: tuple[float, ...] = (0.3, 1.0, 3.0)
    tails: tuple[float, ...] = (0.3, 0.5, 0.7, 0.9)
    strengths: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5)
    temperatures: tuple[float, ...] = (0.1,)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task: everything about a run but the method, its numbers and the seed.

    Attributes:
        title: One line for the page.
        note: What the page says about it.
        dataset: Its name for `inosgm.datasets.load`.
        rule: Who owns the records of a class.
        features: Whether the model sees scattering features instead of the records.
        records: How many training records are used, drawn once; None for all.
        model: The model by its name in `inosgm.training.models`; a logistic regression starts from 0.
        options: What that model takes.
        steps: Steps of a plan.
        expected_batch: Records in a batch, on average.
        clip_norm: The mean sensitivity of a record.
        momentum: Of SGD.
        plans: The plans that give each owner its own budget.
        asc: Whether ASC is run.
        unequal: Whether some classes have many more records than others.
        grid: Where tuning starts.
        tuning_seeds: Seeds that tuning uses and that are not reported.
        seeds: Seeds that are reported.
        tuned_as: The task whose chosen points are used; its own tuning if empty.
    """

    title: str
    note: str = ""
    dataset: str
    rule: Rule
    features: bool = True
    records: int | None = None
    model: str = "logistic_regression"
    options: Mapping[str, object] = field(default_factory=dict)
    steps: int = 300
    expected_batch: int = 1024
    clip_norm: float = 0.1
    momentum: float = 0.9
    plans: tuple[str, ...] = SCALE
    asc: bool = True
    unequal: bool = False
    grid: Grid = Grid()
    tuning_seeds: tuple[int, ...] = (101, 102)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    tuned_as: str = ""

    @property
    def source(self) -> str:
        """A name for the records that the model sees."""
        parts = (self.dataset, "scattering" if self.features else "", "" if self.records is None else str(self.records))
        return "-".join(part for part in parts if part)


def _evenly(low: float, high: float, number: int = 10) -> tuple[float, ...]:
    return tuple(np.linspace(low, high, number).round(12).tolist())


def _halves(strict: float, lenient: float) -> ByClass:
    """Return two owners: one holds classes 0 to 4, the other one 5 to 9."""
    return ByClass(("0-4",) * 5 + ("5-9",) * 5, {"0-4": strict, "5-9": lenient})


COARSE = Grid(tails=(0.5, 0.7), strengths=(0.0, 0.5, 1.0))
"""Where tuning starts if hours are short; it moves on from there by the same rule."""

_CM = Task(title="CIFAR-10 CM: ten owners, epsilon .5 to 5", dataset="cifar10", rule=SETTINGS["CM"].rule)
_CIFAR = replace(_CM, note="Records, model and steps are those of CM.", grid=COARSE, seeds=(1, 2, 3))
_DIGITS = Task(
    title="mnist5k: ten owners, epsilon .1 to 2",
    dataset="mnist5k",
    rule=OnePerClass(_evenly(0.1, 2)),
    features=False,
    model="mlp",
    options={"widths": (64,), "activation": "tanh"},
    steps=200,
    expected_batch=512,
    clip_norm=1.0,
    momentum=0.0,
    plans=BOTH,
)
_IMAGES = Task(
    title="",
    note="20,000 of the 60,000 training images, scattering features, a linear model, 300 steps of 512.",
    dataset="fashion_mnist",
    rule=OnePerClass(_evenly(0.1, 1)),
    records=20_000,
    expected_batch=512,
    grid=COARSE,
)

TASKS = {
    "cm": _CM,
    "mnist5k": _DIGITS,
    "mnist5k-lenient": replace(
        _DIGITS,
        title="mnist5k: ten owners, epsilon .5 to 5",
        note="Otherwise as above.",
        rule=OnePerClass(_evenly(0.5, 5)),
        plans=SCALE,
    ),
    "fashion10": replace(_IMAGES, title="Fashion-MNIST: ten owners, epsilon .1 to 1"),
    "fashion2": replace(_IMAGES, title="Fashion-MNIST: two owners, epsilon .1 and 1", rule=_halves(0.1, 1.0)),
    "mnist10": replace(_IMAGES, title="MNIST: ten owners, epsilon .1 to 1", dataset="mnist"),
    "mnist2": replace(_IMAGES, title="MNIST: two owners, epsilon .1 and 1", dataset="mnist", rule=SETTINGS["MN"].rule),
    "pneumonia": replace(
        _IMAGES,
        title="PneumoniaMNIST: pneumonia grants epsilon .5, normal 5",
        note="Scattering features, a linear model, 300 steps of 512. The strict owner holds 3,494 of the 4,708 images.",
        dataset="pneumoniamnist",
        rule=SETTINGS["PN"].rule,
        unequal=True,
        records=None,
        plans=BOTH,
    ),
    "cardiotocography": replace(
        _IMAGES,
        title="Cardiotocography: pathological grants epsilon 3, suspicious 4, normal 5",
        note="An MLP with 32 tanh neurons, 300 steps of 256. The strictest owner is the smallest. Tuning goes by "
        "balanced accuracy, so corrected methods give up accuracy, which the largest class dominates.",
        dataset="cardiotocography",
        rule=SETTINGS["CA"].rule,
        unequal=True,
        features=False,
        records=None,
        model="mlp",
        options={"widths": (32,), "activation": "tanh"},
        expected_batch=256,
        momentum=0.0,
        plans=BOTH,
        grid=Grid(rates=(0.1, 1.0, 10.0)),
    ),
    "cm-sample": replace(_CIFAR, title="CIFAR-10 CM, SAMPLE", plans=("sample",), asc=False),
    "cm2": replace(_CIFAR, title="CIFAR-10: two owners, epsilon .5 and 5", rule=_halves(0.5, 5.0)),
    "cl": replace(_CIFAR, title="CIFAR-10 CL: ten owners, epsilon 6 to 15", rule=SETTINGS["CL"].rule),
    "cr": replace(
        _CIFAR,
        title="CIFAR-10 CR: CM with classes assigned at random",
        note="Records, model and steps are those of CM, and so are the chosen points: nothing was tuned here. "
        "Every seed assigns classes anew.",
        rule=SETTINGS["CR"].rule,
        tuned_as="cm",
    ),
    "col": replace(_CIFAR, title="CIFAR-10 COL: CM with 10 % of each class elsewhere", rule=SETTINGS["COL"].rule),
    "com": replace(_CIFAR, title="CIFAR-10 COM: CM with 30 % of each class elsewhere", rule=SETTINGS["COM"].rule),
    "cs": replace(
        _CIFAR,
        title="CIFAR-10 CS: every record its own owner",
        note="Records, model and steps are those of CM. Epsilons are uniform within .25 of the mean of their class, .5 "
        "to 5, so DP-SGD trains at epsilon .25; an owner in this table is a class. ASC needs groups of records that "
        "share a budget: it does not apply.",
        rule=SETTINGS["CS"].rule,
        asc=False,
    ),
}
"""All tasks, the most important first."""
