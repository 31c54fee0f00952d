"""Surnames of 18 nationalities as padded codes of their letters."""

import string
import unicodedata
from pathlib import Path

import numpy as np

from inosgm.datasets.dataset import Dataset, held_out
from inosgm.datasets.files import read_text
from inosgm.datasets.places import NATIONALITIES, located

ALPHABET = string.ascii_letters + " .,;'-"
LENGTH = 20
"""Letters of a surname beyond these are cut off."""
VOCABULARY = len(ALPHABET) + 2
"""Number of codes: 0 for padding, one for each letter, and one for all other characters."""


def names(root: Path) -> Dataset:
    """Read the surnames, one file per nationality, every fifth of a nationality held out."""
    texts = [read_text(path).splitlines() for path in located("names", root)]
    words = [[line.strip() for line in lines if line.strip()] for lines in texts]
    x = np.stack([encode(word) for group in words for word in group])
    y = np.repeat(np.arange(len(words)), [len(group) for group in words])
    return held_out(x, y, name="names", classes=NATIONALITIES)


def encode(name: str) -> np.ndarray:
    """Return the codes of a name, accents dropped, padded with 0 to a fixed length.

    >>> encode("Ábc")[:4]
    array([27,  2,  3,  0])
    """
    letters = [letter for letter in unicodedata.normalize("NFD", name) if not unicodedata.combining(letter)][:LENGTH]
    codes = [ALPHABET.find(letter) + 1 or VOCABULARY - 1 for letter in letters]
    return np.array(codes + [0] * (LENGTH - len(codes)), dtype=np.int64)
