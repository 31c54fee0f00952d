"""Plans: the public numbers that decide how records are sampled, bounded and protected."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, ValidationError

from inosgm import _validate


@dataclass(frozen=True, init=False, eq=False)
class Plan:
    """Per-owner sample rates and sensitivities, one noise scale, a number of steps. Everything in it is public.

    **Guarantee.** A mechanism that follows the plan is, for one record of owner n (added or removed), `steps`
    sampled Gaussian mechanisms with sample rate q_n and noise multiplier noise_scale / C_n.

    Args:
        sample_rates: q_n in (0, 1], the probability that a record of owner n enters a batch.
        sensitivities: C_n > 0, the bound on the norm of a contribution of owner n.
        sizes: Number of records of each owner. Public, and used for expectations only.
        noise_scale: Standard deviation of the Gaussian noise on every coordinate of a released sum.
        steps: How many releases the plan pays for.
        expected_batch: The public constant that turns a sum into a mean; the expected size of a batch if not given.
        labels: What the owners are called; 0, 1, ... if not given.

    Raises:
        ValueError: naming the first number that cannot be.

    >>> plan = Plan(sample_rates=[0.1, 0.2], sensitivities=[1, 1], sizes=[100, 50], noise_scale=2, steps=10)
    >>> plan.expected_batch
    20.0
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    sample_rates: np.ndarray
    sensitivities: np.ndarray
    sizes: np.ndarray
    noise_scale: float
    steps: int
    expected_batch: float
    labels: tuple[str | int, ...]

    def __init__(
        self,
        *,
        sample_rates: ArrayLike,
        sensitivities: ArrayLike,
        sizes: ArrayLike,
        noise_scale: float,
        steps: int,
        expected_batch: float | None = None,
        labels: Sequence[str | int] | None = None,
    ) -> None:
        rates = _validate.vector("sample_rates", sample_rates)
        bounds = _validate.vector("sensitivities", sensitivities)
        counts = _validate.vector("sizes", sizes)
        names = tuple(range(rates.size)) if labels is None else tuple(labels)
        if not rates.size:
            raise ValueError("sample_rates must hold at least one owner")
        for name, values in (("sensitivities", bounds), ("sizes", counts), ("labels", names)):
            if len(values) != rates.size:
                raise ValueError(
                    f"{name} must hold one entry per owner: got {len(values)} for {rates.size} sample_rates"
                )
        _validate.each(
            "sample_rates", rates, (rates > 0) & (rates <= 1), "lie in (0, 1] (a probability, not a percentage)"
        )
        within = (bounds >= _validate.TINY) & (bounds <= _validate.HUGE)
        _validate.each("sensitivities", bounds, within, f"lie in [{_validate.TINY}, {_validate.HUGE}]")
        _validate.each("sizes", counts, (counts >= 0) & (counts == np.floor(counts)), "be whole numbers >= 0")
        names = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
        wrong = [name for name in names if not isinstance(name, str | int)]
        if wrong or len({type(name) for name in names}) > 1:
            raise TypeError(f"labels must be all text or all whole numbers, got {(wrong or names)[0]!r} among others")
        if len(set(names)) < len(names):
            raise ValueError(f"labels must differ, got {names}")
        batch = float(rates @ counts) if expected_batch is None else expected_batch
        whole = counts.astype(np.int64)
        whole.setflags(write=False)
        public = {
            "sample_rates": rates,
            "sensitivities": bounds,
            "sizes": whole,
            "noise_scale": _validate.number("noise_scale", noise_scale, above=0),
            "steps": _validate.count("steps", steps, least=1),
            "expected_batch": _validate.number("expected_batch", batch, above=0),
            "labels": names,
        }
        for name, value in public.items():
            object.__setattr__(self, name, value)

    @cached_property
    def noise_multipliers(self) -> np.ndarray:
        """noise_scale / C_n, one per owner: what accounting needs beside the sample rate."""
        return _validate.vector("noise_multipliers", self.noise_scale / self.sensitivities)

    @cached_property
    def step_cost(self) -> np.ndarray:
        """A number per owner that orders them by what a step costs: log(q^2 (exp(1/m^2) - 1)), m the noise multiplier.

        It is the limit of many steps, for comparing owners (the smaller, the more private); it is not an epsilon.
        """
        inverse = self.noise_multipliers**-2.0
        return _validate.vector("step_cost", 2 * np.log(self.sample_rates) + inverse + np.log(-np.expm1(-inverse)))

    def tail_length(self, fraction: float) -> float:
        """Return the length of a tail that holds a fraction of the expected total sensitivity of a batch.

        It rests on public numbers only: a tail that followed the realised batch would cost more than promised.

        >>> Plan(sample_rates=[0.5], sensitivities=[2], sizes=[100], noise_scale=1, steps=1).tail_length(0.4)
        40.0
        """
        fraction = _validate.number("fraction", fraction, least=0, most=1)
        return fraction * float(self.sample_rates * self.sizes @ self.sensitivities)

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        entries = {entry.name: np.asarray(getattr(self, entry.name)).tolist() for entry in fields(self)}
        return _PlanFile(**{**entries, "labels": list(self.labels)}).model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a plan from JSON text.

        Raises:
            ValueError: naming the key that is missing, unknown or wrong.
        """
        try:
            file = _PlanFile.model_validate_json(text)
        except ValidationError as error:
            found = error.errors()[0]
            where = ".".join(str(part) for part in found["loc"])
            raise ValueError(f"not the JSON text of a plan: {where + ': ' if where else ''}{found['msg']}") from None
        return cls(**dict(file))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and all(
            np.array_equal(getattr(self, entry.name), getattr(other, entry.name)) for entry in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.labels, self.noise_scale, self.steps, self.sample_rates.tobytes()))


class _PlanFile(BaseModel):
    """What a plan looks like in a file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample_rates: list[float]
    sensitivities: list[float]
    sizes: list[int]
    noise_scale: float
    steps: int
    expected_batch: float | None = None
    labels: list[str | int] | None = None
