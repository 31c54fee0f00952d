import os
import sys
from pathlib import Path

import patience  # noqa: F401  # of Ray, with a busy machine
import pytest
from hypothesis import settings

pytest_plugins = ["leftovers", "processes"]

settings.register_profile("inosgm", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("inosgm")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest has a worker per core; more threads only get in each other's way
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # virtual machines may claim AMX and crash on bfloat16

SHARED_DATA = Path(os.environ.get("INOSGM_DATA") or Path(__file__).parents[2] / "shared" / "data")


TOGETHER = ("test_comparing", "test_demo", "test_report")
"""Files whose tests look at one thing that takes its time to make: one process makes it, once."""


def pytest_xdist_auto_num_workers():
    """Say how many processes `-n auto` starts: one more than cores, since tests of Ray and of kills mostly wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.path.name.startswith("test_ray_"))  # what takes longest is not begun last
    for item in items:
        if item.path.stem.startswith("test_ray_"):
            item.add_marker(pytest.mark.xdist_group("ray"))  # one cluster at a time: several starve each other
        elif item.path.stem in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    if not SHARED_DATA.is_dir():
        for item in items:
            if item.get_closest_marker("shared_data"):
                item.add_marker(pytest.mark.skip(reason="no ../shared/data, and INOSGM_DATA names no directory"))


@pytest.fixture
def shared_data():
    """The directory of real data files, for tests marked `shared_data`."""
    return SHARED_DATA


@pytest.fixture(scope="module")
def embedded_ray():
    """A Ray of this process alone, with four CPUs and two GPUs that it only believes in; what Ray says about it."""
    import ray

    tests = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    context = ray.init(
        "local",
        num_cpus=4,
        num_gpus=2,
        include_dashboard=True,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": tests},
        _system_config={"metrics_report_interval_ms": 500},
    )
    yield context.address_info
    ray.shutdown()


@pytest.fixture
def program(monkeypatch, capsys):
    """The program in this process, whose time is not spent on imports: returns exit code, stdout and stderr."""
    from inosgm.cli import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["inosgm", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        told = capsys.readouterr()
        return end.value.code, told.out, told.err

    return run
