"""The share of records that satisfy a condition, among all records or among those that satisfy another one."""

from typing import Any

from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import require_indicator
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.means import Mean
from inosgm.statistics.queries import single


class Share(Mean):
    """The share of records with 1 (or True) in a column of zeros and ones: their mean.

    **What it estimates.** That of `Mean`. With a condition (`where=`), the share among the records that satisfy it: the
    ratio of two private counts. Its standard error is that of the delta method, and `details` has Fieller's interval,
    which is also true if few records satisfy the condition.

    **Bias.** That of the weights, at most `bias_bound`.

    **Guarantee.** That of `Statistic`, in one round; with a condition in two, which share the budget.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        stratified: Estimate a share for each owner.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> round(Share(plan, [0, 0, 0, 0], key=1).run([True, False, True, True]).value, 1)
    0.8
    """

    name = "share"
    key_name = "inosgm.statistics.shares.Share"
    what = "share of records with 1 (or true)"

    def __init__(self, plan: Plan, owners: Owners | Any = None, *, stratified: bool = False, **options: Any) -> None:
        super().__init__(plan, owners, bounds=(0.0, 1.0), stratified=stratified, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but zeros and ones."""
        require_indicator(batch)


def private_share(values: Any, owners: Owners, *, stratified: bool = False, **options: Any) -> Estimate:
    """Return the share of records with 1, or True, in a column of zeros and ones; see `Share`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> from inosgm.statistics.conditions import Condition
    >>> table = {"sex": ["F", "M"] * 500, "pay": [20.0, 40.0, 60.0, 80.0] * 250, "site": ["a"] * 1000}
    >>> owners = Owners(of_record=["a"] * 1000, epsilon=1.0, delta=1e-5)
    >>> asked = {"column": Condition("pay > 50"), "owner": "site", "where": "sex == 'F'"}
    >>> estimate = private_share(table, owners, key=1, **asked)
    >>> abs(estimate.value - 0.5) < 4 * estimate.standard_error
    True
    """
    return answer_query(single(Share), values, owners, stratified=stratified, **options)
