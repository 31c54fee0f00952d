"""The one place where inosgm finds Ray, and the line from a process that uses Ray to the one that supervises it.

`ray_jobs` depends on `inosgm`, not the other way round: nothing here imports it before somebody asks for Ray.
"""

import json
import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inosgm._internal.extras import require_extra

if TYPE_CHECKING:
    from inosgm.jobs.executors import Executor

ESSENTIAL = ("gcs_server", "raylet")
"""The processes without which a Ray that was started here cannot work, by the names that Ray gives them."""

_supervisor_lines: list[int] = []
"""The file descriptor of the line to the process that supervises this one, if there is one."""


class RayGone(RuntimeError):
    """A Ray died, or did not start: finished work is in the store, and the same call resumes."""


def ray_module(name: str) -> Any:
    """Import a module of `ray_jobs`, or an object `module:object` of one.

    Raises:
        MissingExtra: if Ray is not installed.
    """
    module, _, attribute = name.partition(":")
    require_extra("ray")
    loaded: Any = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def ray_executor(*, of_tables: bool = False, **options: Any) -> "Executor":
    """Return an executor on Ray; connect nothing yet.

    Args:
        of_tables: Whether jobs are short and read fragments of tables, so that Ray Data places them.
        options: Arguments of `ray_jobs.RayExecutor`, or of `ray_jobs.RayDataExecutor` for tables; None is left out.
    """
    kind = ray_module("ray_jobs.data_executor:RayDataExecutor" if of_tables else "ray_jobs.executor:RayExecutor")
    executor: Executor = kind(**{name: value for name, value in options.items() if value is not None})
    return executor


def supervised_through(line: int) -> None:
    """Use a file descriptor as the line to the process that supervises this one."""
    _supervisor_lines.append(line)


def tell_supervisor(**facts: Any) -> None:
    """Send facts to the process that supervises this one, if there is one: `ray` (its Ray), or `code` (its exit)."""
    for line in _supervisor_lines:
        with suppress(OSError):  # it has been killed: there is nobody to tell
            os.write(line, json.dumps(facts).encode() + b"\n")
