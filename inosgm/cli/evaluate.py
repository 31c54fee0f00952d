"""`inosgm evaluate`: evaluate the latest checkpoint of a run."""

from inosgm.cli.configuration import configuration, with_data_dir
from inosgm.cli.options import DataOption, FileOrRun, JsonOption, QuietOption, RunOption, SeedOption, SetOption, refuse
from inosgm.cli.output import Output


def evaluate(
    file: FileOrRun,
    run: RunOption = None,
    data_dir: DataOption = None,
    seed: SeedOption = None,
    changes: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate the latest checkpoint of a run on the held-out records, owner by owner."""
    from inosgm import experiments
    from inosgm.experiments.training import configuration_in

    if file.is_dir():
        refuse("goes with a configuration, not with a run directory", run=run, seed=seed, set=changes)
        config = with_data_dir(configuration_in(file), data_dir)
    else:
        config = configuration(file, run, data_dir, seed, changes)
    evaluation = experiments.evaluate(config)
    Output(as_json=as_json, quiet=quiet).result(
        lambda: f"{config.run} after {evaluation.steps_done} steps\n{evaluation.report()}",
        lambda: {"run": config.run, **evaluation.to_dict()},
    )
