"""Entry points that run inosgm on a Ray cluster; the only package that imports ray."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_jobs.actor import TrainerActor as TrainerActor
    from ray_jobs.data_executor import RayDataExecutor as RayDataExecutor
    from ray_jobs.executor import RayExecutor as RayExecutor

__all__ = ["RayDataExecutor", "RayExecutor", "TrainerActor"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that `import ray_jobs` alone does not import ray."""
    if name == "RayDataExecutor":
        from ray_jobs.data_executor import RayDataExecutor

        return RayDataExecutor
    if name == "RayExecutor":
        from ray_jobs.executor import RayExecutor

        return RayExecutor
    if name == "TrainerActor":
        from ray_jobs.actor import TrainerActor

        return TrainerActor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
