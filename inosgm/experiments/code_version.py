"""The version of the code that a result is a function of."""

from functools import lru_cache

import numpy as np
import torch

import inosgm
from inosgm._internal.source_digest import digest_of
from inosgm.experiments.config import TrainingConfig


def code_version(config: TrainingConfig) -> str:
    """Return what stands for the code that a run is made by.

    That is this package, the packages (or modules) that the configuration names import paths of, and the versions of
    torch and numpy. What those packages import in turn it does not know, and the code of a data set does not count: its
    records do.
    """
    features = None if config.features is None or config.features.from_file else config.features
    sections = (features, config.model, config.loss, config.optimizer, config.schedule)
    paths = {section.name for section in sections if section is not None and ":" in section.name}
    return f"{inosgm.__version__}+{_digest(tuple(sorted(path.partition(':')[0].partition('.')[0] for path in paths)))}"


@lru_cache
def _digest(packages: tuple[str, ...]) -> str:
    return digest_of(("inosgm", *packages), (torch.__version__.partition("+")[0], np.__version__))
