"""Tables of text for the terminal and the page, and the formats of numbers in them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from inosgm._internal.text import columns

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text; the first cell of a row names it.

    Attributes:
        caption: What the table shows.
        header: The names of the columns.
        rows: The cells.
        notes: What else there is to know, such as who is not shown.

    >>> print(TextTable(caption="Budgets", header=("owner", "epsilon"), rows=(("a", "1"), ("b", "20"))).text())
    owner  epsilon
    a            1
    b           20
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the table for a terminal."""
        return "\n".join([*columns(self.header, self.rows), *(f"({note})" for note in self.notes)])


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with `digits` decimals; a dash for none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def short(value: float | None) -> str:
    """Format a number with four significant digits; a dash for none."""
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"


def spread(mean: float, deviation: float) -> str:
    """Format a mean, with the standard deviation if there is one."""
    return number(mean) if math.isnan(deviation) else f"{number(mean)} ± {number(deviation)}"


def measured(value: float, error: float) -> tuple[str, str]:
    """Format a number to the precision of its standard error, and the error with two digits.

    >>> measured(43.6781, 3.81), measured(1145.04, 39.0), measured(0.5, 0.0)
    (('43.7', '3.8'), ('1145', '39'), ('0.5', '0'))
    """
    if not error > 0 or not math.isfinite(error):
        return f"{value:.6g}", f"{error:.2g}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{decimals}f}", f"{error:.{decimals}f}"


def signed(value: float) -> str:
    """Format a change with its sign."""
    return "-" if math.isnan(value) else f"{value:+.3f}".replace("-", MINUS)


def listed(names: Sequence[object], most: int = 6) -> str:
    """Return names as part of a sentence; of many, the first.

    >>> listed(["a", "b", "c"]), listed(range(9), most=3)
    ('a, b and c', '0, 1, 2 and 6 more')
    """
    shown = [str(name) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def percent(value: float) -> str:
    """Format a fraction as a percentage.

    >>> percent(0.125)
    '12.5 %'
    """
    return f"{100 * value:.3g} %"


def cut(label: object, most: int = 22) -> str:
    """Return a name, shortened for a figure."""
    text = str(label)
    return text if len(text) <= most else f"{text[: most - 1]}…"
