"""Things of the user's, by their import path."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def reach_here() -> None:
    """Let modules of the current directory be imported: last of all, so that none takes the place of a package."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def imported(path: str) -> Callable[..., Any]:
    """Return the function or class at "package.module:name"; modules of the current directory are found, too.

    Raises:
        ValueError: if there is none. What the module itself raises is passed on.
        TypeError: for something that cannot be called.
    """
    module, _, attribute = path.partition(":")
    if not module or module.startswith("."):
        raise ValueError(f"{path!r} must be package.module:function, from the top")
    reach_here()
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
