"""Labels of owners as people write them: a file does not tell 7 from "7"."""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from inosgm._internal import validate as _validate

Label = str | int
"""The name of an owner."""

RECORD = "record"
"""The name of the unit of privacy if records are not put together to units."""


def match_labels(labels: Iterable[Label], known: Sequence[Label]) -> dict[Label, Label]:
    """Return the known label that each label means: the equal one, or else the only one with the same text.

    A label that matches none is returned as it is; as text if all known ones are text.

    >>> match_labels([0, 2], ["0", "1"]), match_labels(["0", "two"], [0, 1])
    ({0: '0', 2: '2'}, {'0': 0, 'two': 'two'})
    """
    called, written = set(known), Counter(map(str, known))
    alike = {str(label): label for label in known if written[str(label)] == 1}
    text = all(isinstance(label, str) for label in known)
    return {
        label: label if label in called else alike.get(str(label), str(label) if text else label) for label in labels
    }


def unknown(label: Label, known: Sequence[Label]) -> str:
    """Say that a label is unknown, list the known ones, and suggest the closest.

    >>> unknown("Oslo B", ["Bergen", "Oslo"])
    "'Oslo B' is none of 'Bergen', 'Oslo': did you mean 'Oslo'?"
    """
    close = get_close_matches(str(label), map(str, known), n=1)
    hint = f": did you mean {close[0]!r}?" if close else ""
    return f"{label!r} is none of {_validate.some(list(known))}{hint}"
