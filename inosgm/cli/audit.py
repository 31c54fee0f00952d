"""The command that audits a method."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.cli.options import (
    AddressOption,
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    DataOption,
    FileOrRun,
    GpusOption,
    JsonOption,
    ProcessesOption,
    QuietOption,
    SetOption,
    StoreOption,
    Voice,
    executor_of,
)
from inosgm.cli.training import configuration

if TYPE_CHECKING:
    from inosgm.audit.report import Audit
    from inosgm.audit.study import ShadowStudy
    from inosgm.experiments.config import TrainingConfig
    from inosgm.jobs import Executor, Store

CONTRADICTED = 3
"""The exit code of an audit that contradicts a promise."""

ShadowsOption = Annotated[int, typer.Option("--shadows", min=1, help="How many shadow models.")]
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
    int, typer.Option("--runs", min=0, help="Runs of the mechanism itself for each owner's bound; 0: no new ones.")
]


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
    voice: Voice


def audit(
    file: FileOrRun,
    shadows: ShadowsOption = 512,
    store: StoreOption = None,
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
    config = method_of(file, data_dir, changes)
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
        voice=Voice(as_json=as_json, quiet=quiet),
    )
    place = store or str(Path("runs") / default_store(file, wish))
    run_audit(config, wish, place, executor_of(processes, address, **ray), attempts=attempts or 5)


def method_of(file: Path, data_dir: Path | None, changes: list[str] | None) -> "TrainingConfig":
    """Return the method under audit: that of a file, or of a run directory."""
    if file.is_dir():
        from inosgm.experiments import directory
        from inosgm.experiments.training import configuration_in

        configuration_in(file)
        file /= directory.NAME
    return configuration(file, None, data_dir, None, changes)


def default_store(file: Path, wish: Wish) -> str:
    """Return what a store is called if no other name is given: audits that differ have stores that do."""
    name = file.resolve().name if file.is_dir() else file.stem
    parts = ["audit", *["no-privacy"] * wish.no_privacy]
    parts += [f"{what}{number}" for what, number in (("seed", wish.seed), ("canaries", wish.canaries)) if number]
    return "-".join([name, *parts])


def run_audit(config: "TrainingConfig", wish: Wish, store: str, executor: "Executor", *, attempts: int) -> None:
    """Train what is missing, attack, say what came out and write it into the store.

    It ends with 130 if interrupted, with 3 if a promise is contradicted, else with 1 if a shadow model has failed.
    """
    from inosgm.audit.auditing import attack, require_runs
    from inosgm.audit.study import ShadowStudy

    attacks = chosen(wish.attack)
    require_runs(wish.runs)
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
    wish.voice.tell(f"{_left(study)} are to be trained")
    with _interruptible(study, store):
        outcome = study.run(executor, attempts=attempts, progress=not wish.voice.quiet)
    found: Audit | None = None
    try:
        if outcome.done:
            found = attack(
                study,
                attacks=attacks,
                targets=None if wish.target is None else (wish.target,),
                confidence=wish.confidence,
                runs=wish.runs,
                progress=not wish.voice.quiet,
            )
            _show(found, study.store, store, wish.voice)
    except KeyboardInterrupt:
        kept = "all shadow models that are done are kept; the same command attacks again"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(130) from None
    finally:  # also where stdout does not take the table
        for job, line in outcome.failed.items():
            typer.echo(f"failed: job {job}: {line}", err=True)
        if outcome.failed:
            typer.echo(f"why, in full: inosgm jobs status {store} --tracebacks", err=True)
        if found is not None:
            end_if_contradicted(found)
    if outcome.failed:
        raise typer.Exit(1)


def end_if_contradicted(found: "Audit") -> None:
    """Say which promises an audit contradicts, and end with 3 if it does."""
    for line in found.contradictions:
        typer.echo(f"contradicted: {line}", err=True)
    if found.contradictions:
        raise typer.Exit(CONTRADICTED)


def chosen(names: list[str] | None) -> tuple[str, ...]:
    """Return the attacks to make, all if none are named; raise for others before anything is trained."""
    from inosgm.audit.attacks import ATTACKS

    for name in names or ():
        if name not in ATTACKS:
            raise ValueError(f"--attack must be one of {', '.join(ATTACKS)}, got {name!r}")
    return tuple(names or ATTACKS)


def _left(study: "ShadowStudy") -> str:
    return f"{study.left()} of {study.asked} shadow models"


@contextmanager
def _interruptible(study: "ShadowStudy", place: str) -> Iterator[None]:
    """End with 130 if the training that is done here is interrupted."""
    from inosgm.jobs import Interrupted

    try:
        yield
    except Interrupted:
        left = f"{_left(study)} are left in {place}"
        typer.echo(f"interrupted: {left}; the same command goes on with them", err=True)
        raise typer.Exit(130) from None


def _show(found: "Audit", store: "Store", place: str, voice: Voice) -> None:
    """Write what was found into the store, or say why that cannot be, and show it."""
    from inosgm.audit.report import FILES

    written = True
    try:
        found.write(store)
    except OSError as error:
        written = False
        typer.echo(f"not written to {place}: {error}", err=True)
    voice.result(found.table, lambda: {"store": place, **found.to_dict()})
    if written:
        voice.tell(f"written to {place}: {', '.join(FILES)}")
