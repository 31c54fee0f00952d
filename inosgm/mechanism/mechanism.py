"""INO-SGM: THE place where a private value is made."""

import secrets
import threading
from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, final

import array_api_compat
import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import SecretKey
from inosgm._internal.once import StepCount, Uncopied
from inosgm._internal.records import form_of, gather, records_in
from inosgm._internal.trees import require_floating, tree_digest
from inosgm._internal.validate import Array
from inosgm.accounting.units import ADD_REMOVE, RECORD, relation_of
from inosgm.ledger.cost import BindingLedger, Cost, LedgerHook, UndoingLedger
from inosgm.ledger.refusals import BudgetExceeded
from inosgm.mechanism.clipping import Clipping, ScaleClipped
from inosgm.mechanism.contributions import Contributions, Dense, as_contributions
from inosgm.mechanism.hashed_sampling import Sampler
from inosgm.mechanism.noise import GaussianNoise, Noise, name_of_noise, streams
from inosgm.mechanism.orders import Descending, Order
from inosgm.mechanism.record_filter import Filter
from inosgm.mechanism.sampling import FixedSizeSampler, PoissonSampler
from inosgm.mechanism.secure_generator import Generator
from inosgm.mechanism.tails import NoTail, Tail
from inosgm.mechanism.units import RecordsOfUnits, UnitIndex, UnitMean, UnitRule
from inosgm.mechanism.weights import checked_scores, weigh
from inosgm.owners import Owners, _index_labels
from inosgm.planning.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """A private value: the noisy sum of one step (float64 from arrays), and what it cost each owner.

    Where records pay for themselves the cost is that of all steps, of which any may use it up.
    """

    value: Any
    step: int
    cost: Cost


