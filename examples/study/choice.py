"""How learning rates and clip norms are chosen: by one criterion, for every arm alike."""

from pathlib import Path
from typing import Any

from examples.study.cases import Arm, Case, Design
from examples.study.runner import result


def criterion(found: dict[str, Any]) -> float:
    """Return what tuning goes by: the balanced accuracy on held-out records at the end of training."""
    return float(found["curve"]["evaluations"][-1]["balanced_accuracy"])


def best(design: Design, arm: Arm, out: Path) -> Case:
    """Return the run of an arm's grid that was best; of equal ones the first."""
    return max(design.grid(design.tuned_as(arm)), key=lambda case: criterion(result(case, out)))


def finals(design: Design, arm: Arm, out: Path) -> list[Case]:
    """Return the runs of an arm that count, one per seed."""
    chosen = best(design, arm, out)
    return design.at((chosen.clip_norm, chosen.learning_rate), arm)


def all_finals(design: Design, out: Path) -> list[Case]:
    """Return the runs that count, seed by seed, so that arms stay comparable if time runs out; tuned ones first."""
    kinds = [[finals(design, arm, out) for arm in design.arms()]]
    kinds += [[design.at(point, arm) for arm in design.arms()] for point in design.fixed]
    return [case for kind in kinds for of_seed in zip(*kind, strict=True) for case in of_seed]
