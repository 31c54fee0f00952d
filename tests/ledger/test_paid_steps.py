"""Attacks on what is paid for: steps, stages and losses must cost what was charged, and noise is used once."""

import numpy as np
import pytest
import torch
from torch import nn

from inosgm import Cost, Ledger, Owners, Plan, TrainingConfig
from inosgm import experiments as runs
from inosgm.experiments.task import TrainingTask, spec_of
from inosgm.jobs import Stopped
from inosgm.jobs.work import PrepaidLedger
from inosgm.ledger.refusals import JobMismatch
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.mechanism import INOSGM
from inosgm.methods.asc import AdaptiveShares, plan_asc
from inosgm.methods.baselines import plan_in_turn
from inosgm.planning.choices import Choices
from inosgm.planning.sequence import PlanSequence
from inosgm.planning.variants import GroupSampling
from inosgm.training.group_losses import GroupLosses
from inosgm.training.trainer import Trainer

OWNERS = Owners(of_record=list("aab") * 100, epsilon={"a": 2.0, "b": 1.0}, delta=1e-5)
X, Y = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 2


class Total(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def trainer(plan, **settings):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, owners=OWNERS, **settings)


def fixed_size(rate, size):
    return Plan(
        sample_rates=[rate],
        sensitivities=[1],
        sizes=[size],
        noise_scale=1,
        steps=50,
        variant=GroupSampling(sampling="without_replacement"),
    )


@pytest.mark.parametrize(("rate", "size", "drawn"), [(0.006, 100, 0), (0.36, 10, 3), (3 / 7, 7, 3), (29 / 49, 49, 29)])
def test_a_batch_without_replacement_never_holds_more_than_its_rate(rate, size, drawn):
    mechanism = Total(fixed_size(rate, size), [0] * size)
    assert Inspection(mechanism).draw(np.random.default_rng(0)).size == drawn


def test_whole_numbers_of_records_survive_rounding():
    for size in range(1, 200):
        for count in range(1, size + 1):
            assert int(np.floor(count / size * size * (1 + 1e-11))) == count


def test_stages_that_cost_the_same_are_charged_each():
    first = Plan(sample_rates=[0.5], sensitivities=[1], sizes=[10], noise_scale=2, steps=5)
    second = Plan(sample_rates=[0.5], sensitivities=[1], sizes=[10], noise_scale=2, steps=5, past=[first.segment()])
    ledger = Ledger(owners=Owners(of_record=[0] * 10, epsilon=50.0, delta=1e-5))
    ledger.charge(*PlanSequence((first, second)).costs(job="run"))
    assert ledger.segments(0) == ((0.5, 2.0, 10),)


def test_shares_that_no_plan_can_pay_for_are_refused():
    plan = Plan(sample_rates=[0.5, 0.5], sensitivities=[1, 1], sizes=[4, 4], noise_scale=1, steps=5)
    for rates, bounds in (([0.5, 0.5], [1, -50]), ([-0.5, 0.5], [1, 1]), ([0.5, 0.5], [1, 0]), ([0.5], [1])):
        with pytest.raises(ValueError, match="choice must"):
            plan.with_choice(rates, bounds)
    with pytest.raises(ValueError, match="choices must have one column per owner"):
        Plan(
            sample_rates=[0.1, 0.1],
            sensitivities=[1, 1],
            sizes=[4, 4],
            noise_scale=1,
            steps=5,
            variant=GroupSampling(choices=Choices(sample_rates=[[0.1], [0.2]], sensitivities=[[1], [1]])),
        )


def test_what_a_job_paid_once_lets_one_noise_through():
    def cost(job, step=0, steps=5):
        return Cost(labels=(0,), sample_rates=[0.1], noise_multipliers=[2.0], step=step, steps=steps, job=job)

    once, twice = PrepaidLedger((cost("job"),)), PrepaidLedger((cost("job"), cost("job")))
    for paid in (once, twice):
        paid.charge(cost("a", 0, 2))
        paid.charge(cost("a", 2, 3))
        for again in (cost("a"), cost("a", 4, 1)):  # another sum may be meant: a retry is another attempt
            with pytest.raises(JobMismatch, match="was released before in this attempt"):
                paid.charge(again)
    with pytest.raises(JobMismatch):
        once.charge(cost("b"))
    twice.charge(cost("b"))
    with pytest.raises(JobMismatch):
        twice.charge(cost("c"))


