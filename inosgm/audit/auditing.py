"""An audit from a configuration: train shadow models, attack them, and attack the mechanism."""

import os
from contextlib import nullcontext
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from inosgm._internal.scratch import scratch_directory
from inosgm.audit import mechanism_store
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.claims import claims_of
from inosgm.audit.mechanism_audit import MechanismAudit, audit_mechanism
from inosgm.audit.report import Audit, mechanism_confidence
from inosgm.audit.shadow_study import ShadowStudy
from inosgm.experiments.config import TrainingConfig
from inosgm.jobs import Executor, Store

RUNS = 10_000
"""Default number of runs of the mechanism with each canary, and as many without it."""

MAX_AUDITED_CLAIMS = 20
"""Largest number of promises for which the mechanism is attacked; each takes seconds."""

FEWEST_RUNS = 100
"""Smallest number of runs of the mechanism: fewer cannot refute anything with the usual confidence."""


def lira(
    config: TrainingConfig,
    shadows: int = 512,
    *,
    executor: Executor | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    seed: int = 0,
    private: bool = True,
    canaries: int = 0,
    runs: int = RUNS,
    confidence: float = 0.95,
    progress: bool = True,
) -> Audit:
    """Audit a method: attack shadow models that it has trained, and its mechanism. NOT PRIVATE, and charged to nobody.

    The same call resumes: it trains only the shadow models that are missing in the store.

    Args:
        config: The method, with its data and owners; its `run`, `key` and `ledger` are not used.
        shadows: The number of shadow models.
        executor: Trains them: this process if not given, or `ProcessExecutor`, or `ray_jobs.RayExecutor`.
        store: Keeps them: a path, a URI that fsspec knows, or a Store; they are discarded if not given.
        seed: Decides the members of each shadow model, and everything else that is random.
        private: False for shadow models without clipping and noise, for comparison.
        canaries: The number of records of every owner that get a wrong class; only these are attacked.
        runs: The number of runs of the mechanism for the bound of each owner; 0 for no such bound.
        confidence: The confidence of each interval, and of all lower bounds together.
        progress: Show a progress bar.

    Returns:
        The findings from those shadow models that could be trained.

    Raises:
        ValueError: for a configuration that cannot be trained, a store of something else, and too few runs.
        RuntimeError: if no shadow model could be trained.
        Interrupted: after Ctrl-C, when all running jobs have written a checkpoint.
    """
    require_runs(runs)
    with scratch_directory("audit") if store is None else nullcontext(store) as place:
        study = ShadowStudy(config, shadows, store=place, seed=seed, private=private, canaries=canaries)
        outcome = study.run(executor, progress=progress)
        if not outcome.done:
            raise RuntimeError(f"no shadow model could be trained: {'; '.join(outcome.failed.values())}")
        return attack_study(study, confidence=confidence, runs=runs, progress=progress)


def attack_study(
    study: ShadowStudy,
    *,
    attacks: tuple[str, ...] = tuple(ATTACKS),
    targets: tuple[int, ...] | None = None,
    confidence: float = 0.95,
    runs: int = RUNS,
    progress: bool = True,
) -> Audit:
    """Attack the trained shadow models of a study, and the mechanism that trains them; see `Audit`.

    Results about the mechanism are reused from the store if `runs` is 0, or if they have as many runs and the same
    confidence: a store belongs to one version of the code.
    """
    options: dict[str, Any] = {"attacks": attacks, "targets": targets, "confidence": confidence}
    if runs and study.design.private:
        options["mechanisms"] = mechanism_audits(study, runs, confidence, progress=progress)
    return Audit.of(study.store, study.asked, **options)


def require_runs(runs: int) -> None:
    """Raise if the number of runs of the mechanism is too small, before anything is trained."""
    if runs and runs < FEWEST_RUNS:
        raise ValueError(f"runs must be 0, for none, or at least {FEWEST_RUNS}, got {runs}")


def mechanism_audits(study: ShadowStudy, runs: int, confidence: float, *, progress: bool) -> tuple[MechanismAudit, ...]:
    """Attack the mechanism of a study, or reuse the results in its store, so that all bounds hold at once.

    The first owner with records stands for all that have the same rate and sensitivity. Of very many such promises,
    MAX_AUDITED_CLAIMS are attacked, evenly spaced from the smallest to the largest.
    """
    design, plan = study.design, study.design.plan
    asked = (plan.sizes > 0) & (plan.sample_rates > 0)  # a record that is never drawn cannot leak
    promises = np.column_stack([plan.sample_rates, plan.sensitivities])[asked]
    first = np.unique(promises, axis=0, return_index=True)[1]
    spaced = np.unique(np.linspace(0, first.size - 1, min(MAX_AUDITED_CLAIMS, first.size)).round().astype(np.int64))
    owners = [plan.labels[index] for index in np.flatnonzero(asked)[np.sort(first[spaced])]]
    level = mechanism_confidence(confidence, len(owners))
    known, _ = mechanism_store.kept(study.store, claims_of(plan))
    if [(one.owner, one.runs, one.confidence) for one in known] == [(owner, runs, level) for owner in owners]:
        return known
    mechanism = design.mechanism()
    shown = track(owners, "attacking the mechanism", console=Console(stderr=True), disable=not progress)
    return tuple(audit_mechanism(mechanism, owner, runs, confidence=level, seed=design.seed) for owner in shown)
