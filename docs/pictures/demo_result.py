"""Take the numbers of a demonstration for the README: `python docs/pictures/demo_result.py demo` writes demo.json.

`draw.py` draws them, and a test compares the table of the README with them.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from inosgm import Plan
from inosgm.experiments import Comparison
from inosgm.experiments.building import build
from inosgm.experiments.methods import title_of
from inosgm.jobs import Store

FILE = Path(__file__).with_name("demo.json")


def numbers_of(found: Comparison, plan: Plan) -> dict[str, Any]:
    """Return what the picture shows: owners from the strictest on, and means over seeds for each method."""
    labels = list(plan.labels)
    held = plan.sizes / plan.sizes.sum()
    return {
        "owners": labels,
        "epsilon": plan.epsilon.tolist(),
        "share of records": held.round(4).tolist(),
        "share of a batch": plan.batch_shares.round(4).tolist(),
        "seeds": len(next(iter(found.methods.values())).seeds),
        "methods": {title_of(method.config): _measures(method, labels) for method in found.methods.values()},
    }


def _measures(method: Any, labels: list[Any]) -> dict[str, Any]:
    recalls = [method.accuracies(label) for label in labels]
    numbers = {
        "everyone": method.values("balanced_accuracy"),
        "strictest": recalls[0],
        "worst": [min(run) for run in zip(*recalls, strict=True)],
    }
    shown = {name: [round(fmean(values), 4), round(stdev(values), 4)] for name, values in numbers.items()}
    return {"recall": [round(fmean(values), 4) for values in recalls], **shown}


if __name__ == "__main__":
    found = Comparison.of(Store(Path(sys.argv[1]) / "comparison"))
    plan = build(found.methods["ino-sgd-adjusted"].config).plan
    FILE.write_text(json.dumps(numbers_of(found, plan), indent=1) + "\n", encoding="utf-8")
