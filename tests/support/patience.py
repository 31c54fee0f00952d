"""Waiting without deadlines, which a busy machine would miss; importing this makes those of Ray very long."""

import os
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from typing import ClassVar

HOUR = 3600

for name, value in {
    "agent_register_timeout_ms": HOUR * 1000,  # a raylet ends if its agents, which import much, are not there in time
    "worker_register_timeout_seconds": HOUR,
    "raylet_client_num_connect_attempts": HOUR,
    "gcs_server_port_wait_time_s": HOUR,
    "gcs_server_request_timeout_seconds": HOUR,
    "gcs_rpc_server_connect_timeout_s": HOUR,
    "gcs_rpc_server_reconnect_timeout_s": HOUR,
    "py_gcs_connect_timeout_s": HOUR,
    "grpc_keepalive_timeout_ms": HOUR * 1000,
    "grpc_client_keepalive_timeout_ms": HOUR * 1000,
    "health_check_timeout_ms": HOUR * 1000,  # a node that has ended refuses the connection, and is noticed at once
    "DASHBOARD_STARTUP_TIMEOUT_S": HOUR,
    "memory_monitor_refresh_ms": 0,  # workers are not killed because others use the memory of the machine
    "local_fs_capacity_threshold": 1,  # nor is a disk too full that has room for tests
}.items():
    os.environ.setdefault(f"RAY_{name}", str(value))


class SlowClock:
    """The module `time` with clocks a hundred times as slow, for loops that end in an error after 30 seconds."""

    def __init__(self):
        self._begun = time.time(), time.monotonic()

    def __getattr__(self, name):
        return getattr(time, name)

    def time(self):
        return self._begun[0] + (time.time() - self._begun[0]) / 100

    def monotonic(self):
        return self._begun[1] + (time.monotonic() - self._begun[1]) / 100


class _Finder:
    """Changes modules right after they were imported."""

    changes: ClassVar = {}

    def find_spec(self, name, path=None, target=None):
        if name not in self.changes:
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            self.changes[name](module)

        spec.loader.exec_module = execute_and_change
        return spec


sys.meta_path.insert(0, _Finder())


def after_import(name, change):
    """Call a function with a module once that is imported, now or later."""
    if name in sys.modules:
        change(sys.modules[name])
    else:
        _Finder.changes[name] = change


def _slow_down(module):
    module.time = SlowClock()


for name in ("ray._private.node", "ray._private.services", "ray.cluster_utils"):  # which wait for nodes to start
    after_import(name, _slow_down)


def lives(process):
    """Say whether a process runs: one that has ended does not, whether or not anybody has waited for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, *processes):
    """Wait until something is the case, for as long as these processes live."""
    while not condition():
        for process in processes:
            assert process.poll() is None, f"a process has ended: {process.communicate()}"
        time.sleep(0.02)
