"""Images from files: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, PneumoniaMNIST."""

from pathlib import Path

import numpy as np

from inosgm.datasets.dataset import Dataset
from inosgm.datasets.files import read_cifar, read_idx, read_npz, scaled
from inosgm.datasets.places import located

DIGITS = tuple("0123456789")
GARMENTS = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def mnist(root: Path) -> Dataset:
    """Read the 60,000 + 10,000 handwritten digits."""
    return _idx("mnist", root, DIGITS)


def fashion_mnist(root: Path) -> Dataset:
    """Read the 60,000 + 10,000 garments."""
    return _idx("fashion_mnist", root, GARMENTS)


def _idx(name: str, root: Path, classes: tuple[str, ...]) -> Dataset:
    x, y, x_test, y_test = (read_idx(path) for path in located(name, root))
    return Dataset(name=name, x=scaled(x[:, None]), y=y, x_test=scaled(x_test[:, None]), y_test=y_test, classes=classes)


def cifar10(root: Path) -> Dataset:
    """Read the official 50,000 + 10,000 images, or else the 20,000 + 5,000 of `cifar10_20k.npz`.

    The held-out records of the npz are its `x_holdout`: they come from the official training images, are not among
    the 20,000, and are balanced.
    """
    *paths, path = located("cifar10", root)
    if not paths:
        x, y, x_test, y_test = read_npz(path, ["x_train", "y_train", "x_holdout", "y_holdout"])
        x, x_test = np.moveaxis(x, 3, 1), np.moveaxis(x_test, 3, 1)
    else:
        parts = [read_cifar(batch, labels=1) for batch in paths]
        x, y = np.concatenate([images for _, images in parts]), np.concatenate([labels[:, 0] for labels, _ in parts])
        labels, x_test = read_cifar(path, labels=1)
        y_test = labels[:, 0]
    return Dataset(name="cifar10", x=scaled(x), y=y, x_test=scaled(x_test), y_test=y_test, classes=CIFAR10)


def cifar100(root: Path) -> Dataset:
    """Read the official 50,000 + 10,000 images of 100 classes in 20 categories."""
    train, test, fine, coarse = located("cifar100", root)
    classes, groups = (path.read_text(encoding="utf-8").split() for path in (fine, coarse))
    (labels, x), (labels_test, x_test) = read_cifar(train, labels=2), read_cifar(test, labels=2)
    pairs = np.unique(np.concatenate([labels, labels_test])[:, ::-1], axis=0)  # (class, category), by class
    if pairs[:, 0].tolist() != list(range(len(classes))) or pairs[:, 1].max() >= len(groups):
        raise ValueError(f"{train} must hold every class of {fine.name}, each in one category of {coarse.name}")
    return Dataset(
        name="cifar100",
        x=scaled(x),
        y=labels[:, 1],
        x_test=scaled(x_test),
        y_test=labels_test[:, 1],
        classes=tuple(classes),
        categories=tuple(groups[group] for group in pairs[:, 1]),
    )


def pneumoniamnist(root: Path) -> Dataset:
    """Read the 4,708 + 624 chest X-rays of MedMNIST's official training and test parts, 28 x 28 pixels."""
    (path,) = located("pneumoniamnist", root)
    x, y, x_test, y_test = read_npz(path, ["train_images", "train_labels", "test_images", "test_labels"])
    return Dataset(
        name="pneumoniamnist",
        x=scaled(x[:, None]),
        y=y.ravel(),
        x_test=scaled(x_test[:, None]),
        y_test=y_test.ravel(),
        classes=("normal", "pneumonia"),
    )