Measured = tuple[Contributions, Array]
"""Contributions and scores of a batch, one of each per record."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnBatch:
    """The records of one sum, and what the sum depends on besides the tail, order and clipping of the mechanism.

    Attributes:
        data: All records.
        positions: Which of them are in the batch, ascending; which units if units have several records.
        owners: The position in the plan of the owner of each of them.
        step: The step of the plan.
        measure: Returns contributions and scores, as `INOSGM.measure` does.
        records: The filter that bounds records if they pay for themselves.
        order_secret: What a random order, and the records of each unit that take part, are drawn with.
        units: The records of each unit, if units have several.
        measure_units: Returns contributions and scores of units, as `INOSGM.measure_units` does.
    """

    data: Any
    positions: np.ndarray
    owners: np.ndarray
    step: int
    measure: Callable[[Any, np.ndarray, np.ndarray, int], Measured]
    records: Filter | None
    order_secret: int
    units: UnitIndex | None = None
    measure_units: Callable[[Any, RecordsOfUnits, np.ndarray, int], Measured] | None = None

    def measured(self) -> Measured:
        """Return the contributions and scores of the batch."""
        # copies: a `measure` that changes its arguments must not change which records are bounded and charged
        if self.units is None or self.measure_units is None:
            return self.measure(self.data, self.positions.copy(), self.owners.copy(), self.step)
        drawn = self.units.drawn(self.positions, self.step, self.order_secret)
        return self.measure_units(self.data, drawn, self.owners[drawn.groups], self.step)


class INOSGM(Uncopied, ABC):
    """The Individualized Noisy Ordered Sampled Gaussian Mechanism: weighted noisy sums with per-owner privacy.

    A subclass defines what a record contributes and how important it is, with `contributions` and `scores`; `release`
    does the rest. A subclass that needs more than the records of the batch overrides `measure` instead.

    **Guarantee.** The releases of one mechanism are, for any record of owner n added to or removed from the data, or
    for any unit with all its records if owners have units, a composition of sampled Gaussian mechanisms with the plan's
    sample rate q_n and noise multiplier noise_scale / C_n (Thm 3.4 of the INO-SGD paper); `Plan` says what menus and
    batches without replacement change. It assumes that contributions and scores of a record depend on that record, on
    public things and on what was released before, never on who else is in the batch
    (`inosgm.certify(mechanism, data)` looks for violations), that owner labels and sizes are public, and
    real-number arithmetic (LIMITATIONS.md).

    Args:
        plan: The public numbers: rates, sensitivities, noise scale, steps.
        owners: Owners, or the label of each record's owner as the plan names it (0, 1, ... if it names none).
        tail: The part of an ordered batch that is down-weighted; by default none, the plain sampled Gaussian.
        order: What counts as important.
        clipping: How a weighted record is bounded: ScaleClipped() or ClipToShare().
        noise: GaussianNoise() in floating point, or DiscreteNoise(), whose guarantee holds for real computers.
        unit_rule: How the records of a unit make one contribution and one score, if `owners` has units: `UnitMean()`
            if not given. Coins, order, weights, clipping, filters and costs are those of units then.
        key: None takes coins and noise from the operating system. Every step then has one value: the mechanism releases
            only in the process that made it, it cannot be copied, and a ledger refuses to charge a step of it a second
            time. A whole number makes both a function of
            (key, step): reproducible, and not private against anybody who knows the key. Never use one key on two
            data sets: the difference of the releases cancels the noise. With a ledger, a retry is charged once, and
            repeats bit for bit or is refused: the ledger remembers, by a digest under the key, the sum that the
            noise of each step was added to.
        ledger: Is told every cost before its value exists, and may refuse it.
        charge_steps: How many steps a charge pays for, up to the next multiple of it. 1 pays for every release by
            itself; plan.steps pays for the whole plan with the first release, in one row of the ledger, which long
            runs should do.
        note: What the ledger says about it, for people.

    Raises:
        ValueError: for owners that the plan does not know.

    >>> class Total(INOSGM):
    ...     def contributions(self, batch):
    ...         return batch
    ...     def scores(self, batch):
    ...         return batch[:, 0]
    >>> plan = Plan(sample_rates=[1, 1], sensitivities=[1, 3], sizes=[1, 2], noise_scale=0.1, steps=1)
    >>> mechanism = Total(plan, owners=[0, 1, 1], key=1)
    >>> mechanism.release(np.array([[1.0], [2.0], [3.0]])).value.round(1)
    array([6.1])
    """

    sizes_vary: bool = False
    """Whether owners may have other numbers of records than the plan says, where who takes part is random."""

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Sequence[str | int] | np.ndarray,
        *,
        tail: Tail = NoTail(),
        order: Order = Descending(),
        clipping: Clipping = ScaleClipped(),
        noise: Noise = GaussianNoise(),
        unit_rule: UnitRule | None = None,
        key: int | None = None,
        ledger: LedgerHook | None = None,
        charge_steps: int = 1,
        note: str = "",
    ) -> None:
        kind = type(self)
        missing = kind.contributions is INOSGM.contributions or kind.scores is INOSGM.scores
        if missing and kind.measure is INOSGM.measure:
            raise TypeError(f"{kind.__name__} is abstract: define `contributions` and `scores`, or `measure`")
        _validate.instance("plan", plan, Plan, "make one with Plan(sample_rates=..., ...)")
        _validate.instance("tail", tail, Tail, "take one such as LinearTail(plan.tail_length(0.4)), or TableTail.of")
        _validate.instance("order", order, Order, "take one such as Descending()")
        _validate.instance("clipping", clipping, Clipping, "take ScaleClipped() or ClipToShare()")
        _validate.instance("noise", noise, Noise, "take GaussianNoise() or DiscreteNoise()")
        self._tail, self._order, self._clipping, self._noise = tail, order, clipping, noise
        if self.sizes_vary and plan.batch_counts is not None:
            raise ValueError(
                "a batch of a fixed size is a public fraction of each owner's records: with sizes_vary it is not, so "
                "take a plan with Poisson sampling"
            )
        self._units = _unit_index(plan, owners, unit_rule)
        self._owners = _owner_indices(plan, owners, sizes_vary=self.sizes_vary)
        if ledger is not None and not callable(getattr(ledger, "charge", None)):
            raise TypeError(f"ledger must be a Ledger, got {ledger!r}: open a file with Ledger(path)")
        self._ledger, self._note = ledger, note
        self.charge_steps = _validate.count("charge_steps", charge_steps, least=1)
        self._lock = threading.Lock()
        self._plan, self._key = plan, None if key is None else _validate.count("key", key)
        if isinstance(key, SecretKey):  # which `count` has made a plain number
            self._key = key
        self._count = StepCount()
        self._filter = Filter.of(plan, self._owners)
        if self._filter is not None and kind._sum is not INOSGM._sum:
            raise TypeError(f"{kind.__name__} cannot let every record pay for itself: take another kind of plan")
        if noise.exact:
            self._require_exact_sums()
        job = secrets.token_hex(16) if self._key is None else name_of_noise(self._key)
        self._cost = plan.cost(job=job, note=note, repeatable=key is not None)
        self._apply_choice(plan)
        self._probed: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.release is not INOSGM.release:
            raise TypeError(
                f"{cls.__name__} must not override release: it is the one place where values become private"
            )

    def _resume_at(self, released: int) -> None:
        """Count steps as released and paid for that another mechanism with the same plan and key has released."""
        self._count.released = self._count.charged = _validate.count("released", released)

    def _apply_choice(self, plan: Plan) -> None:
        """Make the next steps with the rates and sensitivities that released values chose among the plan's choices."""
        self._current_plan, self._sampler = plan, self._sampler_of(plan)

    def _sampler_of(self, plan: Plan) -> Sampler:
        """Return what draws the batches of a plan."""
        if plan.batch_counts is not None:
            return FixedSizeSampler(plan.batch_counts, self._owners)
        return PoissonSampler(plan.sample_rates, self._owners)

    def contributions(self, batch: Any) -> Array | Contributions:
        """Return what each record of the batch adds to the sum: an array of one row per record, or Contributions.

        The batch holds the sampled records in the form of the data, and may hold none at all.
        """
        raise NotImplementedError

    def scores(self, batch: Any) -> Array:
        """Return how important each record of the batch is: one number per record."""
        raise NotImplementedError

    def measure(self, data: Any, positions: np.ndarray | None, owners: np.ndarray, step: int) -> Measured:
        """Return the contributions and scores of a batch; by default those of `contributions` and `scores`.

        Override this hook where a batch is more than its records: gradients are computed in micro-batches that are
        fetched one after another, statistics scale a record by its owner's sensitivity. The rules of the class apply:
        the contribution and the score of a record depend on that record, on public values and on released ones only.
        What it returns is clipped, ordered, weighted, summed and made private by `release`.

        Args:
            data: All records, in the form that `release` was given.
            positions: Which of them are in the batch, ascending, maybe none; None stands for all records of the data.
            owners: The position in the plan of the owner of each record of the batch.
            step: The step of the plan that is made.

        Returns:
            Contributions and scores, one of each for every record of the batch.
        """
        batch = gather(data, positions)
        return as_contributions(self.contributions(batch)), self.scores(batch)

    def measure_units(self, data: Any, units: RecordsOfUnits, owners: np.ndarray, step: int) -> Measured:
        """Return the contributions and scores of a batch of units; by default those of `measure`, put together.

        Override it only where contributions of records cannot be put together afterwards: gradients of a unit are
        computed at once. The rules of the class apply, with units for records.

        Args:
            data: All records, in the form that `release` was given.
            units: Which records take part, unit by unit, and how they are combined.
            owners: The position in the plan of the owner of each of these records.
            step: The step of the plan that is made.

        Returns:
            Contributions and scores, one of each for every unit of the batch.
        """
        contributions, scores = self.measure(data, units.positions.copy(), owners, step)
        return units.contributions(contributions), units.scores(scores)

    @property
    def plan(self) -> Plan:
        """The public numbers that this mechanism follows."""
        return self._plan

    @property
    def released(self) -> int:
        """The number of steps of the plan that have been released."""
        return self._count.released

    @final
    def release(self, data: Any) -> Release:
        """Release the noisy weighted sum of the next step, charged to every owner before it exists.

        Args:
            data: All records: an array, a torch tensor, a pandas table, a list of records, or a tuple or dict of
                equally long columns; as many records as there are owner entries.

        Returns:
            The noisy SUM; for a mean divide it by a public constant such as plan.expected_batch.

        Raises:
            RuntimeError: when all steps of the plan have been released, and without a key in another process than the
                one that made the mechanism.
            ValueError: for data of the wrong length and for contributions or scores of the wrong shape. Both come
                before any coin is tossed or cost recorded.
        """
        self.require_here()  # before the lock, which nobody would ever let go of in a process that has forked off
        with self._lock:
            count = self._count
            step = count.released
            self._check(data)
            if self._ledger is not None:
                self._pay(self._ledger, step)
            self.require_here()
            count.released = step + 1  # whatever happens from here on, no other value is made of this step
            coins, noise = streams(self._key, step)
            total = self._sum(self._batch(data, self._sampler.draw(coins), step))
            require_floating(total)
            self.require_here()  # contributions may have forked
            if self._filter is not None:
                self._filter.settle()
            value = self._noisy(total, noise)
            if self._key is not None and isinstance(self._ledger, BindingLedger):
                self._ledger.bind(self._cost.job, step, tree_digest(self._bound(total, value), self._key))
            cost = self._cost if self._filter is not None else self._cost.at(step, 1)
            return Release(value=value, step=step, cost=cost)

    def _bound(self, total: Any, value: Any) -> Any:
        """Return the arrays that the noise of a step is bound to in a ledger: all that the released value is made of.

        A subclass that releases more than a noisy sum adds it. Names in a dict are not part of a digest.
        """
        return total, value

    def _pay(self, ledger: LedgerHook, step: int) -> None:
        """Pay for a step, unless that has been done; what was undone since is paid for anew.

        With a key, `bind` refuses what was undone.
        """
        count = self._count
        if self._key is None and step < count.charged and isinstance(ledger, UndoingLedger):
            last = step if self._filter is None else self._plan.steps - 1  # any step may use up what pays for all
            if not ledger.is_charged(self._cost.job, last):
                count.charged, self._cost = step, self._cost.of_new_job()
        if step >= count.charged:
            self._charge(ledger, step)

    def _charge(self, ledger: LedgerHook, step: int) -> None:
        """Pay for the next steps."""
        if self._filter is not None:  # one step may use up what pays for all
            step, steps = 0, self._plan.steps
        else:
            steps = min(self.charge_steps - step % self.charge_steps, self._plan.steps - step)
        try:
            ledger.charge(self._cost.at(step, steps))
            self._count.charged = step + steps
        except BaseException as error:
            if self._key is None:  # the charge may be written, and a ledger refuses it a second time
                self._cost = self._cost.of_new_job()
                if not isinstance(
                    error, BudgetExceeded | ValueError | TypeError
                ):  # which come before anything is written
                    error.add_note(
                        "(no value was released. If the charge was written before this, it stays charged; the next "
                        "release is charged anew, under another job)"
                    )
            raise

    def require_here(self) -> None:
        """Raise in a process that has forked off from the one that made a mechanism without a key."""
        if self._key is None:
            self._count.require_here()

    def _check(self, data: Any) -> None:
        """Refuse what cannot be released while nothing has been drawn or charged."""
        self._require_step_left()
        records = self._owners.size if self._units is None else self._units.size
        if records_in(data) != records:
            raise ValueError(f"data must hold one record per owner entry: got {records_in(data)} for {records}")
        form = form_of(data)
        if form != self._probed:
            self._probe(data)
            self._probed = form

    def _require_step_left(self) -> None:
        if self._count.released >= self._plan.steps:
            raise RuntimeError(f"all {self._plan.steps} steps of the plan are released: make a plan with more steps")

    def _probe(self, data: Any) -> None:
        """Try data of a new form, before anything is drawn or charged."""
        try:
            require_floating(self._sum(self._batch(data, np.empty(0, dtype=np.int64), self.released)))
        except Exception as error:  # whatever the subclass raises
            error.add_note("(raised for a batch of no records, which contributions and scores must take)")
            raise

    def _batch(self, data: Any, positions: np.ndarray, step: int) -> DrawnBatch:
        """Return the batch of some records of this mechanism, with a random order that nobody else knows."""
        secret = secrets.randbits(128) if self._key is None else self._key
        return DrawnBatch(
            data=data,
            positions=positions,
            owners=self._owners[positions],
            step=step,
            measure=self.measure,
            records=self._filter,
            order_secret=secret,
            units=self._units,
            measure_units=self.measure_units,
        )

    @np.errstate(all="ignore")  # a warning of numpy would tell everybody about a record
    def _sum(self, batch: DrawnBatch) -> Any:
        """Return the clipped, weighted sum of a batch; not private."""
        if batch.records is not None:
            return self._filtered_sum(batch.records, batch)
        if self._noise.exact:
            return self._exact_sum(batch)
        bounds = self._current_plan.sensitivities[batch.owners]
        return clipped_ordered_sum(*batch.measured(), bounds, batch.positions, **self._weighting_options(batch))

    def _exact_sum(self, batch: DrawnBatch) -> Any:
        """Return that sum in fixed point, where noise is exact."""
        raise NotImplementedError

    def _require_exact_sums(self) -> None:
        """Raise unless sums are made in fixed point, where noise is exact."""
        kind = type(self)
        if kind._sum is INOSGM._sum and kind._exact_sum is INOSGM._exact_sum:
            raise TypeError(
                f"noise must be GaussianNoise() for {kind.__name__}, whose sums are in floating point: derive it from "
                "Streaming, whose sums are in fixed point"
            )
        if self._filter is not None:
            raise TypeError("noise must be GaussianNoise() where every record pays for itself")

    def _filtered_sum(self, records: Filter, batch: DrawnBatch) -> Any:
        """Return the sum of the records that have not left, and ask the filter for what they contribute."""
        bounds = records.bounds()
        staying = bounds[batch.positions] > 0
        positions = batch.positions[staying]
        batch = replace(batch, positions=positions, owners=batch.owners[staying])
        options, least = self._weighting_options(batch), records.least[positions]
        total, lengths = realised_ordered_sum(*batch.measured(), bounds[positions], positions, least=least, **options)
        records.ask(positions, lengths)
        return total

    def _weighting_options(self, batch: DrawnBatch) -> dict[str, Any]:
        """Return how the records of a batch are clipped, ordered and weighted."""
        return {
            "owners": self._current_plan.step_cost[batch.owners],
            "tail": self._tail,
            "order": self._order.at(batch.step, batch.order_secret),
            "clipping": self._clipping,
        }

    def _noisy(self, total: Any, noise: Generator) -> Any:
        """Return the sum with the noise of the plan on every coordinate."""
        return self._noise.add(total, self._plan.noise_scale, noise)

    def _form_of_sums(self, rows: np.ndarray) -> Contributions:
        """Return rows of synthetic records as contributions whose sum has the form of this mechanism's own sums."""
        return Dense(rows)

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        """Let `measure` be a function of the batch, so that the sums of two batches can be compared.

        Nothing is released meanwhile, and coins and noise are left alone.
        """
        with self._lock:
            yield


