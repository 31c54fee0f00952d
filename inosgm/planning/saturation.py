"""Saturated plans: the sensitivities with which a sum over all records has the least worst-case error.

A statistic estimates the mean of x_k over all N records, |x_k| <= R, where owner n has the public number n_n of
records, the sample rate q_n and the sensitivity C_n, and the noise scale is sigma. It releases the sum of A_n x_k
over the sampled records, plus noise, with A_n <= C_n / R, and divides by t N for a public t. So a record of owner n
has the weight w_n = q_n A_n / t in expectation (Horvitz-Thompson, if w_n = 1), and

    noise        sigma / t                                       (for the sum)
    coins        a variance of at most R^2 sum_n n_n w_n^2 (1 - q_n) / q_n
    bias         at most R sum_n n_n (1 - w_n), and this is attained: let the records that are shrunk all be R.

**Which weights.** For a given t, w_n <= q_n C_n / (R t), and a weight above 1 adds noise and bias. The bias falls with
every weight, so without coins the best is w_n = min(1, a_n / t), a_n = q_n C_n / R: owners whose a_n is above the
threshold t count in full, the others are shrunk. This is the saturation of Chaudhuri, Miagkov and Courtade, "Mean
estimation under heterogeneous privacy demands". With coins (rates below 1) we keep this family; the variance of the
coins enters the choice of t. (The exact optimum would also cap w_n at B / v_n, B being the bias and v_n = (1 - q_n) /
q_n. That shrinks even the plan of a single owner, by v_n / N, and we leave it out.)

**Which t.** Let s = 1 / t. Between two neighbouring values of 1 / a_n the set U of shrunk owners is the same, and the
squared worst-case error is a quadratic function of s,

    sigma^2 s^2 + V s^2 + (N_U - A s)^2 + constant,   V = sum_U n_n v_n a_n^2,  A = sum_U n_n a_n,  N_U = sum_U n_n,

with its minimum at s = A N_U / (sigma^2 + V + A^2), or at an end of the segment. We take the best segment. Two rules
keep the estimate plain. First, t <= max a_n: somebody counts in full, so a plan with one budget is never shrunk.
Second, if w_n = 1 for all n (t = min a_n: unbiased) has a worst-case error of at most 10 % above the optimum, we take
that.

**Vectors.** Let contributions x_k be vectors with |x_k| <= R in the Euclidean norm. For every unit vector u the number
<u, estimate> has noise sigma / t and a bias of at most R sum_n n_n (1 - w_n), because |<u, x_k>| <= R. So the same
weights are best for every coordinate and every linear function, whatever the dimension. The noise cannot be less for
these weights: an owner's record moves the released sum by A_n R <= C_n, and an estimate that gives it the weight w_n
has to divide by q_n A_n / w_n.

**Privacy.** Everything here is public: sizes, rates, sensitivities and the noise scale of a plan. The saturated plan
has the sensitivities A_n R = min(C_n, R t / q_n) <= C_n with the same rates and noise, so its noise multipliers are
larger and no owner pays more than under the plan it was made from. Those above the threshold pay less.
"""

from dataclasses import dataclass

import numpy as np

from inosgm.planning.plan import Plan
from inosgm.planning.variants import Blend, Variant

UNBIASED = 1.1
"""The estimate is unbiased if its worst-case error is at most this multiple of the smallest one."""

