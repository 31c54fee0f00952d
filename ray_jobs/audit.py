"""An audit on a Ray cluster; `python -m ray_jobs.audit --help`."""

import typer

from inosgm.cli.audit import (
    AttackOption,
    AuditSeedOption,
    CanariesOption,
    ConfidenceOption,
    NoPrivacyOption,
    RunsOption,
    ShadowsOption,
    TargetOption,
    Wish,
    default_store,
    method_of,
    run_audit,
)
from inosgm.cli.options import (
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    DataOption,
    FileOrRun,
    GpusOption,
    JsonOption,
    QuietOption,
    SetOption,
    Voice,
)
from ray_jobs._options import Address, StoreUri, kept, ray_executor

app = typer.Typer(add_completion=False)


@app.command()
def main(
    file: FileOrRun,
    shadows: ShadowsOption = 512,
    store: StoreUri = None,
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
    address: Address = None,
    num_cpus: CpusOption = None,
    num_gpus: GpusOption = None,
    max_concurrent: ConcurrentOption = None,
    attempts: AttemptsOption = None,
) -> None:
    """Audit a method with shadow models that are trained on a Ray, as `inosgm audit`; the same command goes on."""
    config = method_of(file, data_dir, changes)
    executor = ray_executor(address=address, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)
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
    run_audit(config, wish, kept(store, default_store(file, wish)), executor, attempts=attempts or 5)


if __name__ == "__main__":
    from inosgm.cli.program import program as run

    run(app)