def clipped_ordered_sum(
    contributions: Contributions,
    scores: Array,
    sensitivities: Array,
    ids: Array,
    *,
    owners: Array,
    tail: Tail,
    order: Order,
    clipping: Clipping,
) -> Any:
    """Clip, weigh and sum a batch: everything of a release but coins and noise. NOT PRIVATE.

    Sensitivities and owners are numbers of a plan, ids are positions: these have been checked before.
    """
    xp, norms, scores, bounds, ids, owners = _paired(contributions, scores, sensitivities, ids, owners)
    rho = weigh(xp, scores, bounds, tail, order, ids, owners)
    return contributions.weighted_sum(clipping.factors(norms, bounds, rho))


def realised_ordered_sum(
    contributions: Contributions,
    scores: Array,
    bounds: Array,
    ids: Array,
    *,
    least: Array,
    owners: Array,
    tail: Tail,
    order: Order,
    clipping: Clipping,
) -> tuple[Any, np.ndarray]:
    """Clip a batch, weigh it by the norms that clipping leaves, and sum it; also return these norms. NOT PRIVATE.

    **Guarantee.** Adding or removing one record changes the sum by at most its own norm as returned, which is never
    above its bound: Thm 3.4 of the INO-SGD paper with realised norms for sensitivities. The share rho_k l_k of the
    norm would NOT bound it: a record of weight 0 still moves the weights of others.

    Lengths below `least` are raised to it, so that rounding in sums of lengths never outweighs a record.
    """
    xp, norms, scores, bounds, ids, owners = _paired(contributions, scores, bounds, ids, owners)
    factors = clipping.factors(norms, bounds, xp.ones_like(norms))
    lengths = factors * xp.where(factors > 0, norms, xp.zeros_like(norms))
    _, floor = _validate.floats("least", least, like=scores)
    lengths = xp.where(lengths < floor, floor, xp.where(lengths > bounds, bounds, lengths))
    rho = weigh(xp, scores, lengths, tail, order, ids, owners)
    return contributions.weighted_sum(rho * factors), np.asarray(array_api_compat.to_device(lengths, "cpu"))


