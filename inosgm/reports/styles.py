"""The styles of methods in figures; those of the papers are always the same."""

from inosgm.methods.registry import METHODS, USUAL
from inosgm.reports.pictures import STYLES, Style
from inosgm.reports.trained import TrainedStudy

LOOKS = tuple(
    Style(colour=style.colour, dashes=STYLES[(index + turn) % 6].dashes, marker=STYLES[(index + 2 * turn) % 6].marker)
    for turn in range(6)
    for index, style in enumerate(STYLES)
)
"""Six colours, each with six kinds of dashes: the first six are `STYLES`."""


def styles_of(study: TrainedStudy) -> dict[str, Style]:
    """Return the style of each method; those of the papers are always the same."""
    usual = dict(zip(dict.fromkeys((*reversed(USUAL), *METHODS)), LOOKS, strict=False))
    styles: dict[str, Style] = {}
    free = list(LOOKS)
    for name, method in study.methods.items():
        style = usual[method.kind]
        styles[name] = style if style in free else (free or list(LOOKS))[0]
        if styles[name] in free:
            free.remove(styles[name])
    return styles
