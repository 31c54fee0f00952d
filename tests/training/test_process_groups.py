import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from worker_group import run_group

from inosgm import Plan, Trainer

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = np.arange(20) % 2


class Ledgerlike:
    """Counts charges."""

    charges = 0

    def charge(self, cost):
        self.charges += 1


def trainer(wrap=lambda model: model, **more):
    plan = Plan(sample_rates=[0.5], sensitivities=[1.0], sizes=[20], noise_scale=1.0, steps=3)
    model = wrap(nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, owners=[0] * 20, key=1, **more)


def test_each_of_two_ranks_would_train_a_model_of_its_own_and_is_refused():
    def member(rank):
        with pytest.raises(RuntimeError, match="process group of 2 ranks"):
            trainer()
        with pytest.raises(TypeError, match="DistributedDataParallel"):
            trainer(DistributedDataParallel)
        with pytest.raises(TypeError, match="inner is a DistributedDataParallel"):
            trainer(lambda model: Outer(DistributedDataParallel(model)))
        return "refused"

    assert run_group(2, member) == ["refused"] * 2


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def test_a_group_that_is_initialised_after_the_trainer_is_refused_before_anything_is_charged():
    ledger = Ledgerlike()
    made = trainer(ledger=ledger)  # before the fork, when there is no group

    def member(rank):
        with pytest.raises(RuntimeError, match="process group of 2 ranks"):
            made.step(X, Y)
        with pytest.raises(RuntimeError, match="process group of 2 ranks"):
            made.fit(X, Y, progress=False)
        return ledger.charges, made.released

    assert run_group(2, member) == [(0, 0)] * 2


def test_sharded_modules_are_refused_and_a_group_of_one_rank_is_not():
    def member(rank):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        with pytest.raises(TypeError, match="FSDPModule"):
            trainer(lambda model: fully_shard(model, mesh=init_device_mesh("cpu", (1,))))
        made = trainer()
        made.step(X, Y)
        return made.released

    assert run_group(1, member) == [1]
