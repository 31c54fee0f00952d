"""Names that a package resolves when they are first used, so that importing it loads nothing else."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from inosgm._internal.extras import missing_extra


def lazy_names(
    package: str, names_of: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: the `__name__` of the package.
        names_of: for every module of the package, by its path from there, the names that the package exports.
    """
    module_of = {name: module for module, names in names_of.items() for name in names}
    rooms = {module.partition(".")[0] for module in names_of}

    def resolve(name: str) -> Any:
        try:
            if name in module_of:
                return getattr(import_module(f"{package}.{module_of[name]}"), name)
            if name in rooms:
                return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if missing := missing_extra(error):
                raise missing from error
            raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return resolve, lambda: sorted({*import_module(package).__all__, *module_of, *rooms})
