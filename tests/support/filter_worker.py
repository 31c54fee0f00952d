"""The runs of `training_worker`, with records that pay for themselves."""

import training_worker
from training_worker import LinearTail, Trainer, nn, owners, sgd, torch

from inosgm import plan_individual


def trainer(**more):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))
    plan = plan_individual(owners(), steps=20, clip_norm=0.5, full_norm_fraction=0.3)
    more = {"tail": LinearTail(plan.tail_length(0.3)), "max_physical_batch": 16, **more}
    return Trainer(plan, model, nn.CrossEntropyLoss(), sgd(model.parameters()), **more)


def fit(run, **more):
    before, training_worker.trainer = training_worker.trainer, trainer
    try:
        return training_worker.fit(run, **more)
    finally:
        training_worker.trainer = before


if __name__ == "__main__":
    training_worker.trainer = trainer
    training_worker.main()
