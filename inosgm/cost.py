"""Costs: what a job asks of each owner, and who is told."""

import secrets
from copy import copy
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from inosgm import _validate
from inosgm.units import ADD_REMOVE


@dataclass(frozen=True, kw_only=True, eq=False)
class Cost:
    """What steps of a job cost whom: each step costs each owner one sampled Gaussian of its own.

    The unit is one record of the owner, added or removed.

    Args:
        labels: The owners that pay.
        sample_rates: The rate of each of them, in (0, 1].
        noise_multipliers: Noise scale / sensitivity of each of them.
        step: The number of the first step, from 0.
        steps: How many steps.
        job: Names the job; a step of a job is paid once, however often it is charged. A new id if not given.
        fingerprint: Stands for data, configuration and code, if the caller knows them; one job has one.
        note: For people.
        unit: What is promised about, of `inosgm.units`.

    Raises:
        ValueError: naming the first number that cannot be.

    >>> Cost(labels=("a", "b"), sample_rates=[0.1, 0.2], noise_multipliers=[2, 1], steps=100).steps
    100
    """

    labels: tuple[str | int, ...]
    sample_rates: np.ndarray
    noise_multipliers: np.ndarray
    step: int = 0
    steps: int = 1
    job: str = field(default_factory=lambda: secrets.token_hex(16))
    fingerprint: str = ""
    note: str = ""
    unit: str = ADD_REMOVE

    def __post_init__(self) -> None:
        rates = _validate.vector("sample_rates", self.sample_rates)
        multipliers = _validate.vector("noise_multipliers", self.noise_multipliers)
        labels = self.labels if isinstance(self.labels, tuple) else tuple(self.labels)
        if not len(labels) == rates.size == multipliers.size > 0:
            raise ValueError(
                "labels, sample_rates and noise_multipliers must hold one entry per owner, got "
                f"{len(labels)}, {rates.size} and {multipliers.size}"
            )
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels must differ, got {_validate.some(labels)}")
        _validate.each("sample_rates", rates, (rates > 0) & (rates <= 1), "lie in (0, 1]")
        _validate.each("noise_multipliers", multipliers, multipliers > 0, "be > 0")
        _validate.each("noise_multipliers", multipliers, np.isfinite(multipliers), "be finite")
        step, steps = _validate.count("step", self.step), _validate.count("steps", self.steps, least=1)
        for name in ("job", "fingerprint", "note"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be text, got {getattr(self, name)!r}")
        if not self.job:
            raise ValueError("job must not be empty: leave it out for a new id")
        arrays = {"sample_rates": rates, "noise_multipliers": multipliers}
        for name, value in {"labels": labels, **arrays, "step": step, "steps": steps}.items():
            object.__setattr__(self, name, value)

    def at(self, step: int, steps: int) -> "Cost":
        """Return the same cost for other steps of the job, without checking a million owners again."""
        other = copy(self)
        object.__setattr__(other, "step", _validate.count("step", step))
        object.__setattr__(other, "steps", _validate.count("steps", steps, least=1))
        return other


class LedgerHook(Protocol):
    """Whatever writes costs down; it hears of a cost before the value it pays for exists."""

    def charge(self, cost: Cost) -> None:
        """Record the cost, or raise: then nothing is drawn, released or counted."""


@runtime_checkable
class BindingLedger(LedgerHook, Protocol):
    """A ledger that also remembers on what the noise of a key was used."""

    def bind(self, job: str, step: int, digest: str) -> None:
        """Record what the noise of a step is added to, or raise if it was added to something else before."""
