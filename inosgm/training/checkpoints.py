"""Checkpoints: all that training resumes from, bit for bit."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from inosgm._internal.keys import Purpose

LATER = {"frozen", "average"}
"""Fields that a checkpoint may be without: one of an earlier version, or of a run that does not use them."""


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
    frozen: str = ""
    """The digest of the frozen parameters if they are left out of `model`, else nothing."""
    average: Mapping[str, Any] | None = None
    """The moving averages of the parameters, if there are any."""

    def to_bytes(self) -> bytes:
        """Return the content of a checkpoint file."""
        stream = io.BytesIO()
        content = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        torch.save({name: value for name, value in content.items() if name not in LATER or value}, stream)
        return stream.getvalue()

    @classmethod
    def from_file(cls, path: Path | io.BytesIO) -> Self:
        """Read a checkpoint; no code in it is ever run."""
        content = torch.load(path, map_location="cpu", weights_only=True)
        missing = ({entry.name for entry in fields(cls)} ^ content.keys()) - LATER
        if missing:
            raise ValueError(f"{path} is no checkpoint of this version: it differs in {', '.join(sorted(missing))}")
        return cls(**content)

    def require_settings(self, settings: Mapping[str, str], path: Path) -> None:
        """Raise for steps that would be made with something else than the steps of this checkpoint."""
        for name in {**self.settings, **settings}:
            before, now = self.settings.get(name), settings.get(name)
            if before != now:
                raise ValueError(
                    f"{name} must be that of the run in {path}, {before}, got {now}: take another directory"
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


def states_of(
    model: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None, *, trainable_only: bool = False
) -> dict[str, Any]:
    """Return the states of what learns, by name; None stands for a schedule that does not exist.

    Args:
        model: The model.
        optimizer: Its optimizer.
        schedule: Its learning-rate schedule.
        trainable_only: Leave frozen parameters out, and give their digest as `frozen`.
    """
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    states: dict[str, Any] = {name: None if part is None else part.state_dict() for name, part in parts.items()}
    if trainable_only:
        frozen = _frozen(model)
        states["model"] = {name: value for name, value in states["model"].items() if name not in frozen}
        states["frozen"] = _digest(frozen)
    return states


def load_states(
    states: Mapping[str, Any], model: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None
) -> None:
    """Take over what `states_of` returned.

    Raises:
        ValueError: if frozen parameters were left out, and the model has others.
    """
    state = dict(states["model"])
    if states.get("frozen"):
        frozen = _frozen(model)
        if _digest(frozen) != states["frozen"]:
            raise ValueError(
                "model must have the frozen parameters that the run was begun with, which its checkpoints leave out "
                "(checkpoint_trainable_only): their digest is another one. Load the same weights before training"
            )
        state |= {name: value for name, value in model.state_dict().items() if name in frozen}
    model.load_state_dict(state)
    optimizer.load_state_dict(dict(states["optimizer"]))
    if schedule is not None and states.get("schedule") is not None:
        schedule.load_state_dict(dict(states["schedule"]))


def _frozen(model: nn.Module) -> dict[str, Tensor]:
    """Return the frozen parameters by all their names."""
    named = model.named_parameters(remove_duplicate=False)
    return {name: parameter for name, parameter in named if not parameter.requires_grad}


def _digest(parameters: Mapping[str, Tensor]) -> str:
    """Return a digest of names, types and values."""
    state = Purpose.FROZEN_ID.hasher()
    for name, parameter in parameters.items():
        state.update(f"{name} {parameter.dtype} {tuple(parameter.shape)};".encode())
        state.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()
