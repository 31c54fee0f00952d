"""`inosgm audit`: attack a method with shadow models, and its mechanism with canaries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.audit.attack_names import ATTACK_NAMES
from inosgm.cli.configuration import configuration_of_jobs
from inosgm.cli.options import (
    ATTEMPTS,
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
    executor_of,
    store_of,
)
from inosgm.cli.output import Output, interruptible, print_failures

if TYPE_CHECKING:
    from inosgm.audit.report import Audit
    from inosgm.jobs import Store

CONTRADICTED = 3
"""The exit code of an audit that contradicts a guarantee."""


def audit(
    file: FileOrRun,
    shadows: Annotated[int, typer.Option("--shadows", min=1, help="How many shadow models.")] = 512,
    store: StoreOption = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the audit: who is in which shadow model, and all noise.")
    ] = 0,
    no_privacy: Annotated[
        bool, typer.Option("--no-privacy", help="Train without clipping and noise, for comparison.")
    ] = False,
    canaries: Annotated[
        int,
        typer.Option("--canaries", min=0, help="Mislabel this many records of each owner, and attack only these."),
    ] = 0,
    target: Annotated[
        int | None, typer.Option("--target", min=0, help="Attack this shadow model with the others; else each in turn.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help=f"{', '.join(ATTACK_NAMES)}; else all of them."),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", min=0.5, max=0.999999, help="Of intervals, and of all bounds at once.")
    ] = 0.95,
    runs: Annotated[
        int, typer.Option("--runs", min=0, help="Runs of the mechanism itself for each owner's bound; 0: no new ones.")
    ] = 10_000,
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
    """Attack a method with shadow models and its mechanism with canaries; exit code 3 if a guarantee is contradicted.

    NOT PRIVATE: the output and the files are as secret as the records. The same command resumes an audit that was
    stopped; if all shadow models are there, it only attacks again.
    """
    from inosgm.audit.auditing import attack_study, require_runs
    from inosgm.audit.shadow_study import ShadowStudy

    executor = executor_of(processes, address, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)
    attacks = _attacks(attack)
    require_runs(runs)
    if target is not None and target >= shadows:
        raise ValueError(f"--target must be below the {shadows} shadow models, got {target}")
    place = store_of(store, _store_name(file, seed, no_privacy, canaries))
    config = configuration_of_jobs(_configuration_file(file), data_dir, None, changes)
    study = ShadowStudy(config, shadows, store=place, seed=seed, private=not no_privacy, canaries=canaries)
    out = Output(as_json=as_json, quiet=quiet)
    out.note(f"{study.left()} of {study.asked} shadow models are to be trained")
    models = f"of {study.asked} shadow models remain in {place}; the same command resumes them"
    with interruptible(lambda _: f"{study.left()} {models}"):
        outcome = study.run(executor, attempts=attempts or ATTEMPTS, progress=not quiet)
    result: Audit | None = None
    try:
        if outcome.done:
            with interruptible(lambda _: "finished shadow models are kept; the same command attacks again"):
                result = attack_study(
                    study,
                    attacks=attacks,
                    targets=None if target is None else (target,),
                    confidence=confidence,
                    runs=runs,
                    progress=not quiet,
                )
                _show(result, study.store, place, out)
    finally:  # also where stdout cannot be written to
        print_failures([f"job {job}: {line}" for job, line in outcome.failed.items()], place)
        if result is not None:
            end_if_contradicted(result)
    if outcome.failed:
        raise typer.Exit(1)


def end_if_contradicted(result: "Audit") -> None:
    """Print which guarantees an audit contradicts, and end with 3 if there is one."""
    for line in result.contradictions:
        typer.echo(f"contradicted: {line}", err=True)
    if result.contradictions:
        raise typer.Exit(CONTRADICTED)


def _configuration_file(file: Path) -> Path:
    """Return the configuration under audit: a file, or that of a run directory."""
    if not file.is_dir():
        return file
    from inosgm.experiments import directory
    from inosgm.experiments.training import configuration_in

    configuration_in(file)  # raises for a directory of something else
    return file / directory.NAME


def _store_name(file: Path, seed: int, no_privacy: bool, canaries: int) -> str:
    """Return the default name of the store: audits that differ have stores that do."""
    name = file.resolve().name if file.is_dir() else file.stem
    numbers = [f"{what}{number}" for what, number in (("seed", seed), ("canaries", canaries)) if number]
    return "-".join([name, "audit", *["no-privacy"] * no_privacy, *numbers])


def _attacks(names: list[str] | None) -> tuple[str, ...]:
    """Return the attacks to make, all if none are named; raise for unknown names before anything is trained."""
    for name in names or ():
        if name not in ATTACK_NAMES:
            raise ValueError(f"--attack must be one of {', '.join(ATTACK_NAMES)}, got {name!r}")
    return tuple(names or ATTACK_NAMES)


def _show(result: "Audit", store: "Store", place: str, out: Output) -> None:
    """Write a result into the store, or print why that is impossible, and print the result."""
    from inosgm.audit.report import FILES

    written = f"written to {place}: {', '.join(FILES)}"
    try:
        result.write(store)
    except OSError as error:
        typer.echo(f"not written to {place}: {error}", err=True)
        written = ""
    out.result(result.table, lambda: {"store": place, **result.to_dict()})
    if written:
        out.note(written)
