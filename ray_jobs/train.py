"""`inosgm train --seeds` on a Ray cluster; `python -m ray_jobs.train --help`."""

from inosgm.cli.program import program
from inosgm.cli.train import train
from ray_jobs.entry_points import application, on_ray

app = application(on_ray(train, without=("run", "steps", "workers"), seeds=1))

if __name__ == "__main__":
    program(app)
