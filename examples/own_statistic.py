"""Your own statistic in ten lines: the typical size of the largest tumours, with a stricter budget for malignant ones.

Every record counts once. The tail gives up the lower four fifths of the records, wherever they are.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

from inosgm import HardTail, Ledger, Owners, certify, plan_scale
from inosgm.statistics import Statistic
from inosgm.statistics.answering import ask
from inosgm.statistics.bounds import Bounds
from inosgm.statistics.queries import single


class LargestTypical(Statistic):
    """The geometric mean of the largest values: a record contributes its logarithm, and the smallest are given up."""

    name = "largest-typical"

    def __init__(self, plan, owners=None, *, bounds, level, **options):
        self.logs = Bounds.of(np.log(bounds))
        super().__init__(plan, owners, tail=HardTail(self.tail_length(plan, level)), **options)

    def contributions(self, batch):
        """Return logarithms, from -1 at the lower bound to 1 at the upper one."""
        return self.logs.shares(np.log(batch))

    scores = contributions

    def estimate(self):
        """Return what the noisy sum of logarithms says."""
        value = np.exp(self.logs.middle + self.logs.half * float(self.observed[0]) / self.total)
        error = value * self.logs.half * self.noise / self.total
        return self.estimated(value, error, "geometric mean of the largest fifth of the values,")


def main() -> None:
    """Have the certifier look for a leak, ask once, and show what it cost."""
    table = load_breast_cancer()
    areas = table.data[:, list(table.feature_names).index("mean area")]
    owners = Owners(of_record=table.target_names[table.target], epsilon={"benign": 4.0, "malignant": 2.0}, delta=1e-5)
    public = {"bounds": (100.0, 2600.0), "level": 0.8}  # square millimetres
    plan = plan_scale(owners, steps=1, expected_batch=owners.n_records, clip_norm=1.0)
    made_up = np.random.default_rng(0).uniform(100, 2600, areas.size)
    assert certify(LargestTypical(plan, owners, **public), made_up, evaluations=300).holds()

    ledger = Ledger(owners=owners)
    print(ask(single(LargestTypical), areas, owners, ledger=ledger, **public))
    print(ledger.report())


if __name__ == "__main__":
    main()
