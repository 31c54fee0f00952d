"""Real data behind one function, and the papers' owner settings."""

from inosgm.datasets.dataset import Dataset
from inosgm.datasets.loading import NAMES, load

__all__ = ["NAMES", "Dataset", "load"]
