"""Readers of the files of data sets: gzip, text, idx, CIFAR and npz. Nothing is ever unpickled."""

import gzip
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def find(folder: Path, *names: str) -> Path | None:
    """Return the first of the files that is there."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def need(dataset: str, folder: Path, names: Sequence[str], *, packed: bool = False, note: str = "") -> list[Path]:
    """Return the files of a data set, or say where to put which; packed ones may also end in .gz.

    Raises:
        FileNotFoundError: naming every file that is missing.
    """
    found = {name: find(folder, name, *([f"{name}.gz"] * packed)) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        form = " (as it is or with .gz)" if packed else ""
        raise FileNotFoundError(f"{dataset} is not there: put {', '.join(missing)}{form} into {folder}{note}")
    return [path for path in found.values() if path is not None]


def read(path: Path) -> bytes:
    """Read a file, through gzip if its name says so.

    Raises:
        ValueError: if it is packed and damaged.
    """
    content = path.read_bytes()
    try:
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise ValueError(f"{path} must be a whole gzip file, and is not: copy it again") from None


def read_text(path: Path) -> str:
    """Read a file of text, through gzip if its name says so.

    Raises:
        ValueError: if it is none; Python's own message would show what it holds.
    """
    try:
        return read(path).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8, and is not: copy it again") from None


def read_idx(path: Path) -> np.ndarray:
    """Read an idx file of unsigned bytes, the format of MNIST.

    Raises:
        ValueError: if the header is another one, or does not say how long the file is.
    """
    content = read(path)
    axes = content[3] if len(content) > 3 else 0
    if content[:3] != b"\0\0\x08" or not axes or len(content) < 4 + 4 * axes:
        raise ValueError(f"{path} must be an idx file of unsigned bytes: it does not begin like one")
    shape = tuple(np.frombuffer(content, ">u4", count=axes, offset=4).tolist())
    if len(content) != 4 + 4 * axes + math.prod(shape):
        raise ValueError(f"{path} must hold {math.prod(shape)} bytes after its header, as it says: copy it again")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_cifar(path: Path, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Read a binary CIFAR file, a row of labels and 3 x 32 x 32 bytes per record: return labels and images.

    Raises:
        ValueError: if it is not made of such rows.
    """
    row = labels + 3 * 32 * 32
    content = np.fromfile(path, np.uint8)
    if not content.size or content.size % row:
        raise ValueError(f"{path} must be made of rows of {row} bytes, got {content.size} bytes: copy it again")
    rows = content.reshape(-1, row)
    return rows[:, :labels].astype(np.int64), rows[:, labels:].reshape(-1, 3, 32, 32)


def read_npz(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read some arrays of an npz file.

    Raises:
        ValueError: for an array that is missing, damaged, or could only be unpickled.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in names if name in arrays.files}
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} must be an npz file of plain arrays: {error}") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} must hold the array {missing[0]!r}")
    return list(found.values())


def scaled(pixels: np.ndarray) -> np.ndarray:
    """Return bytes as float32 in [0, 1]."""
    result: np.ndarray = np.divide(pixels, 255, dtype=np.float32)
    return result
