"""`inosgm audit` on a Ray cluster; `python -m ray_jobs.audit --help`."""

from inosgm.cli.audit import audit
from inosgm.cli.program import program
from ray_jobs.entry_points import application, on_ray

app = application(on_ray(audit))

if __name__ == "__main__":
    program(app)
