"""The owner settings of the papers: functions from the classes of records to `Owners`.

In most of them the owner of a record follows from its class. Owners are public, so the classes of the training records
are, too: these settings are for studying methods, not for protecting labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Draw
from inosgm.datasets.dataset import Dataset
from inosgm.datasets.places import NATIONALITIES
from inosgm.datasets.rules import ByClass, OnePerClass, OnePerRecord, Rule, Split, generator_of
from inosgm.owners import Owners


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A data set as a setting changes it.

    Attributes:
        dataset: The records to train on, chosen and labelled as the setting says, and those held out.
        owners: The owners of the training records.
        groups: One label per held-out record: its owner where a class has one (or mostly one), or else its class.
        public: Inputs of public records, which are neither trained on nor held out; there may be none.
    """

    dataset: Dataset
    owners: Owners
    groups: np.ndarray
    public: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """An assignment of records to owners with budgets: call it with classes, or `prepare` a data set.

    Attributes:
        name: What the paper calls it.
        about: One sentence.
        dataset: The data set that it goes with.
        classes: How many classes its records have.
        rule: Who owns a record.
        method: How the paper plans for it.
        model: The model that the paper trains, by its name in `inosgm.training.models`, or the nearest that we have.
        model_options: What that model is given.
        categories: If not empty, only the classes of these categories are used, numbered category by category.
        flipped: The share of training records whose class is replaced by another one, at random. Owners follow the
            class before that, and held-out records keep theirs.
        kept: The probability with which a training record of a class is kept, by class; 1 for those that are not named.
            Held-out records are all kept.

    >>> MN([0, 7, 3, 9]).of_record.tolist(), MN([0, 7]).labels, MN([0, 7]).epsilon.tolist()
    ([0, 1, 0, 1], ('digits 0-4', 'digits 5-9'), [0.1, 1.0])
    """

    name: str
    about: str
    dataset: str
    classes: int
    rule: Rule
    method: Literal["sample", "scale"]
    model: str
    model_options: Mapping[str, Any] = field(default_factory=dict)
    categories: Sequence[str] = ()
    flipped: float = 0.0
    kept: Mapping[int, float] = field(default_factory=dict)

    def __call__(self, labels: ArrayLike, seed: int | None = None) -> Owners:
        """Return the owners of training records.

        Args:
            labels: The class of each record, a whole number.
            seed: Decides what is random, in those settings where something is.

        Raises:
            ValueError: for classes that the setting does not know, or a seed that is missing.
        """
        return self.rule.owners(self._checked(labels), seed)

    def groups(self, labels: ArrayLike, seed: int | None = None) -> np.ndarray:
        """Return one label per held-out record: its owner where a class has one (or mostly one), or else its class.

        The arguments are those of the setting itself; with the same seed the owners are the same.
        """
        return self.rule.groups(self._checked(labels), seed)

    def select(self, dataset: Dataset) -> Dataset:
        """Return the part of a data set that the setting uses: of `categories`, if it names some, otherwise all.

        Raises:
            ValueError: if the data set has no such categories.
        """
        if not self.categories:
            return dataset
        pairs = list(zip(dataset.categories, dataset.classes, strict=False))
        classes = [name for wanted in self.categories for category, name in pairs if category == wanted]
        if len(classes) != self.classes:
            raise ValueError(f"{self.name} needs a data set with the categories {', '.join(self.categories)}")
        return replace(dataset.only(classes), name=f"{dataset.name}:{'+'.join(self.categories)}")

    def thin(self, dataset: Dataset, seed: int | None = None) -> Dataset:
        """Return a data set with fewer training records of some classes, if the setting says so, otherwise all.

        **Guarantee.** Whether a record stays follows from its class, its place in the data set and the public seed:
        what others are has no say in it. What is left is the data set that promises are about.

        Raises:
            ValueError: for a seed that is missing.
        """
        if not self.kept:
            return dataset
        share = np.array([self.kept.get(label, 1.0) for label in range(self.classes)])
        coins = generator_of(seed, Draw.KEPT_RECORDS).random(dataset.y.size)
        stays = coins < share[self._checked(dataset.y)]
        return replace(dataset, x=dataset.x[stays], y=dataset.y[stays])

    def relabel(self, labels: ArrayLike, seed: int | None = None) -> np.ndarray:
        """Return the classes to train with: some flipped, if the setting says so, otherwise as they are."""
        result = self._checked(labels)
        if not self.flipped:
            return result
        generator = generator_of(seed, Draw.FLIPPED_LABELS)
        wrong = generator.choice(result.size, round(self.flipped * result.size), replace=False)
        result[wrong] = (result[wrong] + generator.integers(1, self.classes, wrong.size)) % self.classes
        return result

    def prepare(self, dataset: Dataset, seed: int | None = None) -> Prepared:
        """Choose records, thin classes, name owners, flip classes: all that the setting does to a data set.

        Args:
            dataset: The one that the setting goes with, or another with the same classes.
            seed: Decides what is random, in those settings where something is.

        Raises:
            ValueError: for a data set of other classes, or a seed that is missing.
        """
        chosen = self.select(dataset)
        if len(chosen.classes) != self.classes:
            raise ValueError(
                f"{self.name} needs a data set of {self.classes} classes such as {self.dataset}, "
                f"{dataset.name} has {len(chosen.classes)}"
            )
        chosen = self.thin(chosen, seed)
        return Prepared(
            dataset=replace(chosen, y=self.relabel(chosen.y, seed)),
            owners=self(chosen.y, seed),
            groups=self.groups(chosen.y_test, seed),
        )

    def _checked(self, labels: ArrayLike) -> np.ndarray:
        array = np.asarray(labels)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise ValueError(f"labels must be one whole number per record, got {array.dtype} of shape {array.shape}")
        if array.size and not 0 <= array.min() <= array.max() < self.classes:
            raise ValueError(f"labels must lie in [0, {self.classes}), the classes of {self.name}")
        return array.astype(np.int64)


