import gc
import os
import signal
import sys
from pathlib import Path

import patience  # noqa: F401  # of Ray, with a busy machine
import pytest
from hypothesis import settings

pytest_plugins = ["grouping", "leftovers", "processes"]

# A shell ignores SIGINT for what it starts in the background, and children inherit that: tests of Ctrl-C would fail.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("inosgm", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("inosgm")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest has a worker per core; more threads only get in each other's way
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # virtual machines may claim AMX and crash on bfloat16

for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PYTHONWARNINGS"):
    os.environ.pop(name, None)  # which Ray is found and how wide tables are is not up to who runs the tests

ROOT = Path(__file__).parents[1]
os.environ["PYTHONPATH"] = os.pathsep.join(  # processes of tests run the code of this tree, and find what helps tests
    filter(None, [str(ROOT / "tests" / "support"), str(ROOT), os.environ.get("PYTHONPATH")])
)

SHARED_DATA = Path(os.environ.get("INOSGM_DATA") or ROOT.parent / "shared" / "data")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect no garbage while modules are imported, and let later collections leave out what these have made.

    Modules live as long as the process. Looking through their 700,000 objects takes 0.4 s each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    if not SHARED_DATA.is_dir():
        for item in items:
            if item.get_closest_marker("shared_data"):
                item.add_marker(pytest.mark.skip(reason="no ../shared/data, and INOSGM_DATA names no directory"))


@pytest.fixture
def shared_data():
    """The directory of real data files, for tests marked `shared_data`."""
    return SHARED_DATA


@pytest.fixture(scope="session")
def embedded_ray():
    """A Ray for all tests that use one, with four CPUs and two GPUs that it believes in; what Ray says about it."""
    import ray

    context = ray.init(
        "local",
        num_cpus=4,
        num_gpus=2,
        include_dashboard=True,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config={"metrics_report_interval_ms": 500},
    )
    yield context.address_info
    ray.shutdown()


@pytest.fixture
def program(monkeypatch, capsys):
    """The program in this process, whose time is not spent on imports: returns exit code, stdout and stderr."""
    from inosgm.cli.program import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["inosgm", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        told = capsys.readouterr()
        return end.value.code, told.out, told.err

    return run
