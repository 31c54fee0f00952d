"""The command that audits a method."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm._cli_seeds import (
    AddressOption,
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    GpusOption,
    ProcessesOption,
    executor_of,
)
from inosgm._cli_training import DataOption, File, QuietOption, SetOption, configuration

if TYPE_CHECKING:
    from inosgm.audit.study import ShadowStudy
    from inosgm.config import TrainingConfig
    from inosgm.jobs import Executor

CONTRADICTED = 3
"""The exit code of an audit that contradicts a promise."""

ShadowsOption = Annotated[int, typer.Option("--shadows", min=1, help="How many shadow models.")]
AuditStoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Where they are kept, a path or a URI such as s3://...; else runs/NAME-audit."),
]
AuditSeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Of the audit: who is in which shadow model, and all noise.")
]
NoPrivacyOption = Annotated[
    bool, typer.Option("--no-privacy", help="Train without clipping and noise, for comparison.")
]
CanariesOption = Annotated[
    int, typer.Option("--canaries", min=0, help="Give so many records of each owner a wrong class; attack only these.")
]
TargetOption = Annotated[
    int | None, typer.Option("--target", min=0, help="Attack this shadow model with the others; else each in turn.")
]
AttackOption = Annotated[
    list[str] | None,
    typer.Option("--attack", help="online, online-global, offline-density, offline-tail, loss; else all of them."),
]
ConfidenceOption = Annotated[
    float, typer.Option("--confidence", min=0.5, max=0.999999, help="Of intervals, and of all bounds at once.")
]
RunsOption = Annotated[
    int, typer.Option("--runs", min=0, help="Runs of the mechanism itself for a bound of each owner; 0: none.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Everything but curves, for machines.")]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the command line says about an audit."""

    shadows: int
    seed: int
    no_privacy: bool
    canaries: int
    target: int | None
    attack: list[str] | None
    confidence: float
    runs: int
    quiet: bool
    as_json: bool


def audit(
    file: File,
    shadows: ShadowsOption = 512,
    store: AuditStoreOption = None,
    seed: AuditSeedOption = 0,
    no_privacy: NoPrivacyOption = False,
    canaries: CanariesOption = 0,
    target: TargetOption = None,
    attack: AttackOption = None,
    confidence: ConfidenceOption = 0.95,
    runs: RunsOption = 10_000,
    changes: SetOption = None,
    data_dir: DataOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    processes: ProcessesOption = None,
    address: AddressOption = None,
    num_cpus: CpusOption = None,
    num_gpus: GpusOption = None,
    max_concurrent: ConcurrentOption = None,
    attempts: AttemptsOption = None,
) -> None:
    """Attack a method with shadow models and its mechanism with canaries; exit code 3 if a promise does not hold.

    NOT PRIVATE: what is printed and written is as secret as the records. The same command goes on with an audit that
    was stopped, and only attacks again if all shadow models are there.
    """
    config = configuration(file, None, data_dir, None, changes)
    place = store or str(Path("runs") / default_store(file, no_privacy))
    ray = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_concurrent": max_concurrent}
    wish = Wish(
        shadows=shadows,
        seed=seed,
        no_privacy=no_privacy,
        canaries=canaries,
        target=target,
        attack=attack,
        confidence=confidence,
        runs=runs,
        quiet=quiet,
        as_json=as_json,
    )
    run_audit(config, wish, place, executor_of(processes, address, **ray), attempts=attempts or 5)


def default_store(file: Path, no_privacy: bool) -> str:
    """Return what a store is called if no other name is given."""
    return f"{file.stem}-audit" + "-no-privacy" * no_privacy


def run_audit(config: "TrainingConfig", wish: Wish, store: str, executor: "Executor", *, attempts: int) -> None:
    """Train what is missing, attack, say what came out and write it into the store.

    It ends with 130 if interrupted, with 3 if a promise is contradicted, else with 1 if a shadow model has failed.
    """
    from inosgm.audit.auditing import attacked
    from inosgm.audit.report import FILES
    from inosgm.audit.study import ShadowStudy
    from inosgm.jobs import Interrupted

    attacks = chosen(wish.attack)
    if wish.target is not None and wish.target >= wish.shadows:
        raise ValueError(f"--target must be below the {wish.shadows} shadow models, got {wish.target}")
    study = ShadowStudy(
        config.model_copy(update={"run": None}),
        wish.shadows,
        store=store,
        seed=wish.seed,
        private=not wish.no_privacy,
        canaries=wish.canaries,
    )
    tell(f"{_left(study)} shadow models are to be trained", wish)
    try:
        outcome = study.run(executor, attempts=attempts, progress=not wish.quiet)
    except Interrupted:
        left = f"{_left(study)} shadow models are left in {store}"
        typer.echo(f"interrupted: {left}; the same command goes on with them", err=True)
        raise typer.Exit(130) from None
    contradictions: list[str] = []
    if outcome.done:
        targets = None if wish.target is None else (wish.target,)
        found = attacked(
            study,
            attacks=attacks,
            targets=targets,
            confidence=wish.confidence,
            runs=wish.runs,
            progress=not wish.quiet,
        )
        found.write(study.store)
        typer.echo(json.dumps(found.to_dict(), allow_nan=False) if wish.as_json else found.table())
        tell(f"written to {store}: {', '.join(FILES)}", wish)
        contradictions = found.contradictions
    for job, line in outcome.failed.items():
        typer.echo(f"failed: job {job}: {line}", err=True)
    if outcome.failed:
        typer.echo(f"why, in full: inosgm jobs status {store} --tracebacks", err=True)
    for line in contradictions:
        typer.echo(f"contradicted: {line}", err=True)
    if contradictions or outcome.failed:
        raise typer.Exit(CONTRADICTED if contradictions else 1)


def chosen(names: list[str] | None) -> tuple[str, ...]:
    """Return the attacks to make, all if none are named; raise for others before anything is trained."""
    from inosgm.audit.attacks import ATTACKS

    for name in names or ():
        if name not in ATTACKS:
            raise ValueError(f"--attack must be one of {', '.join(ATTACKS)}, got {name!r}")
    return tuple(names or ATTACKS)


def tell(line: str, wish: Wish) -> None:
    """Say something about the audit that is no result."""
    if not wish.quiet:
        typer.echo(line, err=wish.as_json)


def _left(study: "ShadowStudy") -> str:
    """Say how many shadow models are not trained; whole blocks are, so that more may be missing than are asked for."""
    return f"{min(study.left(), study.asked)} of {study.asked}"