def split(fractions: Sequence[float], epsilons: Sequence[float], n: int, seed: int) -> Owners:
    """Return owners 0, 1, ... of n records, who hold given fractions of them, drawn at random.

    Args:
        fractions: They sum to 1.
        epsilons: What each owner grants.
        n: How many records there are.
        seed: Decides who gets which.

    Raises:
        ValueError: for fractions that do not sum to 1 or have no epsilon each.

    >>> split([0.34, 0.43, 0.23], [1, 2, 3], n=1000, seed=0).sizes.tolist()
    [340, 430, 230]
    """
    labels = np.zeros(_validate.count("n", n, least=1), dtype=np.int64)
    return Split(fractions, epsilons).owners(labels, seed)


def _evenly(low: float, high: float, number: int) -> tuple[float, ...]:
    return tuple(np.linspace(low, high, number).round(12).tolist())


def _skewed(k: float, scale: float, shift: float) -> Split:
    """Return twenty groups, epsilon 0.5 to 1, whose sizes go as scale * e^(k epsilon) + shift.

    So the PDP-SGD paper, App. C.1, where sizes are to add up to the number of records. With its constants they do for
    eleven groups (1.008 and 1.005 of them), and for its twenty come to 1.83 times as many. Here the curve and the
    twenty groups are kept, and sizes divided by their sum.
    """
    epsilons = _evenly(0.5, 1, 20)
    sizes = scale * np.exp(k * np.array(epsilons)) + shift
    return Split((sizes / sizes.sum()).tolist(), epsilons)


_DIGITS = ("digits 0-4",) * 5 + ("digits 5-9",) * 5
_FISH_VEHICLES = ("fish",) * 5 + ("vehicles_1",) * 5
_COUNTRIES = tuple("Russian" if name == "Russian" else "others" for name in NATIONALITIES)
_CIFAR10: dict[str, Any] = {"dataset": "cifar10", "classes": 10, "method": "scale", "model": "cifar_cnn"}
_CIFAR100_FV: dict[str, Any] = {
    "dataset": "cifar100",
    "classes": 10,
    "method": "sample",
    "model": "cifar_cnn",
    "categories": ("fish", "vehicles_1"),
}
_MNIST: dict[str, Any] = {"dataset": "mnist", "classes": 10, "method": "sample", "model": "mnist_cnn"}

