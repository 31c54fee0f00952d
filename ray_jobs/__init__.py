"""Entry points that run inosgm on a Ray cluster; the only package that imports ray."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ray_jobs.actor import TrainerActor as TrainerActor
    from ray_jobs.aggregate import OrderedAggregate as OrderedAggregate
    from ray_jobs.data_executor import RayDataExecutor as RayDataExecutor
    from ray_jobs.executor import RayExecutor as RayExecutor

_NAMES_OF = {
    "actor": ["TrainerActor"],
    "aggregate": ["OrderedAggregate"],
    "data_executor": ["RayDataExecutor"],
    "executor": ["RayExecutor"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
