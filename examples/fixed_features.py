"""Fixed features: a private linear model on scattering features of images instead of their pixels.

Ten owners hold one handwritten digit each and grant epsilon 0.2 (of digit 0) to 2 (of 9). The scattering transform is a
public function of each image, so training on it costs what training on pixels costs. It leaves a linear model less to
learn, which counts where noise is large. Both kinds of inputs try the same learning rates, and all results are shown:
nothing is chosen.
"""

import numpy as np

from inosgm import experiments
from inosgm.experiments.config import TrainingConfig

RATES = (0.1, 0.3, 1.0, 3.0, 10.0)


def main(steps: int = 100, data: str = "mnist5k") -> None:
    """Train on pixels and on features, and show how many held-out digits each model classifies correctly."""
    budgets = np.linspace(0.2, 2, 10).tolist()
    config = TrainingConfig.from_dict(
        {
            "data": {"name": data},
            "owners": {"by": "class", "epsilon": budgets, "delta": 1e-5},
            "model": {"name": "logistic_regression"},
            "plan": {"method": "scale", "steps": steps, "expected_batch": 512, "clip_norm": 0.1},
            "tail": {"kind": "linear", "fraction": 0.5},
            "optimizer": {"name": "SGD", "lr": 1.0, "options": {"momentum": 0.9}},
            "key": 1,  # reproducible, and not private: leave it out for records that matter
        }
    )
    print("correct, and of the worst owner, by learning rate: " + "".join(f"{rate:>13g}" for rate in RATES))
    for name, features in (("pixels", None), ("scattering", "scattering")):
        chosen = config.changed({"features": features})
        source = experiments.read(chosen)  # features are computed once, for all runs
        cells = []
        for rate in RATES:
            made = experiments.build(chosen.changed({"optimizer.lr": rate}), source=source)
            found = experiments.train(made).evaluation
            cells.append(f"{found.accuracy:.3f} {found.by_owner[found.worst_owner].accuracy:.3f}")
        print(f"{name:50} " + "".join(f"{cell:>13}" for cell in cells))


if __name__ == "__main__":
    main()