def _paired(contributions: Contributions, scores: Array, bounds: Array, ids: Array, owners: Array) -> tuple[Array, ...]:
    """Return namespace, norms, scores, bounds, ids and owners as arrays where the scores are."""
    norms = contributions.norms()
    xp, scores = checked_scores(scores)
    if norms.shape != scores.shape or len(ids) != len(scores):
        raise ValueError(
            "contributions and scores must pair up: one of each for every record of a batch"  # whose size is private
        )
    _, norms = _validate.floats("norms", norms, like=scores)
    _, bounds = _validate.floats("sensitivities", bounds, like=scores)
    _, owners = _validate.floats("owners", owners, like=scores)
    if xp is not np:
        ids = xp.asarray(ids, device=array_api_compat.device(scores))
    return xp, norms, scores, bounds, ids, owners


def _unit_index(
    plan: Plan, owners: Owners | Sequence[str | int] | np.ndarray, rule: UnitRule | None
) -> UnitIndex | None:
    """Return the records of each unit if units have several, and see that the plan protects what the owners say."""
    units = owners if isinstance(owners, Owners) and owners.has_units else None
    name = RECORD if units is None else units.unit_name
    parts_only = not isinstance(owners, Owners) and not len(owners)  # sums of parts, which count units
    if name != plan.unit_name and not parts_only:
        raise ValueError(
            f"owners must have the unit of the plan, one {plan.unit_name}, got one {name}: make the plan of "
            "Owners(..., unit_of_record=..., unit_name=...), and give the same owners to both"
        )
    if rule is not None:
        _validate.instance("unit_rule", rule, UnitRule, "take UnitMean() or UnitSum()")
        if units is None:
            raise ValueError("unit_rule must be left out without units: make Owners with unit_of_record")
    if units is None or (units.units_are_records and rule is None):
        return None
    return UnitIndex(units.unit_of_record, UnitMean() if rule is None else rule)


