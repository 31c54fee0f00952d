"""From a configuration to an audit: train shadow models, attack them, and attack the mechanism."""

import os
from contextlib import nullcontext
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from inosgm._internal.scratch import scratch_directory
from inosgm.audit import _mechanisms
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.claims import claims_of
from inosgm.audit.mechanism_audit import MechanismAudit, audit_mechanism
from inosgm.audit.report import Audit, mechanism_confidence
from inosgm.audit.study import ShadowStudy
from inosgm.experiments.config import TrainingConfig
from inosgm.jobs import Executor, Store

RUNS = 10_000
"""How often the mechanism is run with each canary, and without."""

MAX_AUDITED_CLAIMS = 20
"""How many promises the mechanism is attacked for; each takes seconds."""

FEWEST = 100
"""With fewer runs of the mechanism nothing could come out."""


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

    The same call goes on with shadow models in the store, and trains only those that are missing.

    Args:
        config: The method, with its data and owners; its `run`, `key` and `ledger` are not used.
        shadows: How many shadow models.
        executor: Who trains them: this process if not given, or `ProcessExecutor`, or `ray_jobs.RayExecutor`.
        store: Where they are kept: a path, a URI that fsspec knows, or a Store; nowhere if not given.
        seed: Decides who is a member of which shadow model, and everything else that is random.
        private: False for shadow models without clipping and noise, for comparison.
        canaries: Give so many records of every owner a wrong class, and attack only these.
        runs: How often the mechanism is run for the bound of each owner; 0 for no such bound.
        confidence: That of each interval, and of all lower bounds at once.
        progress: Show how far it has got.

    Returns:
        What was found, by those shadow models that could be trained.

    Raises:
        ValueError: for a configuration that cannot be trained, a store of something else, and too few runs.
        RuntimeError: if no shadow model could be trained.
        Interrupted: after Ctrl-C, when everything that was running has saved how far it had got.
    """
    require_runs(runs)
    with scratch_directory("audit") if store is None else nullcontext(store) as place:
        study = ShadowStudy(config, shadows, store=place, seed=seed, private=private, canaries=canaries)
        outcome = study.run(executor, progress=progress)
        if not outcome.done:
            raise RuntimeError(f"no shadow model could be trained: {'; '.join(outcome.failed.values())}")
        return attacked(study, confidence=confidence, runs=runs, progress=progress)


def attacked(
    study: ShadowStudy,
    *,
    attacks: tuple[str, ...] = tuple(ATTACKS),
    targets: tuple[int, ...] | None = None,
    confidence: float = 0.95,
    runs: int = RUNS,
    progress: bool = True,
) -> Audit:
    """Attack the shadow models of a study that are there, and the mechanism that trains them; see `Audit`.

    What the store knows about the mechanism is taken from there, if there are no runs, or as many with as much
    confidence: the store belongs to one code.
    """
    options: dict[str, Any] = {"attacks": attacks, "targets": targets, "confidence": confidence}
    if runs and study.design.private:
        options["mechanisms"] = mechanism_audits(study, runs, confidence, progress=progress)
    return Audit.of(study.store, study.asked, **options)


def require_runs(runs: int) -> None:
    """Raise for runs of the mechanism that are too few, before anything is trained."""
    if runs and runs < FEWEST:
        raise ValueError(f"runs must be 0, for none, or at least {FEWEST}, got {runs}")


def mechanism_audits(study: ShadowStudy, runs: int, confidence: float, *, progress: bool) -> tuple[MechanismAudit, ...]:
    """Attack the mechanism of a study, unless its store says what comes out, so that all bounds hold at once.

    Of owners to whom the same rate and sensitivity are promised, the first with records stands for all. Of very many
    promises MAX_AUDITED_CLAIMS are looked at, from the smallest to the largest.
    """
    design, plan = study.design, study.design.plan
    asked = (plan.sizes > 0) & (plan.sample_rates > 0)  # who is never drawn has nothing to be told about
    promises = np.column_stack([plan.sample_rates, plan.sensitivities])[asked]
    first = np.unique(promises, axis=0, return_index=True)[1]
    some = np.unique(np.linspace(0, first.size - 1, min(MAX_AUDITED_CLAIMS, first.size)).round().astype(np.int64))
    owners = [plan.labels[place] for place in np.flatnonzero(asked)[np.sort(first[some])]]
    level = mechanism_confidence(confidence, len(owners))
    known, _ = _mechanisms.kept(study.store, claims_of(plan))
    if [(one.owner, one.runs, one.confidence) for one in known] == [(owner, runs, level) for owner in owners]:
        return known
    mechanism = design.mechanism()
    shown = track(owners, "attacking the mechanism", console=Console(stderr=True), disable=not progress)
    return tuple(audit_mechanism(mechanism, owner, runs, confidence=level, seed=design.seed) for owner in shown)
