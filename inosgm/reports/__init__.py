"""Figures, and one page that shows what runs came to. The only room that needs matplotlib and jinja2."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.reports.contents import Contents as Contents
    from inosgm.reports.reading import read as read
    from inosgm.reports.writing import report as report
    from inosgm.reports.writing import write as write

_NAMES_OF = {
    "contents": ["Contents"],
    "reading": ["read"],
    "writing": ["report", "write"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
