"""One configuration, many seeds, on a Ray cluster; `python -m ray_jobs.train --help`."""

from typing import Annotated

import typer

from inosgm.cli.options import (
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    DataOption,
    File,
    GpusOption,
    JsonOption,
    QuietOption,
    SeedOption,
    SetOption,
    Voice,
)
from inosgm.cli.seeds import train_seeds
from inosgm.cli.training import configuration
from ray_jobs._options import Address, StoreUri, kept, ray_executor

app = typer.Typer(add_completion=False)


@app.command()
def main(
    file: File,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many runs, whose seeds follow from the file's.")] = 1,
    store: StoreUri = None,
    address: Address = None,
    num_cpus: CpusOption = None,
    num_gpus: GpusOption = None,
    max_concurrent: ConcurrentOption = None,
    attempts: AttemptsOption = None,
    changes: SetOption = None,
    seed: SeedOption = None,
    data_dir: DataOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a configuration with many seeds on a Ray, as `inosgm train --seeds`; the same command goes on with it."""
    config = configuration(file, None, data_dir, seed, changes).model_copy(update={"run": None})
    executor = ray_executor(address=address, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)
    place = kept(store, f"{file.stem}-seeds")
    train_seeds(config, seeds, place, executor, attempts=attempts or 5, voice=Voice(as_json=as_json, quiet=quiet))


if __name__ == "__main__":
    from inosgm.cli.program import program as run

    run(app)
