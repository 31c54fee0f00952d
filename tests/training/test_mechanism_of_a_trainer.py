"""The mechanism of a trainer: a replaced one releases nothing, and whatever it was given is training data."""

import numpy as np
import pytest
import torch
from torch import nn

from inosgm import Ledger, Owners, PlanSequence, Trainer, plan_scale

LABELS = ["a"] * 32 + ["b"] * 32
OWNERS = Owners(of_record=LABELS, epsilon={"a": 2.0, "b": 4.0}, delta=1e-5)
X, Y = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 4))).float(), torch.arange(64) % 2


def plan(owners=OWNERS, steps=4, **more):
    return plan_scale(owners, steps=steps, expected_batch=64, clip_norm=1.0, **more)


def trainer(made=None, **more):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer(plan() if made is None else made, model, nn.CrossEntropyLoss(), optimizer, **more)


def refused(mechanism):
    with pytest.raises(RuntimeError, match=r"follows another mechanism: take trainer\.mechanism anew"):
        mechanism.release((X, Y))


def test_a_mechanism_that_a_run_has_replaced_releases_nothing(tmp_path):
    """Fails on a65a0bc: it released all steps of the plan again, which no ledger knew."""
    made = trainer()
    kept = made.mechanism
    made.fit(X, Y, run=tmp_path / "run", progress=False)
    refused(kept)


@pytest.mark.parametrize("ledger", [False, True])
def test_a_mechanism_whose_plan_was_revised_releases_nothing(ledger):
    """Fails on a65a0bc: the steps that are left of the old plan were released beside those of the new one."""
    made = trainer(ledger=Ledger(owners=OWNERS) if ledger else None)
    kept = made.mechanism
    made.step(X, Y)
    made.revise(Owners(of_record=LABELS, epsilon={"a": 3.0, "b": 4.0}, delta=1e-5))
    refused(kept)
    made.step(X, Y)


def test_a_mechanism_of_an_earlier_stage_releases_nothing():
    first = plan(steps=2)
    roomy = Owners(of_record=LABELS, epsilon=9.0, delta=1e-5)
    made = trainer(PlanSequence((first, plan(roomy, past=[first.segment()]))))
    kept = made.mechanism
    made.fit(X, Y, steps=3, progress=False)
    assert made.mechanism is not kept
    refused(kept)


def test_a_refused_step_does_not_make_training_records_public():
    """Fails on a65a0bc: the refused data took the place of what the trainer was trained on."""
    made = trainer()
    made.step(X, Y)
    with pytest.raises(ValueError, match="one record per owner entry"):
        made.step(torch.randn(10, 4), torch.zeros(10, dtype=torch.long))
    assert made.evaluate(X, Y).private


def test_records_that_only_the_mechanism_has_seen_are_training_records():
    """Fails on a65a0bc: a release without `step` left no mark."""
    made = trainer()
    assert not made.evaluate(X, Y).private
    made.mechanism.release((X, Y))
    assert made.evaluate(X, Y).private
