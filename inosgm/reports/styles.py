"""The styles of methods in figures; those of the papers are always the same."""

from inosgm.methods.registry import METHODS, USUAL
from inosgm.reports.pictures import STYLES, Style
from inosgm.reports.trained import TrainedStudy

LOOKS = tuple(
    Style(colour=style.colour, dashes=STYLES[(place + turn) % 6].dashes, marker=STYLES[(place + 2 * turn) % 6].marker)
    for turn in range(6)
    for place, style in enumerate(STYLES)
)
"""Six colours, each with six kinds of dashes: the first six are `STYLES`."""


def styles_of(study: TrainedStudy) -> dict[str, Style]:
    """Return the style of each method; those of the papers are always the same."""
    usual = dict(zip(dict.fromkeys((*reversed(USUAL), *METHODS)), LOOKS, strict=False))
    found: dict[str, Style] = {}
    free = list(LOOKS)
    for name, method in study.methods.items():
        style = usual[method.kind]
        found[name] = style if style in free else (free or list(LOOKS))[0]
        if found[name] in free:
            free.remove(found[name])
    return found
