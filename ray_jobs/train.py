"""One configuration, many seeds, on a Ray cluster; `python -m ray_jobs.train --help`."""

from typing import Annotated

import typer

from inosgm._cli_seeds import train_seeds
from inosgm._cli_training import DataOption, File, QuietOption, SeedOption, SetOption, configuration
from ray_jobs._options import Address, Attempts, Concurrent, Cpus, Gpus, StoreUri, kept, ray_executor

app = typer.Typer(add_completion=False)


@app.command()
def main(
    file: File,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs, whose seeds follow from the file's.")] = 1,
    store: StoreUri = None,
    address: Address = None,
    num_cpus: Cpus = 1,
    num_gpus: Gpus = 0,
    max_concurrent: Concurrent = None,
    attempts: Attempts = 5,
    changes: SetOption = None,
    seed: SeedOption = None,
    data_dir: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Train a configuration with many seeds on a Ray, as `inosgm train --seeds`; the same command goes on with it."""
    config = configuration(file, None, data_dir, seed, changes).model_copy(update={"run": None})
    executor = ray_executor(address, num_cpus, num_gpus, max_concurrent)
    place = kept(store, f"{file.stem}-seeds")
    train_seeds(config, seeds, place, executor, attempts=attempts, quiet=quiet)


if __name__ == "__main__":
    from inosgm.cli import main as run

    run(app)
