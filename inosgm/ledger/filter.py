"""A privacy filter per owner whose bound holds for analysts who choose every cost by looking at earlier releases.

Every event (`commitments`) enters as a Gaussian mechanism that dominates it, up to a slack: Gaussian steps of full
batches as themselves, sampled steps as `inosgm.accounting.domination` finds it. An event is admitted while the squares
of all mus together are the square of a Gaussian mechanism within (epsilon, (1 - RESERVE) delta); the slacks of an owner
add up to less than RESERVE delta. The first event of an owner is chosen before anything about the owner was released,
so that its sampled steps are composed exactly, with a Gaussian mechanism for everything later. If it uses the budget
up, it has all of delta. `docs/adaptive_composition.md` proves the bound.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from inosgm.accounting import ACCOUNTANTS, Segment, Stretch
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.domination import Dominating, dominating_mu
from inosgm.accounting.gaussian import gaussian_delta, gaussian_epsilon
from inosgm.accounting.inverses import gaussian_mu, multipliers
from inosgm.accounting.segments import Spent, undominated
from inosgm.accounting.unique_rows import unique_rows
from inosgm.accounting.units import name_in
from inosgm.ledger.charges import CostTable
from inosgm.ledger.commitments import Commitments, steps_by_digest

RESERVE = 0.02
"""Fraction of delta that a new ledger keeps for slacks; it costs Gaussian questions 0.1 % of epsilon."""

TRAINING_STEP = 0.01, 1.0
"""The sample rate and the noise multiplier of the steps by which reports say what is left."""

_MOST_SHOWN_STEPS = 1 << 20  # of a training run in a report
_MOST_KINDS = 16  # first events whose rest is worked out once, in about a second each; others are composed every time

_NO_PAST = 1e9  # multiplier of a past that costs nothing


@dataclass(frozen=True, eq=False)
class Grants:
    """The epsilon and delta of every owner."""

    epsilon: np.ndarray
    delta: np.ndarray


@dataclass(frozen=True, eq=False)
class State:
    """Everything that the filter knows about every owner: one entry per owner in each array.

    Attributes:
        squares: The sum of the squares of the mus of all events, without the sampled steps of the first.
        begun: Whether an event has asked anything of the owner.
        later: Whether an event after the first has.
        dominated: The number of events after the first with sampled steps.
        first: Which of `kinds` the sampled steps of the first event are; -1 if it had none.
        kinds: Distinct sampled steps of first events.
    """

    squares: np.ndarray
    begun: np.ndarray
    later: np.ndarray
    dominated: np.ndarray
    first: np.ndarray
    kinds: tuple[tuple[Stretch, ...], ...] = ()

    @classmethod
    def of_nothing(cls, owners: int) -> "State":
        """Return the state before the first event."""
        zeros = np.zeros(owners, dtype=np.int64)
        return cls(np.zeros(owners), zeros > 0, zeros > 0, zeros, zeros - 1)


class Filter:
    """The filter of a ledger: the state after its commitments, and whether one more event fits.

    Args:
        unit: The unit of the ledger.
        reserve: The fraction of delta that is kept for slacks.
    """

    def __init__(self, unit: str, reserve: float) -> None:
        self.reserve = reserve
        self.accountant = ACCOUNTANTS[name_in(unit, "pld")]
        self._factor = self.accountant.sensitivity_factor
        self._dominating = Dominating(self._factor)
        self._played, self._state = 0, State.of_nothing(0)
        self._grants: Grants | None = None
        self._kinds: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._most_squares = lru_cache(maxsize=1 << 12)(self._most_squares_of)
        self._training_steps = lru_cache(maxsize=1 << 10)(self._training_steps_of)

    def copied(self) -> "Filter":
        """Return a filter in the same state, which goes on by itself; what both have worked out is shared."""
        other = copy(self)
        other._kinds = dict(self._kinds)
        return other

    def forget(self) -> None:
        """Derive the state anew: an event was undone."""
        self._played = 0

    def state(self, commitments: Commitments, tables: Mapping[str, CostTable], grants: Grants) -> State:
        """Return the state after all commitments; only new ones are worked out."""
        owners = grants.epsilon.size
        if self._grants is not grants:  # slacks follow from delta
            self._grants, self._played = grants, 0
        if not self._played:
            self._state = State.of_nothing(owners)
        for event in commitments.events[self._played :]:
            parts = [(digest, tables[digest], steps) for digest, steps in steps_by_digest(event).items()]
            self._state = self.after(self._state, parts, grants)
            self._played += 1
        return self._state

    def played(self, state: State, events: int) -> None:
        """Take over a state that `after` has worked out, with this number of events."""
        self._state, self._played = state, events

    def after(self, state: State, parts: Sequence[tuple[str, CostTable, int]], grants: Grants) -> State:
        """Return the state after one more event, whether or not it fits."""
        owners = grants.epsilon.size
        squares, pays, sampled = state.squares.copy(), np.zeros(owners, dtype=bool), np.zeros(owners, dtype=bool)
        groups = []
        for digest, table, steps in parts:
            square, is_sampled = self._kinds_of(digest, table)
            group = table.groups(owners)
            groups.append(group)
            squares += steps * square[group]
            pays |= group >= 0
            sampled |= is_sampled[group]
        begun, repeated = state.begun | pays, state.later | (state.begun & pays)
        if not sampled.any():
            return State(squares, begun, repeated, state.dominated, state.first, state.kinds)
        later = np.flatnonzero(sampled & state.begun)
        dominated = state.dominated + (sampled & state.begun)
        if later.size:
            slack = self._slack(dominated[later], grants.delta[later])
            squares[later] += self._dominating_mus(parts, later, slack) ** 2
        new = np.flatnonzero(sampled & ~state.begun)
        if not new.size:
            return State(squares, begun, repeated, dominated, state.first, state.kinds)
        first, kinds = state.first.copy(), list(state.kinds)
        heads, which = unique_rows([group[new].astype(np.float64) for group in groups])
        known = {kind: number for number, kind in enumerate(kinds)}
        numbers = []
        for owner in new[heads].tolist():
            kind = self._sampled_steps(parts, owner)
            numbers.append(known.setdefault(kind, len(kinds)))
            if len(known) > len(kinds):
                kinds.append(kind)
        first[new] = np.array(numbers)[which]
        return State(squares, begun, repeated, dominated, first, tuple(kinds))

    def over(self, before: State, after: State, grants: Grants) -> np.ndarray:
        """Return the owners whose budgets do not cover the step from one state to the next."""
        changed = (after.squares > before.squares) | (after.first != before.first)
        changed |= (
            after.dominated > before.dominated
        )  # a slack alone needs the reserve, which a first event may have used
        asked = np.flatnonzero(changed)
        return np.asarray(asked[~self._fit(after, asked, grants)])

    def over_now(self, state: State, owners: np.ndarray, grants: Grants) -> np.ndarray:
        """Return those of some owners whose grants, which may be lower than they were, do not cover their state."""
        begun = owners[state.begun[owners]]
        return np.asarray(begun[~self._fit(state, begun, grants)])

    def _fit(self, state: State, owners: np.ndarray, grants: Grants) -> np.ndarray:
        """Return whether the grants of some owners cover their state; a first event may have all of delta."""
        plain, alone = state.first[owners] < 0, ~state.later[owners]
        fits = np.zeros(owners.size, dtype=bool)
        gaussian = owners[plain]
        with np.errstate(divide="ignore", invalid="ignore"):
            deltas = gaussian_delta(np.sqrt(state.squares[gaussian]), grants.epsilon[gaussian])
        fits[plain] = deltas <= (1 - self.reserve) * grants.delta[gaussian]  # a NaN does not fit
        fresh, old = alone & ~fits, ~plain & ~alone
        if fresh.any():
            some = owners[fresh]
            fits[fresh] = self.epsilons(state, some, grants.delta[some]) <= grants.epsilon[some]
        if old.any() and np.unique(state.first[owners[old]]).size <= _MOST_KINDS:
            fits[old] = state.squares[owners[old]] <= self.most_squares(state, owners[old], grants)
        elif old.any():
            deltas = (1 - self.reserve) * grants.delta[owners[old]]
            fits[old] = self.epsilons(state, owners[old], deltas) <= grants.epsilon[owners[old]]
        return fits

    def epsilons(self, state: State, owners: np.ndarray, delta: np.ndarray) -> np.ndarray:
        """Return the epsilon of a state for some owners, each at a delta."""
        epsilons = np.zeros(owners.size)
        plain = state.first[owners] < 0
        asked = plain & (state.squares[owners] > 0)
        mu, kinds = np.unique(
            np.stack([np.sqrt(state.squares[owners[asked]]), delta[asked]]), axis=1, return_inverse=True
        )
        epsilons[asked] = gaussian_epsilon(*mu)[kinds.reshape(-1)] if mu.size else 0.0
        if not plain.all():
            histories = [self._history(state, owner) for owner in owners[~plain].tolist()]
            epsilons[~plain] = self.accountant.epsilons_of(histories, delta[~plain].tolist())
        return epsilons

    def level(self, state: State, grants: Grants) -> np.ndarray:
        """Return the delta at which the epsilon of each owner is read: without what slacks have used."""
        return np.asarray(np.where(state.dominated > 0, 1 - self.reserve, 1.0) * grants.delta)

    def most_squares(self, state: State, owners: np.ndarray, grants: Grants) -> np.ndarray:
        """Return the largest sum of squares of some owners that fits, whatever the analyst does."""
        columns = np.stack([state.first[owners], grants.epsilon[owners], (1 - self.reserve) * grants.delta[owners]])
        cases, which = np.unique(columns, axis=1, return_inverse=True)
        most = np.zeros(cases.shape[1])
        plain = cases[0] < 0
        most[plain] = gaussian_mu(cases[1, plain], cases[2, plain]) ** 2
        kinds, with_first = cases[0].astype(np.int64), np.flatnonzero(~plain)
        if with_first.size:
            asked = [(state.kinds[kinds[i]], float(cases[1, i]), float(cases[2, i])) for i in with_first.tolist()]
            most[with_first] = [self._most_squares(*case) for case in asked]
        return np.asarray(most[which.reshape(-1)])

    def left(self, state: State, owners: np.ndarray, grants: Grants) -> np.ndarray:
        """Return the square of the mu that some owners have left; 0 if nothing."""
        return np.asarray(np.maximum(self.most_squares(state, owners, grants) - state.squares[owners], 0.0))

    def as_question(self, left: np.ndarray, delta: np.ndarray) -> np.ndarray:
        """Return the epsilon of the most expensive question about all records that what is left pays for."""
        epsilons = np.zeros(left.size)
        some = left > 0
        epsilons[some] = gaussian_epsilon(np.sqrt(left[some]), delta[some])
        return epsilons

    def as_training_steps(self, left: np.ndarray, state: State, owners: np.ndarray, grants: Grants) -> np.ndarray:
        """Return the steps of a run of TRAINING_STEP that what is left pays for as one event, to three digits."""
        slack = self._slack(np.maximum(state.dominated[owners] + state.begun[owners], 1), grants.delta[owners])
        return np.array([self._training_steps(float(square), float(s)) for square, s in zip(left, slack, strict=True)])

    def _training_steps_of(self, square: float, slack: float) -> int:
        rate, multiplier = TRAINING_STEP[0], TRAINING_STEP[1] / self._factor

        def fits(steps: int) -> bool:
            return dominating_mu(((rate, multiplier, steps),), slack, replaced=self._factor == 2) ** 2 <= square

        low, high = 0, 1
        while high < _MOST_SHOWN_STEPS and fits(high):
            low, high = high, 4 * high
        while high - low > max(1, low // 200):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def past(self, state: State, owners: np.ndarray, grants: Grants, planned: Grants) -> tuple[Spent, ...]:
        """Return what a plan of some owners, with budgets of its own, counts as its past; nothing if none has begun."""
        begun = state.begun[owners]
        if not begun.any():
            return ()
        left = self.left(state, owners, grants)
        used = gaussian_mu(planned.epsilon, planned.delta) ** 2 - left
        # A plan may aim lower than the grants do. An owner that has begun has a past, however short.
        square = np.where(begun, np.maximum(used, np.finfo(np.float64).tiny), 0.0)
        with np.errstate(divide="ignore"):
            multiplier = np.minimum(self._factor / np.sqrt(square), np.where(begun, _NO_PAST, np.inf))
        return (Spent(multiplier, self._slack(state.dominated[owners] + 1, grants.delta[owners])),)

    def _slack(self, number: np.ndarray, delta: np.ndarray) -> np.ndarray:
        """Return the slack of the n-th event with sampled steps after the first: together less than the reserve."""
        return np.asarray(self.reserve * delta * 0.5**number)

    def _most_squares_of(self, kind: tuple[Stretch, ...], epsilon: float, delta: float) -> float:
        """Return the largest sum of squares after the sampled steps of a first event; -1 if they leave nothing."""
        past = [Segment(*(np.array([value]) for value in stretch)) for stretch in kind]
        one = np.ones(1)
        found = multipliers(np.array([epsilon]), np.array([delta]), one, one, past, self.accountant)[0]
        return -1.0 if np.isnan(found) else float((self._factor / found) ** 2)

    def _history(self, state: State, owner: int) -> tuple[Stretch, ...]:
        """Return what an owner has committed to, with one Gaussian step for everything but a first event."""
        first, square = state.first[owner], state.squares[owner]
        sampled = state.kinds[first] if first >= 0 else ()
        return (*sampled, (1.0, float(self._factor / np.sqrt(square)), 1)) if square > 0 else sampled

    def _kinds_of(self, digest: str, table: CostTable) -> tuple[np.ndarray, np.ndarray]:
        """Return the square of the mu of a step of each group, 0 if it is sampled, and whether it is; last, nobody."""
        if digest not in self._kinds:
            rates, noise = table.sample_rates, table.noise_multipliers
            if rates.ndim > 1:
                best = [undominated(*pair) for pair in zip(rates, noise, strict=True)]
                full = np.array([menu.size == 1 and menu[0] == 1 for menu, _ in best])
                noise = np.array([least.min() for _, least in best])
            else:
                full = rates == 1
            square = np.where(full, (self._factor / noise) ** 2, 0.0)
            self._kinds[digest] = np.append(square, 0.0), np.append(~full, False)
        return self._kinds[digest]

    def _sampled_steps(self, parts: Sequence[tuple[str, CostTable, int]], owner: int) -> tuple[Stretch, ...]:
        """Return the sampled steps of an event for an owner; equal steps are added up."""
        counts: dict[tuple[object, object], int] = {}
        for digest, table, steps in parts:
            group = table.group[owner] if owner < table.group.size else -1
            if group >= 0 and self._kinds_of(digest, table)[1][group]:
                step = table.step(group)
                counts[step] = counts.get(step, 0) + steps
        ordered = sorted(counts.items(), key=lambda item: (isinstance(item[0][0], tuple), item[0]))
        return tuple((*step, count) for step, count in ordered)  # type: ignore[misc]

    def _dominating_mus(
        self, parts: Sequence[tuple[str, CostTable, int]], owners: np.ndarray, slack: np.ndarray
    ) -> np.ndarray:
        """Return the mus that dominate the sampled steps of an event for some owners."""
        segments = []
        for digest, table, steps in parts:
            is_sampled = self._kinds_of(digest, table)[1]
            if is_sampled.any():
                size = max(int(owners.max()) + 1, table.group.size)
                segment = table.segment(steps, size, owners.tolist())
                kept = is_sampled[table.groups(size)[owners]]
                rates = np.where(kept if segment.sample_rate.ndim == 1 else kept[:, None], segment.sample_rate, 0.0)
                segments.append(Segment(rates, segment.noise_multiplier, segment.steps))
        return epsilon_of_rows(segments, slack, self._dominating)
