"""Entry points that run inosgm on a Ray cluster; the only package that imports ray."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_jobs.actor import TrainerActor as TrainerActor
    from ray_jobs.aggregate import OrderedAggregate as OrderedAggregate
    from ray_jobs.data_executor import RayDataExecutor as RayDataExecutor
    from ray_jobs.executor import RayExecutor as RayExecutor

__all__ = ["OrderedAggregate", "RayDataExecutor", "RayExecutor", "TrainerActor"]

_ROOM_OF = {
    "OrderedAggregate": "aggregate",
    "RayDataExecutor": "data_executor",
    "RayExecutor": "executor",
    "TrainerActor": "actor",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that `import ray_jobs` alone does not import ray."""
    if name in _ROOM_OF:
        return getattr(import_module(f"ray_jobs.{_ROOM_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
