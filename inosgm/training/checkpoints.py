"""Checkpoints: all that training resumes from, bit for bit."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that training resumes from: numbers and text, no code. Coins and noise are a function of the run's key."""

    step: int
    """The number of steps of the run that were done."""
    revision: int
    """The number of revisions of the plan, or of the stage."""
    first: int
    """The step of the run with which the plan of this revision began."""
    job: str
    """The name of the noise of this revision in the ledger."""
    ledger: str
    """The head of the ledger, or nothing."""
    curve: str
    """The learning curve, as JSON."""
    settings: Mapping[str, str]
    """Loss, optimizer, tail and the like in words: a run that resumes with something else is refused."""
    steering: str
    """The state of the steering as JSON, or nothing."""
    model: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any] | None
    private: Mapping[str, Any] | None = field(default=None, repr=False)
    """Values that must never leave the run: what each record has spent; None when no step is left."""

    def to_bytes(self) -> bytes:
        """Return the content of a checkpoint file."""
        stream = io.BytesIO()
        torch.save({entry.name: getattr(self, entry.name) for entry in fields(self)}, stream)
        return stream.getvalue()

    @classmethod
    def from_file(cls, path: Path | io.BytesIO) -> Self:
        """Read a checkpoint; no code in it is ever run."""
        content = torch.load(path, map_location="cpu", weights_only=True)
        missing = {entry.name for entry in fields(cls)} ^ content.keys()
        if missing:
            raise ValueError(f"{path} is no checkpoint of this version: it differs in {', '.join(sorted(missing))}")
        return cls(**content)

    def require_settings(self, settings: Mapping[str, str], path: Path) -> None:
        """Raise for steps that would be made with something else than the steps of this checkpoint."""
        for name, value in settings.items():
            if self.settings[name] != value:
                raise ValueError(
                    f"{name} must be that of the run in {path}, {self.settings[name]}, got {value}: take "
                    "another directory"
                )


def settings_of(loss: Any, optimizer: Optimizer, schedule: LRScheduler | None, **parts: object) -> dict[str, str]:
    """Return in words what steps are made with besides plan and model."""
    options = ", ".join(f"{name}={value}" for name, value in sorted(optimizer.defaults.items()))
    return {
        "loss": type(loss).__name__ if isinstance(loss, nn.Module) else "a function",
        "optimizer": f"{type(optimizer).__name__}({options})",
        "schedule": type(schedule).__name__,
        **{name: repr(part) for name, part in parts.items()},
    }


def states_of(model: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None) -> dict[str, Any]:
    """Return the states of what learns, by name; None stands for a schedule that does not exist."""
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    return {name: None if part is None else part.state_dict() for name, part in parts.items()}


def load_states(
    states: Mapping[str, Any], model: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None
) -> None:
    """Take over what `states_of` returned."""
    model.load_state_dict(dict(states["model"]))
    optimizer.load_state_dict(dict(states["optimizer"]))
    if schedule is not None and states.get("schedule") is not None:
        schedule.load_state_dict(dict(states["schedule"]))
