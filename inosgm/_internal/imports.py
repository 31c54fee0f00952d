"""Objects of the user, found by their import path."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def add_cwd_to_path() -> None:
    """Append the current directory to sys.path: at its end, so that no module there hides a package."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def imported(path: str) -> Callable[..., Any]:
    """Return the function or class at "package.module:name"; modules of the current directory are found as well.

    Raises:
        ValueError: if there is none. What the module itself raises is passed on.
        TypeError: for something that cannot be called.
    """
    module, _, attribute = path.partition(":")
    if not module or module.startswith("."):
        raise ValueError(f"{path!r} must be package.module:function, from the top")
    add_cwd_to_path()
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"{path!r} must be importable, but there is no module {error.name!r}") from None
    except AttributeError:
        raise ValueError(f"{path!r} must name a function, but {module} has no {attribute!r}") from None
    if not callable(found):
        raise TypeError(f"{path!r} must name a function, got a {type(found).__name__}")
    return found  # type: ignore[no-any-return]
