"""The configuration of a command: a file or a run directory, with what options set instead."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inosgm.experiments.config import TrainingConfig


def configuration(
    file: Path, run: Path | None, data_dir: Path | None, seed: int | None = None, changes: list[str] | None = None
) -> "TrainingConfig":
    """Read a configuration file, with what options set instead; it gets a run directory if it names none."""
    from inosgm.experiments.config import TrainingConfig

    config = TrainingConfig.from_yaml(file, [*(changes or []), *([] if seed is None else [f"seed={seed}"])])
    folder = str(run) if run is not None else config.run or str(Path("runs", file.stem))
    return with_data_dir(config.model_copy(update={"run": folder}), data_dir)


def configuration_of_jobs(
    file: Path, data_dir: Path | None, seed: int | None, changes: list[str] | None
) -> "TrainingConfig":
    """Read a configuration file for many runs, which are kept in a store and not in run directories."""
    return configuration(file, None, data_dir, seed, changes).model_copy(update={"run": None})


def with_data_dir(config: "TrainingConfig", data_dir: Path | None) -> "TrainingConfig":
    """Return the configuration with another data directory, if one is given."""
    if data_dir is None:
        return config
    return config.model_copy(update={"data": config.data.model_copy(update={"root": str(data_dir)})})
