"""A warning about owners that a plan gives little of every batch, with a remedy."""

import numpy as np

from inosgm.datasets import Dataset
from inosgm.experiments.adjusting import class_shares
from inosgm.experiments.config import TrainingConfig
from inosgm.planning.sequence import PlanSequence

LEAST_SHARE = 1 / 3
"""An owner that fills less of an expected batch than this part of its share of the records is warned about."""

SHOWN = 3
"""Largest number of owners that the warning names."""

GUIDE = "docs/guides/strict_owners.md"


def small_shares_warning(config: TrainingConfig, dataset: Dataset, course: PlanSequence) -> str:
    """Return a warning about owners whose share of a batch is small beside their share of the records, or nothing.

    All numbers are those of the plans, which are public. A configuration with an adjustment has the remedy, and gets no
    warning.

    Args:
        config: What is trained.
        dataset: Names the classes.
        course: The plans of the run.
    """
    if config.adjustment is not None or config.plan.by_votes:
        return ""
    steps = np.array([plan.steps for plan in course.plans])
    filled = np.average([plan.batch_shares for plan in course.plans], axis=0, weights=steps)
    held = course.first.sizes / course.first.sizes.sum()
    small = np.flatnonzero(filled < LEAST_SHARE * held)
    if not small.size:
        return ""
    worst = small[np.argsort(filled[small] / held[small], kind="stable")]
    labels = course.first.labels
    named = [f"{labels[n]} ({filled[n]:.1%} of a batch, {held[n]:.1%} of the records)" for n in worst[:SHOWN]]
    named += [f"and {worst.size - SHOWN} more"] * (worst.size > SHOWN)
    owners = "owner" if worst.size == 1 else "owners"
    return (
        f"WARNING: the plan gives {owners} {', '.join(named)} less than a third of their share of every batch, so the "
        f"model may serve them badly: {_remedy(config, dataset, course)} ({GUIDE})"
    )


def _remedy(config: TrainingConfig, dataset: Dataset, course: PlanSequence) -> str:
    """Return what to do about it."""
    try:
        class_shares(config, dataset, course.first.labels)
    except ValueError:  # owners do not hold classes of their own
        return (
            "if owners hold different mixes of classes, set adjustment with class_shares, which must be public; "
            "if they hold records of other kinds, compare plan.lower and dp-sgd"
        )
    return "set adjustment, such as {loss: 1, after: 0.5}, which corrects for it at no cost in privacy"
