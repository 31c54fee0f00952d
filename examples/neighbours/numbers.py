"""What comparisons came to as plain numbers: all that tables are made of, for JSON."""

from typing import Any

from examples.neighbours.designs import ACCURACY, AVERAGE, WORST, Setting
from inosgm.experiments import Comparison

MEASURES = (ACCURACY, AVERAGE, WORST)


def numbers_of(setting: Setting, found: Comparison) -> dict[str, Any]:
    """Return what a comparison came to, method by method, seed by seed."""
    return {
        "setting": setting.name,
        "metric": found.metric.value,
        "tune": {path: list(values) for path, values in found.tune.items()},
        "methods": [
            {
                "method": name,
                "data": runs.config.data.name,
                "plan": runs.config.plan.model_dump(mode="json", exclude_defaults=True),
                "accountant": runs.accountant,
                "lr": runs.config.optimizer.lr,
                "tuning": {one.point.name: one.mean(found.metric) for one in runs.tuning},
                "seeds": list(runs.seeds),
                **{measure: [round(value, 4) for value in runs.values(measure)] for measure in MEASURES},
                "groups": {str(label): [round(value, 4) for value in runs.accuracies(label)] for label in found.owners},
                "budgets": [
                    {"owner": str(row["owner"]), "epsilon": row["epsilon"], "spent": round(row["spent"], 4)}
                    for row in runs.owners
                ],
            }
            for name, runs in found.methods.items()
            if runs.curves
        ],
    }
