"""Audit of somebody's model: it is there already, and its maker promises its two owners epsilon 1 and 10.

Before training you have put canaries among the records, images with a wrong digit, and tossed a coin for each record
that decided whether the maker gets it. Shadow models of the promised method show how it treats every canary, with and
without it; the scores of the model itself are compared with theirs, owner by owner. Here are two models for one
promise: one keeps it, and the maker of the other has forgotten about privacy. Nothing of this is private: keep it to
yourself.
"""

from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from inosgm import LinearTail, Owners, Trainer, plan_sample
from inosgm.audit import ATTACKS, ShadowStudy, claims_of, draws
from inosgm.audit.confidence import confidences
from inosgm.audit.one_run import one_run_bound
from inosgm.audit.roc import success
from inosgm.audit.shadow_study import stored
from inosgm.experiments.config import TrainingConfig

PROMISE = TrainingConfig.from_dict(
    {
        "data": {"name": "digits"},
        "owners": {"fractions": [0.5, 0.5], "epsilon": [1, 10], "delta": 1e-5},
        "model": {"name": "mlp", "options": {"widths": [64]}},
        "plan": {"method": "sample", "steps": 200, "expected_batch": 128, "clip_norm": 1.0},
        "tail": {"kind": "linear", "fraction": 0.4},
        "optimizer": {"name": "SGD", "lr": 2.0},
    }
)


def network() -> nn.Module:
    """Return the model before training."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def kept(x: np.ndarray, y: np.ndarray, labels: np.ndarray, steps: int) -> nn.Module:
    """Train as promised."""
    model = network()
    owners = Owners(of_record=labels, epsilon={0: 1.0, 1: 10.0}, delta=1e-5)
    plan = plan_sample(owners, steps=steps, expected_batch=128, clip_norm=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    trainer = Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, tail=LinearTail(plan.tail_length(0.4)))
    trainer.fit(x, y, progress=False)
    return model


def forgotten(x: np.ndarray, y: np.ndarray, labels: np.ndarray, steps: int) -> nn.Module:
    """Train as everybody does: no clipping, no noise."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.as_tensor(x)), torch.as_tensor(y)).backward()
        optimizer.step()
    return model


def main(shadows: int = 256, steps: int = 200, canaries: int = 250) -> None:
    """Train shadow models of the promised method, and attack both models with them."""
    with TemporaryDirectory() as place:
        study = ShadowStudy(PROMISE.changed({"plan.steps": steps}), shadows, store=place, canaries=canaries)
        study.run(progress=False)
        usual = stored(study.store).shadows
    design = study.design
    pool, labels = design.pool.dataset, np.array(design.plan.labels)[design.owners]
    joined = np.random.default_rng(1).random(labels.size) < 0.5  # each record's coin
    places = draws.canaries(design.seed, design.owners, canaries)
    torch.manual_seed(0)
    print("model      attack         owner  promised  AUC                     epsilon is at least")
    for name, maker in (("kept", kept), ("forgotten", forgotten)):
        model = maker(pool.x[joined], pool.y[joined], labels[joined], steps)
        data = pool.x[places], pool.y[places]
        scores = confidences(model, nn.CrossEntropyLoss(), data, next(model.parameters()))
        for attack in ("online-global", "loss"):
            statistics = ATTACKS[attack].against(usual, scores)
            for claim in claims_of(design.plan):
                own = labels[places] == claim.owner
                found = success(statistics[None, own], joined[places][None, own])
                bound = one_run_bound(statistics[own], joined[places][own], claim, 1 - 0.05 / 8)  # all eight with 95 %
                area = f"{found.auc:.3f} ({found.auc_low:.3f} to {found.auc_high:.3f})"
                verdict = "  CONTRADICTED" if bound.contradicts else ""
                print(
                    f"{name:9}  {attack:13}  {claim.owner:5}  {claim.granted:8g}  {area}  {bound.epsilon:.2f}{verdict}"
                )


if __name__ == "__main__":
    main()
