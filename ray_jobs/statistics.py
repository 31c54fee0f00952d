"""Questions about tables on a Ray cluster; `python -m ray_jobs.statistics --help`."""

from typing import Any

from inosgm.cli.options import refuse
from inosgm.cli.stats import commands
from ray_jobs._options import kept
from ray_jobs.data_executor import RayDataExecutor


def workers(processes: int | None, **ray: Any) -> RayDataExecutor:
    """Return who works: a Ray, wherever it is found."""
    refuse("does not go with Ray, which has workers of its own: --max-concurrent", processes=processes)
    return RayDataExecutor(**{name: value for name, value in ray.items() if value is not None})


app = commands(workers, kept)

if __name__ == "__main__":
    from inosgm.cli.program import program as run

    run(app)
