"""What else was tried, beside the best points: averages of parameters, blends, other offsets, tails and orders."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from examples.strict_study.points import RATES, Point
from examples.strict_study.runs import Runs
from examples.strict_study.tuning import Choice

IDP, INO = "IDP-SGD (SCALE)", "INO-SGD (SCALE)"
AVERAGING = (0.8, 0.9, 0.95, 0.98)
BLENDS = (0.25, 0.5, 0.75)
UNDERSAMPLED = (0.1, 0.3, 0.5)
CLIPS = ("own 0.1", "own 0.3", "common 0.1", "common 0.3", "common 1")
LEARNT = (0.05, 0.2)
FORMS = ("linear", "hard", "steps", "beta 0.5 2", "beta 2 0.5")
ORDERS = ("ascending", "random")
TAIL = 0.5
"""The tail of other forms and orders without the correction: tuning chooses tails that are too short to tell."""


class Variant(NamedTuple):
    """Points that change one thing; the tuning seeds choose among them.

    Attributes:
        title: What is changed.
        base: The method that it is compared with.
        points: The points.
    """

    title: str
    base: str
    points: list[Point]

    @property
    def corrected(self) -> bool:
        """Whether strengths after training are chosen as well."""
        return self.base.endswith("+ c")


def variants(choices: Mapping[str, Choice]) -> list[Variant]:
    """Return what is tried."""
    found = []
    for base in (f"{INO} + c", f"{IDP} + c"):
        point = choices[base].point
        rates = (point.rate, RATES[RATES.index(point.rate) + 1])
        averages = [replace(point, averaging=decay, rate=rate) for decay in AVERAGING for rate in rates]
        found.append(Variant("average of the parameters", base, averages))
        found.append(Variant("blended plan", base, [replace(point, plan=f"blend {weight}") for weight in BLENDS]))
    best, tailed, plain = (choices[name].point for name in (f"{INO} + c", INO, IDP))
    leveled = [replace(best, leveled=True, inside=inside) for inside in (0.0, 0.5, 1.0)]
    found.append(Variant("offsets for the mass that the tail takes", f"{INO} + c", leveled))
    found += [Variant(f"{order} order", f"{INO} + c", [replace(best, order=order)]) for order in ORDERS]
    found += [Variant(f"tail {TAIL}, {form}", IDP, [replace(tailed, tail=TAIL, form=form)]) for form in FORMS]
    found += [
        Variant(f"tail {TAIL}, {order} order", IDP, [replace(tailed, tail=TAIL, order=order)]) for order in ORDERS
    ]
    for base in (f"{INO} + c", f"{IDP} + c"):
        clipped = [replace(choices[base].point, clip=clip) for clip in CLIPS]
        found.append(Variant("clipped to another norm, then scaled", base, clipped))
    rates = (best.rate, RATES[RATES.index(best.rate) + 1])
    found.append(Variant("five views of a record", f"{INO} + c", [replace(best, rate=r, views=True) for r in rates]))
    for share in LEARNT:
        learnt = replace(choices[f"{IDP} + c"].point, plan=f"learnt {share}")
        found.append(Variant(f"strength learnt from losses, for {share:.0%} of epsilon", f"{IDP} + c", [learnt]))
    for share in UNDERSAMPLED:
        found.append(Variant(f"{share:.0%} undersampled", IDP, [replace(plain, plan=f"undersampled {share}")]))
    return found


def extras(runs: Runs, choices: Mapping[str, Choice]) -> None:
    """Run the variants: with the tuning seeds, which choose among them, and with the seeds that are reported."""
    points = [point for some in variants(choices) for point in some.points]
    runs.finish(points, (*runs.task.tuning_seeds, *runs.task.seeds))
