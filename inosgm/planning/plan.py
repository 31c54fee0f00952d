"""A plan: the public numbers that decide how records are sampled, bounded and protected."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Purpose
from inosgm.accounting import ACCOUNTANTS, Accountant, Segment
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.unique_rows import unique_rows
from inosgm.accounting.units import RECORD, is_unit, protected, relation_of, unit_of
from inosgm.ledger.cost import Cost
from inosgm.owners import Owners
from inosgm.planning.calibration import Calibration, PlanRequest, calibrate_blend, calibrate_uniform
from inosgm.planning.choices import Choices
from inosgm.planning.exposure import Exposure, exposure_of
from inosgm.planning.group_privacy import GroupPrivacy, group_privacy_of
from inosgm.planning.plan_report import MOST_ROWS, owner_table
from inosgm.planning.variants import PLAIN, Blend, PlanMethod, Sampling, Variant


class AlreadySpent(ValueError):
    """An owner grants less than has been spent: the run has to go back.

    Attributes:
        owner: Who, the first one if there are several.
        granted: The epsilon that it now grants.
        spent: The epsilon that it has spent.
        last_step: The last step of the run, counted from its beginning, whose result may be kept.
    """

    def __init__(self, owner: str | int, granted: float, spent: float, last_step: int) -> None:
        super().__init__(owner, granted, spent, last_step)
        self.owner, self.granted, self.spent, self.last_step = owner, granted, spent, last_step

    def __str__(self) -> str:
        return (
            f"owner {self.owner!r} now grants epsilon {self.granted:g}, but {self.spent:g} has been spent: go back to "
            f"step {self.last_step}, counted from the beginning of the run, and revise the plan that was followed there"
        )


@dataclass(frozen=True, init=False, eq=False)
class Plan:
    """Per-owner sample rates and sensitivities, one noise scale, a number of steps. Everything in it is
    public.

    **Guarantee.** A mechanism that follows the plan is, for one record of owner n (added or removed), or for one unit
    with all its records where `Owners` has units, `steps` sampled Gaussian
    mechanisms with sample rate q_n and noise multiplier noise_scale / C_n. A `variant` changes that:
    with choices, each step is dominated by the dominating pair of the owner's choices; batches without replacement have
    a fixed size for each owner, and the guarantee is about one record that is replaced (another unit, see
    `accounting.units`); with individual accounting, all steps together are one Gaussian mechanism.

    Args:
        sample_rates: q_n in [0, 1], the probability that a record of owner n enters a batch. An owner with a rate of 0
            takes no part and pays nothing.
        sensitivities: C_n > 0, the bound on the norm of a contribution of owner n.
        sizes: Number of records, or of units, of each owner. Public, and used for expectations only.
        noise_scale: Standard deviation of the Gaussian noise on every coordinate of a released sum.
        steps: How many releases the plan pays for.
        expected_batch: The public constant that turns a sum into a mean; the expected size of a batch if not
            given.
        labels: What the owners are called; 0, 1, ... if not given.
        epsilon: What each owner grants, if the plan was made for budgets.
        delta: The delta of each owner, likewise.
        accountant: Name of the accountant that the plan was made with, "pld" or "rdp".
        method: How its numbers were found, for plans that can be revised.
        past: What was done to the owners' records before this plan.
        variant: What a single method adds: see `inosgm.planning.variants`.
        unit_name: What a unit of privacy is, as `Owners` names it; "record" if every record is one.

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
    epsilon: np.ndarray | None
    delta: np.ndarray | None
    accountant: str | None
    method: PlanMethod | None
    past: tuple[Segment, ...]
    variant: Variant
    unit_name: str

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
        epsilon: ArrayLike | None = None,
        delta: ArrayLike | None = None,
        accountant: str | None = None,
        method: PlanMethod | None = None,
        past: Sequence[Segment] = (),
        variant: Variant = PLAIN,
        unit_name: str = RECORD,
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
        likely = "lie in [0, 1] (a probability, not a percentage)"
        _validate.each("sample_rates", rates, (rates >= 0) & (rates <= 1), likely)
        if not rates.any():
            raise ValueError("sample_rates must let somebody take part, got nothing but 0")
        within = (bounds >= _validate.TINY) & (bounds <= _validate.HUGE)
        _validate.each("sensitivities", bounds, within, f"lie in [{_validate.TINY}, {_validate.HUGE}]")
        _validate.each("sizes", counts, (counts >= 0) & (counts == np.floor(counts)), "be whole numbers >= 0")
        names = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
        wrong = [name for name in names if not isinstance(name, str | int)]
        if wrong or len({type(name) for name in names}) > 1:
            raise TypeError(f"labels must be all text or all whole numbers, got {(wrong or names)[0]!r} among others")
        if len(set(names)) < len(names):
            raise ValueError(f"labels must differ, got {names}")
        if len({epsilon is None, delta is None, accountant is None}) > 1:
            raise ValueError("epsilon, delta and accountant must be given together, or not at all")
        if accountant is not None and accountant not in ACCOUNTANTS:
            raise ValueError(f"accountant must be one of {sorted(ACCOUNTANTS)}, got {accountant!r}")
        if any(isinstance(name, bool) for name in names):
            raise TypeError("labels must be all text or all whole numbers, got True or False")
        if method not in (None, "sample", "scale", "blend", "uniform", "individual"):
            raise ValueError(f"method must be sample, scale, blend, uniform or individual, got {method!r}")
        _validate.instance("variant", variant, Variant, "take one of inosgm.planning.variants")
        if not isinstance(unit_name, str) or not is_unit(unit_of(variant.relation, unit_name)):
            raise ValueError(f"unit_name must be a word for one unit, such as 'patient', got {unit_name!r}")
        batch = float(rates @ counts) if expected_batch is None else expected_batch
        whole = counts.astype(np.int64)
        whole.setflags(write=False)
        entries = {
            "sample_rates": rates,
            "sensitivities": bounds,
            "sizes": whole,
            "noise_scale": _validate.number("noise_scale", noise_scale, above=0),
            "steps": _validate.count("steps", steps, least=1),
            "expected_batch": _validate.number("expected_batch", batch, above=0),
            "labels": names,
            "epsilon": None if epsilon is None else _grant("epsilon", epsilon, rates.size, np.inf),
            "delta": None if delta is None else _grant("delta", delta, rates.size, 1.0),
            "accountant": accountant,
            "method": method,
            "past": tuple(segment.rows_of(rates.size) for segment in past),
            "variant": variant,
            "unit_name": unit_name,
        }
        for name, value in entries.items():
            object.__setattr__(self, name, value)
        if accountant is not None and ACCOUNTANTS[accountant].unit != relation_of(self.unit):
            raise ValueError(f"accountant must be of the unit of the plan, {self.unit}, got {accountant!r}")
        variant.require_fitting(self)
        if variant.choices is not None:
            self.with_choice(rates, bounds)

    @property
    def owners(self) -> Owners | None:
        """The owners that the plan was made for, if it was made here: a file of the plan does not hold them."""
        return getattr(self, "_owners", None)

    @property
    def unit(self) -> str:
        """The unit of privacy, of `inosgm.accounting.units`: what is added or removed, or replaced."""
        return unit_of(self.variant.relation, self.unit_name)

    @property
    def weight(self) -> float | None:
        """The weight of a blend."""
        return self.variant.weight

    @property
    def choices(self) -> Choices | None:
        """The choices for a step, if released values choose it."""
        return self.variant.choices

    @property
    def side_releases(self) -> "tuple[Plan, ...]":
        """The plans that pay for what is released while this one is followed, such as losses of groups."""
        return self.variant.side_releases

    @property
    def sampling(self) -> Sampling:
        """How batches are drawn: "poisson" or "without_replacement"."""
        return self.variant.sampling

    @property
    def squared_norm_budget(self) -> np.ndarray | None:
        """What one record of each owner may spend in all steps, if records pay by their norms."""
        return self.variant.squared_norm_budget

    @property
    def batch_counts(self) -> np.ndarray | None:
        """The fixed number of records of each owner in a batch; None if each record is drawn independently."""
        return self.variant.batch_counts(self)

    @cached_property
    def noise_multipliers(self) -> np.ndarray:
        """noise_scale / C_n, one per owner: what accounting needs beside the sample rate."""
        return _validate.vector("noise_multipliers", self.noise_scale / self.sensitivities)

    def segment(self, steps: int | None = None) -> Segment:
        """Return what some steps do to the records of every owner, all steps if not given."""
        return self.variant.segment(self, self.steps if steps is None else steps)

    def cost(self, *, job: str, note: str = "", repeatable: bool = True) -> Cost:
        """Return what the steps cost those who take part; side releases have costs of their own."""
        done = self.segment()
        pays = np.flatnonzero(done.sample_rate.reshape(self.sizes.size, -1).max(axis=1))
        return Cost(
            labels=self.labels if pays.size == self.sizes.size else tuple(self.labels[row] for row in pays.tolist()),
            sample_rates=done.sample_rate[pays],
            noise_multipliers=done.noise_multiplier[pays],
            steps=self.steps,
            job=job,
            note=note,
            unit=self.unit,
            repeatable=repeatable,
        )

    def with_choice(self, sample_rates: ArrayLike, sensitivities: ArrayLike) -> "Plan":
        """Return the plan as a step with this choice follows it; its expected batch is that of the choice.

        Raises:
            ValueError: for a choice that the plan does not pay for.
        """
        rates, bounds = (_validate.vector("choice", values) for values in (sample_rates, sensitivities))
        if not rates.size == bounds.size == self.sizes.size:
            raise ValueError(f"choice must hold one entry per owner, got {rates.size} and {bounds.size}")
        _validate.each("choice", rates, rates >= 0, "have rates >= 0")
        _validate.each("choice", bounds, bounds >= _validate.TINY, f"have sensitivities >= {_validate.TINY}")
        paid = self.variant.pays_for(self, rates, bounds)
        if not paid.all():
            worst = int(np.argmin(paid))
            raise ValueError(
                f"choice must be one of the plan's: it does not pay for a rate of {rates[worst]:g} with a sensitivity "
                f"of {bounds[worst]:g} for {self.labels[worst]!r}"
            )
        now = copy(self)
        batch = float(rates @ self.sizes)
        for name, value in (("sample_rates", rates), ("sensitivities", bounds), ("expected_batch", batch)):
            object.__setattr__(now, name, value)
        for name in ("noise_multipliers", "step_cost", "digest"):
            now.__dict__.pop(name, None)
        return now

    def lowered(self, sensitivities: ArrayLike) -> "Plan":
        """Return the plan with smaller sensitivities: no owner pays more than under this one.

        Raises:
            ValueError: for a sensitivity above that of the plan.
        """
        bounds = _validate.vector("sensitivities", sensitivities)
        if bounds.size != self.sizes.size or (bounds > self.sensitivities).any():
            raise ValueError("sensitivities must be one number per owner, none above that of the plan")
        lower = type(self)(**{**self.entries(), "sensitivities": bounds})
        object.__setattr__(lower, "_owners", self.owners)
        return lower

    @cached_property
    def step_cost(self) -> np.ndarray:
        """A number per owner that orders them by what a step costs: log(q^2 (exp(1/m^2) - 1)), m the noise multiplier.

        It is the limit of many steps, for comparing owners (the smaller, the more private); it is not an epsilon.
        """
        return _validate.vector("step_cost", self.variant.step_cost(self))

    @property
    def batch_shares(self) -> np.ndarray:
        """The share of an expected batch that each owner fills, by weight before a tail: in proportion to m_n = sample
        rate * size * sensitivity. All of it is public.

        >>> Plan(sample_rates=[0.1, 0.1], sensitivities=[1, 3], sizes=[100, 100], noise_scale=1, steps=1).batch_shares
        array([0.25, 0.75])
        """
        filled = self.sample_rates * self.sizes * self.sensitivities
        return np.asarray(filled / filled.sum())

    def tail_length(self, fraction: float) -> float:
        """Return the length of a tail that holds a fraction of the expected total sensitivity of a batch.

        It rests on public numbers only: a tail that followed the realised batch would cost more than
        promised. With individual accounting it is the mean total over the steps, if records have full norms.

        >>> Plan(sample_rates=[0.5], sensitivities=[2], sizes=[100], noise_scale=1, steps=1).tail_length(0.4)
        40.0
        """
        fraction = _validate.number("fraction", fraction, least=0, most=1)
        lasting = self.variant.full_norm_fraction(self)
        return fraction * float(self.sample_rates * lasting * self.sizes @ self.sensitivities)

    def spent(self, step: int | None = None) -> np.ndarray:
        """Return the epsilon of every owner after a number of steps of this plan, what came before it
        included.

        **Guarantee.** Never below the true epsilon at the owner's delta, for one record (or unit) added or removed.

        Args:
            step: How many steps of this plan; all of them if not given.

        Returns:
            One epsilon per owner.

        Raises:
            ValueError: if the plan knows no budgets, or has fewer steps.

        >>> plan = Plan(sample_rates=[0.1], sensitivities=[1], sizes=[100], noise_scale=4, steps=10,
        ...             epsilon=[1.0], delta=[1e-5], accountant="pld")
        >>> plan.spent(5).round(3)
        array([0.22])
        """
        delta, accountant = self.budgets()[1:]
        return epsilon_of_rows(self.segments_until(self.steps if step is None else step), delta, accountant)

    def report(self) -> str:
        """Return a table for people: what every owner gets, grants and spends, and how exposed its records are.

        Owners with the same numbers share a line; of very many kinds of owners some are shown, without `exposure`.

        >>> plan = Plan(sample_rates=[0.1], sensitivities=[1], sizes=[100], noise_scale=4, steps=10,
        ...             epsilon=[1.0], delta=[1e-5], accountant="pld", labels=["clinic"])
        >>> print(plan.report())
        10 steps, expected batch 10, noise scale 4, 1 owner with 100 records, accounted by pld
        owner   records  sample rate  sensitivity  multiplier  epsilon granted   used  delta  advantage  Delta
        clinic      100          0.1            1           4                1  0.305  1e-05    0.03184      0
        """
        owners, units = self.sizes.size, int(self.sizes.sum())
        title = (
            f"{self.steps} steps, expected batch {self.expected_batch:g}, noise scale {self.noise_scale:.4g}, "
            f"{owners} owner{'s' * (owners != 1)} with {units} {self.unit_name}s"
        )
        columns = {
            "sample rate": self.sample_rates,
            "sensitivity": self.sensitivities,
            "multiplier": self.noise_multipliers,
        }
        if self.squared_norm_budget is not None:
            title += ", each of which pays for itself"
            columns["squared norm budget"] = self.squared_norm_budget
        if self.epsilon is not None and self.delta is not None:
            title += f", accounted by {self.accountant}"
            columns |= {"epsilon granted": self.epsilon, "used": self.spent(), "delta": self.delta}
            if unique_rows(list(columns.values()))[0].size <= MOST_ROWS:
                exposure = self.exposure()
                columns |= {"advantage": exposure.advantage, "Delta": exposure.excess}
        lines = [title, *owner_table(self.labels, self.sizes, columns, of=self.unit_name)]
        if self.unit_name != RECORD:
            lines.append(f"epsilons are about {protected(self.unit)}")
        return "\n".join(lines)

    def exposure(self, labels: Sequence[str | int] | None = None) -> Exposure:
        """Return how exposed a record of each owner is, beyond its (epsilon, delta), and how much others add to that.

        **Guarantee.** No membership attack on all releases of the plan, what came before it included, has a larger
        advantage or true-positive rate. The record is added or removed; in a plan without replacement it is replaced.

        Args:
            labels: Which owners; all if not given.

        Returns:
            The advantage, true-positive rates, an equivalent mu, and Delta of every owner; see `Exposure`.

        Raises:
            ValueError: for labels of no owner, and for more than a thousand different budgets.

        >>> from inosgm import Owners, plan_sample, plan_scale
        >>> owners = Owners(of_record=["a"] * 300 + ["b"] * 700, epsilon={"a": 1, "b": 8}, delta=1e-5)
        >>> for planner in (plan_sample, plan_scale):
        ...     exposure = planner(owners, steps=100, expected_batch=100, clip_norm=1).exposure(["b"])
        ...     print(exposure.advantage.round(2), exposure.excess.round(2))
        [0.5] [0.02]
        [0.47] [0.]
        """
        return exposure_of(self, labels)

    def group_privacy(self, sizes: Sequence[int] = (1, 2, 4, 8)) -> GroupPrivacy:
        """Return what several records of one owner are protected by, if they are added or removed together.

        **Guarantee.** Never below the true epsilon at the owner's delta. It is computed from the distribution of the
        privacy loss of the group, each of whose records tosses its own coin. At the same delta, that of k records is
        more than k times that of one.

        Args:
            sizes: Numbers of records in a group; of units, if the unit of the plan is one.

        Returns:
            One epsilon per owner and size; `table()` prints them.

        Raises:
            ValueError: for a plan without budgets, with choices, or whose unit is a replaced record.

        >>> plan = Plan(sample_rates=[0.1], sensitivities=[1], sizes=[100], noise_scale=4, steps=10,
        ...             epsilon=[1.0], delta=[1e-5], accountant="pld")
        >>> plan.group_privacy([1, 4]).epsilon.round(1)
        array([[0.3, 1.4]])
        """
        return group_privacy_of(self, sizes)

    def revise(self, step: int, owners: Owners) -> "Plan":
        """Return a plan for the steps that remain, by the same method, for budgets that have changed.

        **Guarantee.** What was spent in the first `step` steps counts: after the last step of the new plan
        every owner has spent at most what it now grants, all steps together. New budgets must not be chosen by
        looking at released values: tight composition is proven for costs that are not.

        Args:
            step: How many steps of this plan have been done.
            owners: The same owners with their new budgets.

        Returns:
            A plan with `steps - step` steps, whose `past` is what was done.

        Raises:
            AlreadySpent: if an owner grants less than has been spent; it names the last step that may be
                kept.
            ValueError: if the plan was made by hand, the owners are others, or no numbers keep the budgets.
        """
        _, _, accountant = self.budgets()
        if self.method is None:
            raise ValueError("this plan was made by hand, so it cannot be revised: make a new one, with `past`")
        if self.squared_norm_budget is not None:
            raise ValueError("a plan in which every record pays for itself cannot be revised: begin a new run")
        _validate.instance("owners", owners, Owners, "make them anew, with the budgets that hold now")
        if owners.labels != self.labels or owners.unit_name != self.unit_name:
            raise ValueError("owners must be those of the plan, in the same order, with the same unit")
        done = self.segments_until(step)
        epsilon, delta = owners.epsilon, owners.delta
        over = np.flatnonzero(epsilon_of_rows(done, delta, accountant) > epsilon)
        if over.size:
            raise _too_late([segment.rows(over) for segment in done], over, epsilon, delta, self.labels, accountant)
        if step >= self.steps:
            raise ValueError(
                f"step must be below the {self.steps} steps of the plan, got {step}: nothing is left to revise"
            )
        request = PlanRequest(
            labels=self.labels,
            sizes=owners.sizes,
            epsilon=epsilon,
            delta=delta,
            past=done,
            steps=self.steps - step,
            expected_batch=self.expected_batch,
            clip_norm=float(self.sensitivities @ self.sizes / self.sizes.sum()),
            accountant=accountant,
        )
        return Plan.of(request, self.method, self.weight, owners=owners)

    @classmethod
    def of(cls, request: PlanRequest, method: PlanMethod, weight: float | None = None, *, owners: Owners) -> Self:
        """Make the plan of a request, by a method."""
        calibration: Calibration
        if method == "uniform":
            calibration = calibrate_uniform(request)
        else:
            calibration = calibrate_blend(request, {"sample": 1.0, "scale": 0.0}.get(method, weight or 0.0))
        variant = PLAIN if weight is None else Blend(weight)
        return cls.with_calibration(request, calibration, owners=owners, method=method, variant=variant)

    @classmethod
    def with_calibration(cls, request: PlanRequest, calibration: Calibration, *, owners: Owners, **more: Any) -> Self:
        """Make the plan of a request from its calibration, with the budgets that the owners grant.

        Args:
            request: Steps, batch, accountant and past.
            calibration: Rates, sensitivities and the noise scale.
            owners: The owners.
            more: Other fields of the plan, such as its variant.
        """
        plan = cls(
            **calibration._asdict(),
            sizes=owners.sizes,
            steps=request.steps,
            expected_batch=request.expected_batch,
            labels=owners.labels,
            epsilon=owners.epsilon,
            delta=owners.delta,
            accountant=request.accountant.name,
            unit_name=owners.unit_name,
            **{"past": request.past, **more},
        )
        object.__setattr__(plan, "_owners", owners)
        return plan

    def budgets(self) -> tuple[np.ndarray, np.ndarray, Accountant]:
        """Return what the owners grant and who accounts, if the plan knows."""
        if self.epsilon is None or self.delta is None or self.accountant is None:
            raise ValueError("this plan knows no budgets: give it epsilon, delta and accountant")
        return self.epsilon, self.delta, ACCOUNTANTS[self.accountant]

    def segments_until(self, step: int) -> list[Segment]:
        """Return what has been done to every owner's records after a number of steps of this plan."""
        step = _validate.count("step", step)
        if step > self.steps:
            raise ValueError(f"step must be at most the {self.steps} steps of the plan, got {step}")
        ahead = [self.segment(step), *(plan.segment() for plan in self.side_releases)]
        return [*self.past, *(ahead if step else [])]

    @cached_property
    def digest(self) -> str:
        """What stands for everything in the plan."""
        return Purpose.PLAN_ID.hex(self.to_json())

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        from inosgm.planning.plan_file import to_json  # which imports pydantic

        return to_json(self.entries())

    def entries(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a plan from JSON text.

        Raises:
            ValueError: naming the key that is missing, unknown or wrong.
        """
        from inosgm.planning.plan_file import from_json  # which imports pydantic

        plan: Self = from_json(text, cls)
        return plan

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and all(
            _same(getattr(self, entry.name), getattr(other, entry.name)) for entry in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.labels, self.noise_scale, self.steps, self.sample_rates.tobytes()))


def _same(one: Any, other: Any) -> bool:
    """Say whether two fields of plans are the same."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return one is not None and other is not None and np.array_equal(one, other)
    return bool(one == other)


def _grant(name: str, values: ArrayLike, size: int, below: float) -> np.ndarray:
    """Return what each owner grants."""
    array = _validate.vector(name, values)
    if array.size != size:
        raise ValueError(f"{name} must hold one entry per owner: got {array.size} for {size} sample_rates")
    _validate.each(name, array, (array > 0) & (array < below), f"lie in (0, {below:g})")
    return array


def _too_late(
    done: Sequence[Segment],
    over: np.ndarray,
    epsilon: np.ndarray,
    delta: np.ndarray,
    labels: Sequence[str | int],
    accountant: Accountant,
) -> AlreadySpent:
    """Return the error that says how far back a run has to go."""

    def fits(steps: int) -> np.ndarray:
        kept, left = [], float(steps)
        for segment in done:
            count = np.minimum(segment.steps, left)
            kept.append(Segment(segment.sample_rate, segment.noise_multiplier, count))
            left -= float(count.max())
        return np.asarray(epsilon_of_rows(kept, delta[over], accountant) <= epsilon[over])

    low, high = 0, int(sum(segment.steps.max() for segment in done))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle).all() else (low, middle)
    first = int(np.flatnonzero(~fits(high))[0])
    total = epsilon_of_rows([segment.rows(np.array([first])) for segment in done], delta[over[[first]]], accountant)
    return AlreadySpent(labels[over[first]], float(epsilon[over[first]]), float(total[0]), low)
