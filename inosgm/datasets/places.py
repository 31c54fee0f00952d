"""The files of each data set, and whether they exist; nothing is read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from inosgm.datasets.files import find, need

NATIONALITIES = (
    *("Arabic", "Chinese", "Czech", "Dutch", "English", "French", "German", "Greek", "Irish", "Italian"),
    *("Japanese", "Korean", "Polish", "Portuguese", "Russian", "Scottish", "Spanish", "Vietnamese"),
)
IDX = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
CIFAR10 = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
CIFAR100 = ("train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt")
PICKLED = " (the binary version: the python version is pickled, and never read)"


def located(name: str, root: Path) -> list[Path]:
    """Return the files of a data set in a data directory, in the order in which it is read.

    Raises:
        FileNotFoundError: naming every file that is missing, and where to put it.
    """
    return PLACES[name](root)


def _cifar10(root: Path) -> list[Path]:
    """Return the official files, or the one with a part of them, if none of those is there."""
    folder = root / "cifar10" / "cifar-10-batches-bin"
    subset = find(root / "cifar10", "cifar10_20k.npz")
    if subset is not None and find(folder, *CIFAR10) is None:
        return [subset]
    note = f"{PICKLED}, or cifar10_20k.npz into {root / 'cifar10'}"
    return need("cifar10", folder, [*CIFAR10, "test_batch.bin"], note=note)


def _cifar100(root: Path) -> list[Path]:
    return need("cifar100", root / "cifar100" / "cifar-100-binary", CIFAR100, note=PICKLED)


def _adult(root: Path) -> list[Path]:
    """Return one table, or the official two files."""
    table = find(root / "adult", "adult.csv.gz", "adult.csv")
    note = ", or adult.csv.gz with a header and a column split (train, test)"
    return [table] if table is not None else need("adult", root / "adult", ["adult.data", "adult.test"], note=note)


def _plain(name: str, files: tuple[str, ...], root: Path, *, packed: bool = False) -> list[Path]:
    return need(name, root / name, files, packed=packed)


PLACES: dict[str, Callable[[Path], list[Path]]] = {
    "adult": _adult,
    "cardiotocography": partial(_plain, "cardiotocography", ("ctg.csv",)),
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "fashion_mnist": partial(_plain, "fashion_mnist", IDX, packed=True),
    "mnist": partial(_plain, "mnist", IDX, packed=True),
    "names": partial(_plain, "names", tuple(f"{nationality}.txt" for nationality in NATIONALITIES)),
    "pneumoniamnist": partial(_plain, "pneumoniamnist", ("pneumoniamnist.npz",)),
}
