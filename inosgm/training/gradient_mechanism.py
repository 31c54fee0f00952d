"""INO-SGM whose contributions are gradients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inosgm._internal import validate as _validate
from inosgm._internal.validate import Array
from inosgm.ledger.ledger import Ledger
from inosgm.mechanism.clipping import ScaleClipped
from inosgm.mechanism.contributions import Contributions, Dense
from inosgm.mechanism.fixed_point import Grid
from inosgm.mechanism.mechanism import INOSGM, DrawnBatch, Measured
from inosgm.mechanism.noise import choices, key_beside
from inosgm.mechanism.streaming import OrderedSum
from inosgm.mechanism.tails import NoTail, Tail
from inosgm.mechanism.units import RecordsOfUnits, UnitMean
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import side_release_note
from inosgm.planning.steering import Steering
from inosgm.training.group_losses import GroupLosses
from inosgm.training.microbatches import LogicalBatch
from inosgm.training.model_gradients import ModelGradients


class _AsTensors(Dense):
    """Rows whose weighted sum has the form of gradients: a list of tensors."""

    def weighted_sum(self, weights: Array) -> list[Tensor]:
        return [torch.from_numpy(super().weighted_sum(weights))]

    def rows(self) -> Iterator[Tensor]:
        """Yield the rows."""
        yield torch.from_numpy(np.asarray(self.array, dtype=np.float64))

    @property
    def parameters(self) -> Sequence[Tensor]:
        """One tensor, of whose shape sums are made."""
        return [torch.zeros(self.array.shape[1:])]


class GradientMechanism(INOSGM):
    """Releases noisy sums of the gradients of a model along one plan: one tensor per trainable parameter.

    `Trainer` makes one for every plan that it follows, and lets an optimizer use what it releases.

    Args:
        plan: The public numbers.
        owners: Owners, or the label of each record's owner.
        gradients: Runs the model.
        tail: What part of an ordered batch is down-weighted, or a function that makes it from the plan.
        steering: What `steer` will be given; the plan must pay for the losses that it needs.
        released: How many steps of the plan were released before, with the same key.
        spent: What each record has spent in these steps, where records pay for themselves.
        views: How often each record is run in a step, each time transformed at random; the mean of its gradients is
            clipped.
        charge_steps: As for `INOSGM`; a twentieth of the plan if not given.
        options: As for `INOSGM`.
    """

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Sequence[str | int] | np.ndarray,
        gradients: ModelGradients,
        *,
        tail: Tail | Callable[[Plan], Tail] = NoTail(),
        steering: Steering | None = None,
        released: int = 0,
        spent: np.ndarray | None = None,
        views: int = 1,
        charge_steps: int | None = None,
        **options: Any,
    ) -> None:
        _require_fitting_steering(plan, steering)
        self.gradients = gradients
        self._losses: GroupLosses | None = None
        self._heard, self._retired = 0, False
        self._views = _validate.count("views", views, least=1)
        self._tail_for = None if isinstance(tail, Tail) or not callable(tail) else tail
        super().__init__(
            plan,
            owners,
            tail=tail if isinstance(tail, Tail) or not callable(tail) else tail(plan),
            charge_steps=_twentieth(plan) if charge_steps is None else charge_steps,
            **options,
        )
        self._require_fitting_parts()
        self._resume_at(released)
        if spent is not None and self._filter is not None:
            self._filter.restore(spent)

    @property
    def expected_batch(self) -> float:
        """The expected size of the next batch: the public divisor of its sum."""
        return self._current_plan.expected_batch

    @property
    def owners(self) -> np.ndarray:
        """The position in the plan of the owner of each record, or of each unit if units have several records."""
        return self._owners.copy()

    @property
    def owner_of_record(self) -> np.ndarray:
        """The position in the plan of each record's owner."""
        return self._owners[... if self._units is None else self._units.of_record]

    @property
    def job(self) -> str:
        """The name of this mechanism's noise in the ledger."""
        return self._cost.job

    @property
    def spent_by_record(self) -> np.ndarray | None:
        """The budget that each record has spent, if records pay for themselves and steps are left. PRIVATE."""
        return None if self._filter is None or self.released == self.plan.steps else self._filter.spent

    def check(self, data: Any) -> None:
        """Raise for data, a model or a loss that cannot be worked with; nothing is drawn or charged."""
        self._check_fitting(data)

    def measure(self, data: Any, positions: np.ndarray | None, owners: np.ndarray, step: int) -> Measured:
        """Return the gradients of a batch, run in micro-batches, and its losses or what `score` makes of them."""
        places = np.arange(len(owners)) if positions is None else positions
        if self._views > 1:
            alone = RecordsOfUnits(positions=places, groups=np.arange(places.size), rule=UnitMean())
            return self.measure_units(data, alone, owners, step)
        batch = self.gradients.measure(data, places, step, self._key)
        return batch, batch.scores

    def measure_units(self, data: Any, units: RecordsOfUnits, owners: np.ndarray, step: int) -> Measured:
        """Return the gradients of the units of a batch, none of which is made from one per record, and their scores."""
        units = units if self._views == 1 else units.with_views(self._views)
        batch = self.gradients.measure(data, units, step, self._key)
        return batch, units.scores(batch.scores)

    def _require_fitting_parts(self) -> None:
        """Raise if a part of a batch could be too small for a unit, by public numbers."""
        most, rule = self.gradients.max_physical_batch, None if self._units is None else self._units.rule
        if most is None:
            return
        if rule is not None and rule.records_per_unit is None:
            raise ValueError(
                "unit_rule must limit the records of a unit with max_physical_batch, because no part of a batch splits "
                f"a unit: UnitMean(records_per_unit={most // self._views}), say"
            )
        largest = self._views * ((rule.records_per_unit or 1) if rule is not None else 1)
        if largest > most:
            raise ValueError(
                f"max_physical_batch must be at least {largest}, the records_per_unit times the views, got {most}: no "
                "part of a batch splits a unit"
            )

    def steer(self, data: Any, steering: Steering) -> None:
        """Let a steering choose the shares of the next step, after a release of losses if one is due."""
        self.require_here()  # what releases losses may be made below, in a process that has forked off
        self._check(data)
        step = self.released
        coins = choices(self._key, step)
        if step % steering.every == 0 and step != self._heard:  # a step that failed and is tried again hears no more
            due = step // steering.every - 1
            if self._losses is None or (self._key is not None and self._losses.released != due):
                self._losses = self._group_losses(due)  # the noise of a key belongs to this step, whatever failed
            steering.learn(self._losses.means(self._losses.release(data).value), coins)
            self._heard = step
        rates, bounds = steering.shares(self._plan, coins)
        now = self._current_plan
        if not (np.array_equal(rates, now.sample_rates) and np.array_equal(bounds, now.sensitivities)):
            with self._lock:  # never between the coins and the sensitivities of a release in another thread
                self._apply_choice(self._plan.with_choice(rates, bounds))

    def steps_released(self) -> int:
        """Return how many steps of the plan were released, those that only the ledger remembers included.

        A run that was killed has made steps after its last checkpoint: they stay paid for.
        """
        if not isinstance(self._ledger, Ledger):
            return self.released
        return max(self._ledger.bound(self.job), self.released)

    def undo_unmade_steps(self) -> int:
        """Take back the charges of steps that were paid for and never made; return how many steps were."""
        if not isinstance(self._ledger, Ledger):
            return self.released
        with self._lock:  # no other thread releases a step meanwhile that is about to be undone
            made = self.steps_released()
            self._count.charged = self.released  # whatever happens from here on: the next step asks the ledger again
            self._ledger.undo(self.job, made)
            if self._key is None:  # what was undone is never charged again without a key
                self._cost = self._cost.of_new_job()
        return made

    def _require_exact_sums(self) -> None:
        super()._require_exact_sums()
        if type(self._clipping) is not ScaleClipped:
            raise TypeError(f"clipping must be ScaleClipped() for sums in fixed point, got {self._clipping!r}")
        if self._units is not None or self._views > 1:
            raise TypeError("noise must be GaussianNoise() for units of several records and for several views")
        if self._plan.side_releases:
            raise TypeError("noise must be GaussianNoise() for plans that release losses as well: these are float sums")
        Grid.of(self._plan.sensitivities, self._plan.sizes)  # raises for what fixed point cannot hold

    def _exact_sum(self, batch: DrawnBatch) -> list[Tensor]:
        """Return the sum of gradients that are cut and rounded towards zero to a public grid, each by itself."""
        gradients, scores = batch.measured()
        if not isinstance(gradients, LogicalBatch | _AsTensors):
            raise TypeError("noise must be GaussianNoise() for gradients of several processes")
        total = OrderedSum(self._current_plan, self._tail, self._order.at(batch.step, batch.order_secret))
        sizes = [parameter.numel() for parameter in gradients.parameters]
        values, begin = np.asarray(scores, dtype=np.float64), 0
        none = torch.zeros((0, sum(sizes)), dtype=torch.float64)
        for rows in (none, *gradients.rows()):
            some = slice(begin, begin + rows.shape[0])
            total.add(rows.cpu().numpy(), values[some], batch.owners[some], batch.positions[some], None)
            begin = some.stop
        parts = torch.split(torch.from_numpy(total.exact()), sizes)
        return [
            part.reshape(parameter.shape).to(parameter.device)
            for part, parameter in zip(parts, gradients.parameters, strict=True)
        ]

    def _group_losses(self, released: int) -> GroupLosses:
        """Return what releases losses, after so many releases."""
        return GroupLosses(
            self._plan.side_releases[0],
            self._owners,
            self.gradients.losses,
            key=None if self._key is None else key_beside(self._key),
            ledger=self._ledger,
            released=released,
            note=side_release_note(self._note),
        )

    def _apply_choice(self, plan: Plan) -> None:
        super()._apply_choice(plan)
        if self._tail_for is not None:
            self._tail = self._tail_for(plan)

    def retire(self) -> None:
        """Refuse every further release: the trainer follows another mechanism."""
        with self._lock:  # a release in another thread comes to its end first
            self._retired = True

    def _require_step_left(self) -> None:
        if self._retired:
            raise RuntimeError(
                "the trainer has begun, resumed or revised a run since, and follows another mechanism: take "
                "trainer.mechanism anew"
            )
        super()._require_step_left()

    def _check(self, data: Any) -> None:
        self.gradients.require_listening()
        self._check_fitting(data)

    def _check_fitting(self, data: Any) -> None:
        super()._check(data)
        self.gradients.check(data)
        self.gradients.trained_on = data

    def _probe(self, data: Any) -> None:
        """Leave data of a new form to `ModelGradients.check`, which tries the model on it."""

    def _form_of_sums(self, rows: np.ndarray) -> Contributions:
        return _AsTensors(rows)

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        with super()._comparing(), self.gradients.comparing():
            yield


def _twentieth(plan: Plan) -> int:
    """Return how many steps are charged at once: all of a plan would be lost with a run that fails early."""
    return -(-plan.steps // 20)


def _require_fitting_steering(plan: Plan, steering: Steering | None) -> None:
    """Raise unless a plan has what its steering releases: a plan beside it that pays for the losses."""
    if steering is None:
        if plan.variant.needs_steering:
            raise ValueError(
                "steering must be given for a plan with choices: AdaptiveShares(plan, every=..., ...) for ASC"
            )
        return
    _validate.instance("steering", steering, Steering, "take AdaptiveShares or ChosenGroup")
    due, paid = (plan.steps - 1) // steering.every, plan.side_releases[0].steps if plan.side_releases else 0
    if due > paid:
        raise ValueError(
            f"steering releases losses {due} times, once in {steering.every} steps, and the plan pays for {paid}: give "
            "both the same `every`"
        )
