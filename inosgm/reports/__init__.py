"""Figures, and one page that shows what runs came to. The only room that needs matplotlib and jinja2."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inosgm.reports.contents import Contents as Contents
    from inosgm.reports.reading import read as read
    from inosgm.reports.writing import report as report

_ROOM_OF = {"Contents": "contents", "read": "reading", "report": "writing"}

__all__ = [*_ROOM_OF]


def __getattr__(name: str) -> Any:
    """Import what is asked for: a figure of a store does without pages."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
