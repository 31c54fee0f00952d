"""The configuration that a run directory was begun with."""

import os
from dataclasses import dataclass
from pathlib import Path

from inosgm._internal.files import write_durably
from inosgm.experiments.config import TrainingConfig, differences
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import PlanSequence
from inosgm.training.run import RunFiles

NAME, KEYED = "config.yaml", "keyed"
"""Files of a run directory: its configuration; and a mark that somebody has chosen the key of its noise."""


@dataclass(frozen=True)
class Begun:
    """The plans that a run was begun with, the one that it follows now, and the step of its latest checkpoint."""

    course: PlanSequence | None
    follows: Plan | None
    step: int


def begun(config: TrainingConfig) -> Begun:
    """Say what has been done of a run, if anything; nothing is made or changed.

    Raises:
        ValueError: for a directory that holds a run of another configuration.
    """
    if config.run is None:
        return Begun(None, None, 0)
    require_same(config)
    if not (Path(config.run) / "plan-0.json").exists():
        return Begun(None, None, 0)
    files = RunFiles(config.run)
    latest = files.latest()
    course = PlanSequence(tuple(files.plan(stage) for stage in range(files.stages())))
    if latest is None:
        return Begun(course, course.first, 0)
    return Begun(course, files.plan(latest.revision), latest.step)


def require_same(config: TrainingConfig) -> None:
    """Raise if the run directory holds a run of another configuration, or no run."""
    folder = Path(str(config.run))
    if (folder / "store.json").exists():
        raise ValueError(f"run: {folder} holds a store of jobs: take another directory (--run)")
    if not (folder / NAME).exists():
        if (folder / "plan-0.json").exists():
            raise ValueError(
                f"run: {folder} holds a run that was not begun from a configuration: take another directory (--run)"
            )
        return
    other = differences(TrainingConfig.from_yaml(folder / NAME), config, names=("there", "here"))
    if other:
        raise ValueError(
            f"run: {folder} holds a run of another configuration, which differs in {other}: take another directory "
            "(--run), or delete this one if nothing in it is needed"
        )


def remember(config: TrainingConfig) -> None:
    """Write the configuration into the run directory: with whole paths, and without the key, which is a secret."""
    folder = Path(str(config.run))
    if not (folder / NAME).exists():
        if config.key is not None:
            write_durably(folder / KEYED, b"")
        write_durably(folder / NAME, with_absolute_paths(config).to_yaml().encode())


def with_absolute_paths(config: TrainingConfig) -> TrainingConfig:
    """Return the configuration with absolute paths, without key and run."""

    def whole(path: str | None) -> str | None:
        return None if path is None else os.path.abspath(path)

    owners, data, features = config.owners, config.data, config.features
    if features is not None and features.from_file:
        features = features.model_copy(update={"name": whole(features.name)})
    files = {name: whole(getattr(owners, name)) for name in ("csv", "held_out") if hasattr(owners, name)}
    return config.model_copy(
        update={
            "key": None,
            "run": None,
            "ledger": whole(config.ledger),
            "data": data.model_copy(update={"root": whole(data.root)}),
            "features": features,
            "owners": owners.model_copy(update=files),
        }
    )
