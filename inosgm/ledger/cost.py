"""The cost of steps to each owner, and the interface of ledgers that are charged with it."""

import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting.units import ADD_REMOVE, RELATIONS, is_unit


@dataclass(frozen=True, kw_only=True, eq=False)
class Cost:
    """The cost of steps of a job: each step costs each owner one sampled Gaussian mechanism of its own.

    If released values choose how a step is made, each owner has a menu of sampled Gaussians. A step then costs the pair
    that dominates the owner's menu. Repeated entries change nothing.

    Args:
        labels: The owners that pay.
        sample_rates: The rate of each of them, in (0, 1]; or a row for each, its menu, of rates in [0, 1] that are not
            all 0.
        noise_multipliers: Noise scale / sensitivity of each of them, in the same shape.
        step: The number of the first step, from 0.
        steps: The number of steps.
        job: The name of the job; a step of a job is paid once, however often it is charged. A new id if not given.
        repeatable: Whether a retry of a step repeats its noise, because a key or the caller who named the job ensures
            it. A step of a job that is not repeatable is charged once: a ledger refuses it a second time, since that
            would be another value. If not given, true for a job that is named.
        coins: A digest of the secret of the coins that sampled the batch, if they were tossed before the charge. A
            ledger lets one step of one job use them. Empty if the step tosses its own.
        fingerprint: Stands for data, configuration and code, if the caller knows them; one job has one.
        note: A text for people.
        planned: The number of steps of the plan that these belong to, fixed before its first release. An adaptive
            ledger commits to all of them when the first one is charged, and composes them tightly. By default the plan
            ends with these steps.
        unit: The unit of privacy, as `inosgm.accounting.units` writes it: "add/remove", "replace-one", or one of them
            with the name of a unit, "add/remove of patient".

    Raises:
        ValueError: if a number is out of range; the message names the first one.

    >>> Cost(labels=("a", "b"), sample_rates=[0.1, 0.2], noise_multipliers=[2, 1], steps=100).steps
    100
    >>> Cost(labels=("a",), sample_rates=[[0.1, 0.2]], noise_multipliers=[[1, 2]]).sample_rates  # the menu of a
    array([[0.1, 0.2]])
    """

    labels: tuple[str | int, ...]
    sample_rates: np.ndarray
    noise_multipliers: np.ndarray
    step: int = 0
    steps: int = 1
    job: str = field(default_factory=lambda: _NewId(secrets.token_hex(16)))
    fingerprint: str = ""
    note: str = ""
    unit: str = ADD_REMOVE
    repeatable: bool = None  # type: ignore[assignment]  # a bool from __post_init__ on
    coins: str = ""
    planned: int = 0

    def __post_init__(self) -> None:
        rates = _numbers("sample_rates", self.sample_rates)
        multipliers = _numbers("noise_multipliers", self.noise_multipliers)
        labels = self.labels if isinstance(self.labels, tuple) else tuple(self.labels)
        if not len(labels) == len(rates) == len(multipliers) > 0:
            raise ValueError(
                "labels, sample_rates and noise_multipliers must hold one entry per owner, got "
                f"{len(labels)}, {len(rates)} and {len(multipliers)}"
            )
        if rates.shape != multipliers.shape:
            raise ValueError(
                "sample_rates and noise_multipliers must have a menu of as many entries for each owner, got shapes "
                f"{rates.shape} and {multipliers.shape}"
            )
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels must differ, got {_validate.some(labels)}")
        if rates.ndim == 1:
            _validate.each("sample_rates", rates, (rates > 0) & (rates <= 1), "lie in (0, 1]")
        else:
            _validate.each("sample_rates", rates, rates.min(axis=1) >= 0, "be >= 0 in every menu")
            _validate.each("sample_rates", rates, rates.max(axis=1) <= 1, "be <= 1 in every menu")
            _validate.each("sample_rates", rates, rates.max(axis=1) > 0, "have an entry > 0 in every menu")
        least = multipliers.reshape(len(labels), -1).min(axis=1)
        _validate.each("noise_multipliers", multipliers, least > 0, "be > 0")
        if not is_unit(self.unit):
            raise ValueError(f"unit must be {' or '.join(RELATIONS)}, got {self.unit!r}")
        step, steps = _validate.count("step", self.step), _validate.count("steps", self.steps, least=1)
        planned = max(_validate.count("planned", self.planned), step + steps)
        for name in ("job", "fingerprint", "note", "coins"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be text, got {getattr(self, name)!r}")
        if not self.job:
            raise ValueError("job must not be empty: leave it out for a new id")
        repeatable = not isinstance(self.job, _NewId) if self.repeatable is None else self.repeatable
        if not isinstance(repeatable, bool):
            raise TypeError(f"repeatable must be True or False, got {repeatable!r}")
        if self.coins and steps > 1:
            raise ValueError(f"coins must be used for one step, got {steps} steps: every step needs coins of its own")
        arrays = {"sample_rates": rates, "noise_multipliers": multipliers}
        fields = {"labels": labels, **arrays, "step": step, "steps": steps, "job": str(self.job)}
        fields["planned"] = planned
        for name, value in {**fields, "repeatable": repeatable}.items():
            object.__setattr__(self, name, value)

    def same_step(self, other: "Cost") -> bool:
        """Return whether a step of another cost costs the same owners the same."""
        return (self.labels, self.unit) == (other.labels, other.unit) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("sample_rates", "noise_multipliers")
        )

    def at(self, step: int, steps: int) -> "Cost":
        """Return the same cost for other steps of the job, without validating a million owners again."""
        step, steps = _validate.count("step", step), _validate.count("steps", steps, least=1)
        return self._with(step=step, steps=steps, planned=max(self.planned, step + steps))

    def of_new_job(self) -> "Cost":
        """Return the same cost for a job with a new id, whose steps are not repeatable."""
        return self._with(job=secrets.token_hex(16), repeatable=False)

    def with_coins(self, coins: str) -> "Cost":
        """Return the same cost for a step whose coins were tossed before the charge."""
        return self._with(coins=coins)

    def _with(self, **changes: Any) -> "Cost":
        other = object.__new__(type(self))
        vars(other).update(vars(self), **changes)
        return other


