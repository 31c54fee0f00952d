"""`inosgm stats` on a Ray cluster; `python -m ray_jobs.statistics --help`."""

import typer

from inosgm.cli.program import program
from inosgm.cli.stats import QUESTIONS, stats
from ray_jobs.entry_points import on_ray

app = typer.Typer(cls=stats.info.cls, no_args_is_help=True, add_completion=False, help=stats.info.help)
for _command in stats.registered_commands:
    if _command.name not in QUESTIONS:  # several questions at once work in one process
        continue
    assert _command.callback is not None  # a registered command has a function
    app.command(_command.name, cls=_command.cls)(on_ray(_command.callback))

if __name__ == "__main__":
    program(app)
