"""Individual accounting: every record pays for itself, by the norm of what it gives, until its allowance is used up."""

import math
from collections.abc import Sequence

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.once import Uncopied
from inosgm.accounting import Accountant, Segment
from inosgm.owners import Owners
from inosgm.planning.calibration import scale_shares
from inosgm.planning.plan import Plan
from inosgm.planning.planners import wish_of

LEAST = 1e-6
"""A record that takes part counts for at least this part of C: over six orders of magnitude sums of norms are exact."""

_SHORT = 1 - 2.0**-40  # what is left is taken a little shorter than it is, so that no rounding spends more


def plan_individual(
    owners: Owners,
    *,
    steps: int,
    clip_norm: float,
    lasting: float = 0.8,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan full batches in which every record pays by the norm of what it gives, out of an allowance of its owner's.

    A record that contributes a vector of norm l to a step spends (l / noise_scale)^2. Once its allowance is used up it
    has left: the last contribution is cut to what it can still afford. Records with short gradients so stay longer
    than those with long ones, and the noise may be less than what full norms at all steps would need.

    **Guarantee.** After any number of steps every owner has spent at most what it grants, at its delta, for one of its
    records added or removed. The allowance is charged whole, before the first step: it pays for whatever a record may
    do. With RDP() it is that of a Renyi filter (Feldman and Zrnic 2021), with PLD() that of a Gaussian one (Smith and
    Thakurta 2022; Koskela, Tobaben and Honkela 2023); docs/guides/individual_accounting.md has the proof. What single
    records have spent, and how many are left, is private and nowhere reported.

    Args:
        owners: Who grants what; see Owners.
        steps: How many releases there will be.
        clip_norm: The mean over all records of C, the most that a record contributes to a step. Owners have the
            sensitivities of `plan_scale`, so that nobody's records have to leave before those of others.
        lasting: In (0, 1], the share of the steps that a record lasts if it contributes C to each. At 1 everybody lasts
            to the end, with the noise of `plan_scale`; a smaller share means less noise, and that records with long
            gradients leave early.
        accountant: PLD() if not given.
        past: What was done to the owners' records before, which counts: ledger.past(owners) knows.

    Returns:
        The plan, with the allowances in it.

    Raises:
        ValueError: naming the argument that cannot be, or the owner whose budget does not fit and what to change.

    >>> owners = Owners(of_record=["benign"] * 600 + ["malignant"] * 400,
    ...                 epsilon={"benign": 5.0, "malignant": 1.0}, delta=1e-5)
    >>> plan = plan_individual(owners, steps=100, clip_norm=1.0)
    >>> plan.spent().round(3), plan.allowance.round(3)
    (array([4.999, 1.   ]), array([1.257, 0.072]))
    """
    records = int(owners.sizes.sum()) if isinstance(owners, Owners) else 1
    wish = wish_of(owners, steps, records, clip_norm, accountant, past)
    share = _validate.number("lasting", lasting, above=0, most=1)
    full = scale_shares(wish)
    less = full._replace(noise_scale=math.sqrt(share) * full.noise_scale)
    allowance = wish.steps * (full.sensitivities / full.noise_scale) ** 2
    return Plan.with_shares(wish, less, owners=owners, method="individual", allowance=allowance)


class Filter(Uncopied):
    """What every record may still spend. PRIVATE: it follows the data, and must not leave the run but in checkpoints.

    **Guarantee.** The squares of (length / noise scale) that were settled for a record never add up to more than its
    allowance. What a record may contribute depends on the record and on released values, not on other records.

    Args:
        allowance: What each record may spend in all, in squares of norm over noise scale.
        clip_norm: C of each record.
        noise_scale: Standard deviation of the noise.

    >>> records = Filter(np.array([1.0, 1.0]), np.array([2.0, 2.0]), noise_scale=2.5)
    >>> records.ask(np.array([0, 1]), np.array([2.0, 0.5]))
    >>> records.settle()
    >>> records.bounds().round(2)
    array([1.5, 2. ])
    """

    def __init__(self, allowance: np.ndarray, clip_norm: np.ndarray, *, noise_scale: float) -> None:
        self._allowance, self._most, self._noise_scale = allowance, clip_norm, noise_scale
        self._spent = np.zeros(allowance.size)
        self._asked: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, plan: Plan, owners: np.ndarray) -> "Filter | None":
        """Return the filter of records that belong to owners of a plan, by place; None for a plan that needs none."""
        if plan.allowance is None:
            return None
        return cls(plan.allowance[owners], plan.sensitivities[owners], noise_scale=plan.noise_scale)

    @property
    def spent(self) -> np.ndarray:
        """What each record has spent: PRIVATE."""
        return self._spent.copy()

    @property
    def least(self) -> np.ndarray:
        """What each record counts for at least when it takes part."""
        return np.asarray(LEAST * self._most)

    def restore(self, spent: np.ndarray) -> None:
        """Go on from what each record has spent before."""
        if spent.shape != self._spent.shape:
            raise ValueError("what records have spent must be one number per record: these are other records")
        self._spent, self._asked = np.array(spent, dtype=np.float64), None

    def bounds(self) -> np.ndarray:
        """Return the norm that each record may contribute to the next step, 0 for those that have left."""
        left = _SHORT * self._noise_scale * np.sqrt(np.maximum(self._allowance - self._spent, 0.0))
        return np.where(left < self.least, 0.0, np.minimum(left, self._most))

    def ask(self, positions: np.ndarray, lengths: np.ndarray) -> None:
        """Say what records would contribute; nothing is spent before it is settled."""
        self._asked = positions, lengths

    def asked(self, position: int) -> float:
        """Return the length that was asked for a record, 0 if it has left."""
        positions, lengths = self._asked if self._asked is not None else (np.empty(0), np.empty(0))
        return float(lengths[positions == position].sum())

    def settle(self) -> None:
        """Let the records pay for what was asked last, which is about to be released."""
        if self._asked is not None:
            positions, lengths = self._asked
            spent = self._spent[positions] + (lengths / self._noise_scale) ** 2
            if not (spent <= self._allowance[positions]).all():
                raise RuntimeError("a record would spend more than its allowance: lengths must keep the bounds")
            self._spent[positions], self._asked = spent, None
