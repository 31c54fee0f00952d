"""What else was tried with the best point of a method: averages of the parameters, blended plans, other offsets,
undersampling, and other forms and orders of the tail."""

from collections.abc import Mapping
from dataclasses import replace

from examples.strict_study.points import RATES, Point
from examples.strict_study.runs import Runs
from examples.strict_study.tuning import Choice

AVERAGING = (0.8, 0.9, 0.95, 0.98)
VARIED = ("INO-SGD (SCALE) + c", "INO-SGD (SCALE)", "IDP-SGD (SCALE)")
BLENDS = (0.25, 0.5, 0.75)


def variants(choices: Mapping[str, Choice]) -> dict[str, list[Point]]:
    """Return variants of the best points, by what they change."""
    point, tailed, plain = (choices[name].point for name in VARIED)
    rates = (point.rate, RATES[RATES.index(point.rate) + 1])
    return {
        "averages": [replace(point, averaging=decay, rate=rate) for decay in AVERAGING for rate in rates],
        "blends": [replace(point, plan=f"blend {weight}") for weight in BLENDS],
        "offsets": [replace(point, leveled=True, inside=inside) for inside in (0.5, 1.0, 1.5, 2.0)],
        "undersampling": [replace(plain, plan=f"undersampled {share}") for share in (0.1, 0.3, 0.5)],
        "forms": [replace(tailed, form=form) for form in ("hard", "steps", "beta 0.5 2", "beta 2 0.5")],
        "orders": [replace(tailed, order=order) for order in ("ascending", "random")],
    }


def extras(runs: Runs, choices: Mapping[str, Choice]) -> None:
    """Run the variants: with the tuning seeds, which choose among them, and with the seeds that are reported."""
    points = [point for some in variants(choices).values() for point in some]
    runs.finish(points, (*runs.task.tuning_seeds, *runs.task.seeds))
