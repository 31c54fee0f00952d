"""Training runs as YAML files, checked as a whole before anything is loaded or computed."""

from inosgm.experiments.config.records import ClassOwners, FileOwners, SettingOwners, SplitOwners
from inosgm.experiments.config.training import TrainingConfig, differences

__all__ = ["ClassOwners", "FileOwners", "SettingOwners", "SplitOwners", "TrainingConfig", "differences"]
