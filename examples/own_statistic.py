"""Your own statistic in ten lines: the mean of the largest tumours, with a stricter budget for malignant ones.

"Largest" is measured in sensitivity: the tail gives up the lower four fifths of it, in which the less strict owners,
whose records have the larger sensitivity, take more room. So more than a fifth of the records remains.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

from inosgm import INOSGM, HardTail, Ledger, Owners, certify, plan_scale

LARGEST = 2600.0  # a public bound on the area of a tumour, in square millimetres


class LargestMean(INOSGM):
    """Sums of (area, 1); a hard tail leaves only the largest areas, so their ratio is the mean of those."""

    def contributions(self, batch):
        """Return (area, 1), scaled so that no record is longer than the smallest sensitivity."""
        return np.stack([batch, np.ones_like(batch)], axis=1) * self.plan.sensitivities.min() / np.sqrt(2)

    def scores(self, batch):
        """Return the area."""
        return batch


def main() -> None:
    """Release the mean of the upper fifth once, and show what it cost."""
    table = load_breast_cancer()
    areas = np.clip(table.data[:, list(table.feature_names).index("mean area")] / LARGEST, 0, 1)
    labels = table.target_names[table.target]
    owners = Owners(of_record=labels, epsilon={"benign": 4.0, "malignant": 2.0}, delta=1e-5)
    plan = plan_scale(owners, steps=1, expected_batch=500, clip_norm=1.0)
    ledger = Ledger(owners=owners)
    mechanism = LargestMean(plan, owners, tail=HardTail(plan.tail_length(0.8)), ledger=ledger, note="upper fifth")
    made_up = np.random.default_rng(0).uniform(0, 1, areas.size)
    assert certify(mechanism, made_up, evaluations=300).holds()

    total, count = mechanism.release(areas).value
    print(f"mean of the largest: {LARGEST * total / count:.0f} mm2 (private)")
    print(ledger.report())


if __name__ == "__main__":
    main()