def _owner_indices(plan: Plan, owners: Owners | Sequence[str | int] | np.ndarray, *, sizes_vary: bool) -> np.ndarray:
    """Translate owner labels into positions in the plan, and see that the plan is about these records."""
    if isinstance(owners, Owners):
        distinct, inverse = owners.labels, owners.owner_of_unit
    else:
        distinct, inverse = _index_labels("owners", owners)
    position = {label: index for index, label in enumerate(plan.labels)}
    unknown = [label for label in distinct if label not in position]
    if unknown:
        raise ValueError(
            f"owners must be labels of the plan ({_validate.some(plan.labels)}), got {_validate.some(unknown)}"
        )
    indices = np.array([position[label] for label in distinct], dtype=np.int64)[inverse]
    if not sizes_vary:
        require_sizes(plan, np.bincount(indices, minlength=plan.sizes.size))
    return np.asarray(indices)


def require_sizes(plan: Plan, counts: np.ndarray) -> None:
    """Raise unless owners have the records that a plan says, but for one: neighbouring data follow the same plan.

    Where a record is replaced, neighbours have the same sizes.
    """
    missing = plan.sizes - counts
    if np.abs(missing).sum() > (relation_of(plan.unit) == ADD_REMOVE):
        worst = int(np.argmax(np.abs(missing)))
        raise ValueError(
            f"owners must be those of the plan: it has {plan.sizes[worst]} {plan.unit_name}s of "
            f"{plan.labels[worst]!r}, owners has {counts[worst]}"
        )