def test_a_run_goes_on_from_the_end_of_a_stage_with_its_own_noise(tmp_path):
    course = PlanSequence(plan_in_turn(OWNERS, steps=6, expected_batch=40, clip_norm=1.0))
    trainer(course).fit(X, Y, run=tmp_path, steps=course.first.steps, progress=False)
    trainer(course).fit(X, Y, run=tmp_path, steps=1, progress=False)
    last = trainer(course)
    last.fit(X, Y, run=tmp_path, progress=False)
    assert last.steps_done == course.steps
    jobs = {charge.job for charge in Ledger(tmp_path / "ledger").history()}
    assert len(jobs) == len(course.plans)
    assert all(job.startswith("key-") for job in jobs)


class Centred(nn.Linear):
    """Treats records apart in training mode, and in evaluation mode does not."""

    def forward(self, x):
        return super().forward(x if self.training else x - x.mean(0))


def test_losses_are_not_released_by_a_model_that_mixes_records_when_it_is_evaluated():
    plan = plan_asc(OWNERS, steps=3, expected_batch=40, clip_norm=1.0, every=2)
    model = Centred(4, 2)
    steered = Trainer(
        plan,
        model,
        nn.CrossEntropyLoss(),
        torch.optim.SGD(model.parameters(), lr=1.0),
        owners=OWNERS,
        steering=AdaptiveShares(plan, every=2, temperature=1.0),
    )
    with pytest.raises(ValueError, match="in evaluation mode"):
        steered.step(X, Y)
    assert not steered.released


class Interrupted:
    """An attempt at a job that is stopped after every step."""

    def __init__(self, task, spec):
        self.number, self.key, self.saved, self._paid = 1, 5, None, task.cost(spec)

    @property
    def ledger(self):
        return PrepaidLedger(self._paid)  # a new one for every attempt

    def stopping(self):
        return True

    def latest(self):
        return self.saved

    def save(self, step, content):
        self.saved = content


def test_a_job_that_is_stopped_at_the_end_of_a_stage_is_not_done():
    config = TrainingConfig.from_dict(
        {
            "data": {"name": "breast_cancer"},
            "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 1}, "delta": 1e-4},
            "model": {"name": "logistic_regression"},
            "plan": {"method": "in_turn", "steps": 3, "expected_batch": 64, "clip_norm": 2.0},
            "optimizer": {"name": "SGD", "lr": 1.0},
        }
    )
    task = TrainingTask(runs.read(config))
    spec = spec_of(config, 0, data_fingerprint="made up")
    attempt, stops, result = Interrupted(task, spec), 0, None
    while result is None:
        try:
            result = task.run(spec, attempt)
        except Stopped:
            stops += 1
    assert stops == 2
    assert result.values["steps"] == 3


def test_losses_of_a_step_that_is_tried_again_have_no_noise_twice(tmp_path, monkeypatch):
    plan, sums = plan_asc(OWNERS, steps=7, expected_batch=40, clip_norm=1.0, every=2), {}
    noisy = GroupLosses._noisy

    def seen(self, total, noise):
        sums.setdefault(self.released, set()).add(total.tobytes())
        return noisy(self, total, noise)

    monkeypatch.setattr(GroupLosses, "_noisy", seen)

    class Full:
        left = 3

        def charge(self, cost):
            self.left -= cost.steps == 1
            if self.left == -1:
                raise OSError("disk full")

    ledger = Full()

    def made():
        return trainer(
            plan, steering=AdaptiveShares(plan, every=2, temperature=1.0), key=7, ledger=ledger, charge_steps=1
        )

    one = made()
    one.fit(X, Y, run=tmp_path, steps=2, checkpoint_every=1, progress=False)
    ledger.left = 0
    with pytest.raises(OSError, match="disk full"):
        one.step(X, Y)
    for _ in range(4):
        one.step(X, Y)
    made().fit(X, Y, run=tmp_path, progress=False)
    assert sorted(sums) == [1, 2, 3]
    assert all(len(some) == 1 for some in sums.values())