class _NewId(str):
    """The generated id of a job without a name, until the cost is validated."""


def _numbers(name: str, values: Any) -> np.ndarray:
    """Return one number per owner, or one menu per owner; menus of one entry become numbers."""
    array = _validate.numeric(name, values)
    if array.ndim != 2:
        return _validate.vector(name, array)
    if not array.shape[1]:
        raise ValueError(f"{name} must have an entry in every menu, got shape {array.shape}")
    flat = _validate.vector(name, array.ravel())
    return flat if array.shape[1] == 1 else flat.reshape(array.shape)


class LedgerHook(Protocol):
    """A recorder of costs, called before the value that a cost pays for exists."""

    def charge(self, cost: Cost, /) -> None:
        """Record the cost, or raise: then nothing is drawn, released or counted."""


@runtime_checkable
class BindingLedger(LedgerHook, Protocol):
    """A ledger that also remembers the sum to which the noise of a key was added."""

    def bind(self, job: str, step: int, digest: str) -> None:
        """Record the sum to which the noise of a step is added, or raise if it was added to another sum before."""


@runtime_checkable
class UndoingLedger(LedgerHook, Protocol):
    """A ledger whose charges can be taken back."""

    def is_charged(self, job: str, step: int) -> bool:
        """Return whether a step is paid for: it was charged, and not undone since."""


@runtime_checkable
class CoinLedger(LedgerHook, Protocol):
    """A ledger that also remembers the coins (`Cost.coins`) it was charged for, and refuses them for another step."""

    @property
    def durable(self) -> bool:
        """Whether other processes see its charges, now and later."""

    def job_with_coins(self, coins: str) -> str | None:
        """Return the job that was charged with these coins; None if no job was."""
