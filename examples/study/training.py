"""One training run of the study: a pure function of its case and the data."""

import json
import time
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from examples.study.cases import Case
from inosgm import LinearTail, plan_sample, plan_scale, plan_uniform
from inosgm.accounting import ACCOUNTANTS
from inosgm.datasets import load
from inosgm.datasets.settings import SETTINGS, Prepared
from inosgm.training import Trainer, models

PLANS = {"sample": plan_sample, "scale": plan_scale, "uniform": plan_uniform}


def train(case: Case, root: str | None = None) -> dict[str, Any]:
    """Run a case and return what came out, for JSON.

    The noise is keyed by the seed: reproducible, and so not private. That is right for a study on public data only.

    Args:
        case: What to run.
        root: The data directory.

    Returns:
        The case, its plan, the learning curve with every owner's recall, diagnostics on held-out records halfway and at
        the end, and times.
    """
    begun, worked = time.perf_counter(), time.process_time()
    setting, prepared = SETTINGS[case.setting], _prepared(case.setting, root)
    data, arm = prepared.dataset, case.arm
    plan = PLANS[arm.plan](
        prepared.owners,
        steps=case.steps,
        expected_batch=case.expected_batch,
        clip_norm=case.clip_norm,
        accountant=ACCOUNTANTS[arm.accountant],
    )
    model = models.make(
        setting.model,
        classes=setting.classes,
        input_shape=data.input_shape,
        seed=case.seed,
        **setting.model_options,
    ).to(memory_format=torch.channels_last)  # pooling is several times faster so
    trainer = Trainer(
        plan,
        model,
        nn.CrossEntropyLoss(),
        torch.optim.SGD(model.parameters(), lr=case.learning_rate),
        tail=LinearTail(plan.tail_length(arm.tail)),
        key=case.seed,
    )
    some = _some(len(data.y_test), case.held_out)
    held_out = (data.x_test[some], data.y_test[some], prepared.groups[some])
    diagnostics = []
    for steps in (case.steps // 2, case.steps - case.steps // 2):
        curve = trainer.fit(data.x, data.y, steps=steps, held_out=held_out, progress=False)
        found = trainer.diagnose(*held_out[:2], owners=held_out[2])
        diagnostics.append({"step": trainer.steps_done, **found.to_dict()})
    return {
        "id": case.id,
        "case": asdict(case),
        "method": arm.method,
        "plan": {
            "labels": list(plan.labels),
            "sample_rates": plan.sample_rates.tolist(),
            "sensitivities": plan.sensitivities.tolist(),
            "noise_scale": plan.noise_scale,
            "epsilon": plan.spent().tolist(),
        },
        "curve": json.loads(curve.to_json()),
        "diagnostics": diagnostics,
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": time.process_time() - worked,
    }


@cache
def _prepared(name: str, root: str | None) -> Prepared:
    """Load the data of a setting once per process."""
    setting = SETTINGS[name]
    return setting.prepare(load(setting.dataset, root))


def _some(records: int, wanted: int | None) -> np.ndarray:
    """Return which held-out records are looked at: always the same."""
    if wanted is None or wanted >= records:
        return np.arange(records)
    return np.sort(np.random.default_rng(0).permutation(records)[:wanted])
