"""Configurations of training runs as YAML files, validated before anything is loaded or computed."""

from inosgm.experiments.config.records import ClassOwners, FileOwners, SettingOwners, SplitOwners
from inosgm.experiments.config.training import TrainingConfig, differences

__all__ = ["ClassOwners", "FileOwners", "SettingOwners", "SplitOwners", "TrainingConfig", "differences"]
