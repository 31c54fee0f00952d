"""How methods look: those of the papers always the same."""

from inosgm.reports.pictures import STYLES, Style
from inosgm.reports.trained import Study


def styles_of(study: Study) -> dict[str, Style]:
    """Return how each method looks; those of the papers always look the same."""
    usual = {"ino-sgd": STYLES[0], "idp-sgd": STYLES[1], "dp-sgd": STYLES[2]}
    found: dict[str, Style] = {}
    free = list(STYLES)
    for name, method in study.methods.items():
        style = usual[method.kind]
        found[name] = style if style in free else (free or list(STYLES))[0]
        if found[name] in free:
            free.remove(found[name])
    return found