MN = Setting(
    name="MN",
    about="MNIST: digits 0 to 4 grant epsilon 0.1, digits 5 to 9 grant 1.",
    dataset="mnist",
    classes=10,
    rule=ByClass(_DIGITS, {"digits 0-4": 0.1, "digits 5-9": 1.0}),
    method="sample",
    model="mnist_cnn",
)
M5 = Setting(
    name="M5",
    about="5,000 images of MNIST, ten owners, one per digit: epsilon 0.5 to 5. Of our own study, in no paper.",
    dataset="mnist5k",
    classes=10,
    rule=OnePerClass(_evenly(0.5, 5, 10)),
    method="scale",
    model="mlp",
    model_options={"widths": (32,), "activation": "tanh"},
)
CM = Setting(
    name="CM",
    about="CIFAR-10, ten owners, one per class: epsilon 0.5 to 5 (more private).",
    rule=OnePerClass(_evenly(0.5, 5, 10)),
    **_CIFAR10,
)
CL = Setting(
    name="CL",
    about="CIFAR-10, ten owners, one per class: epsilon 6 to 15 (less private).",
    rule=OnePerClass(_evenly(6, 15, 10)),
    **_CIFAR10,
)
CR = Setting(
    name="CR",
    about="As CM, but each owner holds a random class: the hardness of a class averages out over seeds.",
    rule=OnePerClass(_evenly(0.5, 5, 10), shuffled=True),
    **_CIFAR10,
)
CS = Setting(
    name="CS",
    about="CIFAR-10, every record its own owner: epsilon uniform within 0.25 of the mean of its class, 0.5 to 5.",
    rule=OnePerRecord(_evenly(0.5, 5, 10), spread=0.25, normal=False, names=[f"class {i}" for i in range(10)]),
    **_CIFAR10,
)
COL = Setting(
    name="COL",
    about="As CM, but owners hold 90 % of a class and 10 % of the others (less overlap).",
    rule=OnePerClass(_evenly(0.5, 5, 10), given_away=0.1),
    **_CIFAR10,
)
COM = Setting(
    name="COM",
    about="As CM, but owners hold 70 % of a class and 30 % of the others (more overlap).",
    rule=OnePerClass(_evenly(0.5, 5, 10), given_away=0.3),
    **_CIFAR10,
)
CH = Setting(
    name="CH",
    about="CIFAR-100, a hundred owners, one per class: epsilon 1 to 10.",
    dataset="cifar100",
    classes=100,
    rule=OnePerClass(_evenly(1, 10, 100)),
    method="sample",
    model="cifar_cnn",
)
CF = Setting(
    name="CF",
    about="Five classes of fish (epsilon 1) and five of vehicles (epsilon 5) of CIFAR-100.",
    rule=ByClass(_FISH_VEHICLES, {"fish": 1.0, "vehicles_1": 5.0}),
    **_CIFAR100_FV,
)
CFS = Setting(
    name="CFS",
    about="As CF, every record its own owner: epsilon normal around 1 or 5, deviation 0.5, at least 0.1.",
    rule=OnePerRecord((1.0,) * 5 + (5.0,) * 5, spread=0.5, normal=True, names=_FISH_VEHICLES),
    **_CIFAR100_FV,
)
CFN = Setting(
    name="CFN",
    about="As CF, with 10 % of the training classes flipped at random.",
    rule=CF.rule,
    flipped=0.1,
    **_CIFAR100_FV,
)
CA = Setting(
    name="CA",
    about="Cardiotocography: pathological fetuses grant epsilon 3, suspicious ones 4, normal ones 5.",
    dataset="cardiotocography",
    classes=3,
    rule=ByClass(("normal", "suspicious", "pathological"), {"pathological": 3.0, "suspicious": 4.0, "normal": 5.0}),
    method="sample",
    model="mlp",
)
PN = Setting(
    name="PN",
    about="Chest X-rays: pneumonia grants epsilon 0.5, normal 5. The paper has embeddings of larger images, of three "
    "classes, 1,341 each; here are the two classes of PneumoniaMNIST, and a CNN on its pixels.",
    dataset="pneumoniamnist",
    classes=2,
    rule=ByClass(("normal", "pneumonia"), {"normal": 5.0, "pneumonia": 0.5}),
    method="scale",
    model="mnist_cnn",
)
SU = Setting(
    name="SU",
    about="Surnames: Russian ones, the majority, grant epsilon 3, those of 17 other countries 2.",
    dataset="names",
    classes=18,
    rule=ByClass(_COUNTRIES, {"Russian": 3.0, "others": 2.0}),
    method="sample",
    model="char_lstm",
)
IDP_34_43_23 = Setting(
    name="IDP_34_43_23",
    about="MNIST, 34 %, 43 % and 23 % of the records at random: epsilon 1, 2 and 3 (of the IDP-SGD paper).",
    rule=Split((0.34, 0.43, 0.23), (1.0, 2.0, 3.0)),
    **_MNIST,
)
IDP_54_37_9 = Setting(
    name="IDP_54_37_9",
    about="MNIST, 54 %, 37 % and 9 % of the records at random: epsilon 1, 2 and 3 (of the IDP-SGD paper).",
    rule=Split((0.54, 0.37, 0.09), (1.0, 2.0, 3.0)),
    **_MNIST,
)
UM = Setting(
    name="UM",
    about="Unbalanced MNIST: ten owners, one per digit, who all grant epsilon 1; a tenth of the eights (of the ASC "
    "paper).",
    rule=OnePerClass((1.0,) * 10),
    kept={8: 0.1},
    **_MNIST,
)
PDP_K_MINUS = Setting(
    name="PDP_K_MINUS",
    about="MNIST, twenty random groups, epsilon 0.5 to 1: more records the stricter (k = -0.2 of the PDP-SGD paper).",
    rule=_skewed(-0.2, 2.098, -1.715),
    **_MNIST,
)
PDP_K_0 = Setting(
    name="PDP_K_0",
    about="MNIST, twenty random groups, epsilon 0.5 to 1: equally many records each (k = 0 of the PDP-SGD paper).",
    rule=_skewed(0.0, 0.05, 0.0),
    **_MNIST,
)
PDP_K_PLUS = Setting(
    name="PDP_K_PLUS",
    about="MNIST, twenty random groups, epsilon 0.5 to 1: fewer records the stricter (k = 0.2 of the PDP-SGD paper).",
    rule=_skewed(0.2, 1.554, -1.715),
    **_MNIST,
)

SETTINGS = {
    setting.name: setting
    for setting in (
        *(MN, M5, CM, CL, CR, CS, COL, COM, CH, CF, CFS, CFN, CA, PN, SU),
        *(UM, IDP_34_43_23, IDP_54_37_9, PDP_K_MINUS, PDP_K_0, PDP_K_PLUS),
    )
}
"""All settings by name."""