_SAME = 1 - 1e-9
"""A plan is saturated already if its largest expected sensitivity is this close to the threshold: rounding is 1e-16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """The weights of records in a saturated estimate, and what they cause at most; contributions have length 1.

    Attributes:
        threshold: The expected sensitivity, rate times sensitivity, from which the records of an owner count in full.
        weights: The weight of a record of each owner, in [0, 1].
        noise: The standard deviation of the noise on a sum over all records.
        coins: The largest standard deviation that sampling adds to the sum; 0 if all rates are 1.
        missing: The largest bias of the sum: the number of records times 1 - weight, over all owners.

    >>> plan = Plan(sample_rates=[1, 1], sensitivities=[1, 2], sizes=[10, 90], noise_scale=3, steps=1)
    >>> Weights.at(plan, 2.0).missing
    5.0
    """

    threshold: float
    weights: np.ndarray
    noise: float
    coins: float
    missing: float

    @classmethod
    def at(cls, plan: Plan, threshold: float) -> "Weights":
        """Return the weights for a threshold."""
        rates, sizes = plan.sample_rates, plan.sizes
        weights = np.minimum(1.0, rates * plan.sensitivities / threshold)
        return cls(
            threshold=threshold,
            weights=weights,
            noise=plan.noise_scale / threshold,
            coins=float(np.sqrt((sizes * weights**2) @ _spread(rates))),
            missing=float(sizes @ (1 - weights)),
        )

    @property
    def worst_error(self) -> float:
        """The root of the largest mean squared error of a sum over all records, whatever they are."""
        return float(np.sqrt(self.noise**2 + self.coins**2 + self.missing**2))


def best_weights(plan: Plan) -> Weights:
    """Return the saturated weights with the least worst-case error; see the module.

    >>> plan = Plan(sample_rates=[1, 1], sensitivities=[0.01, 2], sizes=[10, 990], noise_scale=4, steps=1)
    >>> best_weights(plan).weights
    array([0.005, 1.   ])
    """
    held = plan.sizes > 0
    expected, sizes = (plan.sample_rates * plan.sensitivities)[held], plan.sizes[held].astype(np.float64)
    if not expected.any():
        raise ValueError("plan must let an owner with records take part, got rates of 0 for all of them")
    order = np.argsort(expected, kind="stable")
    expected, sizes, spread = expected[order], sizes[order], _spread(plan.sample_rates[held][order])
    low, high = expected[:-1], expected[1:]  # a segment: owners up to and with `low` are shrunk, thresholds in between
    shrunk, total = np.cumsum(sizes)[:-1], np.cumsum(sizes * expected)[:-1]
    coins = np.cumsum(sizes * spread * expected**2)[:-1]
    full = (sizes @ spread) - np.cumsum(sizes * spread)[:-1]
    with np.errstate(divide="ignore"):
        best = (plan.noise_scale**2 + coins + total**2) / (total * shrunk)  # the threshold, 1 / s; inf for rates of 0
    thresholds = np.clip(best, low, high)
    thresholds = np.where(thresholds > 0, thresholds, high)
    squares = (plan.noise_scale**2 + coins) / thresholds**2 + full + (shrunk - total / thresholds) ** 2
    found = Weights.at(plan, float(expected[-1]))
    if squares.size:
        found = min(found, Weights.at(plan, float(thresholds[np.argmin(squares)])), key=lambda some: some.worst_error)
    if expected[0] > 0:
        unbiased = Weights.at(plan, float(expected[0]))
        if unbiased.worst_error <= UNBIASED * found.worst_error:
            return unbiased
    return found


def saturated(plan: Plan) -> Plan:
    """Return the plan with the sensitivities of the best estimate over all records.

    **Guarantee.** No owner pays more than under the plan: rates and noise are the same, and no sensitivity is larger.
    The result is a function of public numbers. A plan that is saturated is returned as it is.

    Raises:
        ValueError: for a plan whose steps follow released values, whose batches have fixed sizes, or in which every
            record pays for itself: it has no one weight per owner.

    >>> plan = Plan(sample_rates=[1, 1], sensitivities=[1, 2], sizes=[40, 60], noise_scale=3, steps=1)
    >>> saturated(plan).sensitivities
    array([1., 1.])
    """
    if type(plan.variant) not in (Variant, Blend):
        raise ValueError(
            "plan must have one rate and one sensitivity per owner for all steps: an estimate over all records needs "
            "them; make it with plan_scale, or state that records are alike across owners (assume_alike=True)"
        )
    threshold = best_weights(plan).threshold
    expected = np.where(plan.sizes > 0, plan.sample_rates * plan.sensitivities, 0.0)
    if threshold >= _SAME * expected.max():
        return plan
    rates = np.where(plan.sample_rates > 0, plan.sample_rates, 1.0)
    return plan.lowered(np.minimum(plan.sensitivities, threshold / rates))


def _spread(rates: np.ndarray) -> np.ndarray:
    """Return (1 - q) / q, the variance of a coin over its squared mean; 0 for owners that take no part."""
    return np.where(rates > 0, (1 - rates) / np.where(rates > 0, rates, 1.0), 0.0)
