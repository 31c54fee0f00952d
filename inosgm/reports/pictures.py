"""Pictures: panels that a page shows as single SVG elements, and a file side by side."""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from inosgm._internal.text import visible
from inosgm.reports.tables import TextTable

INK, FAINT, RULE, BAR, PAPER = "#1c2733", "#5b6673", "#d9dfe6", "#cfd8e3", "#ffffff"
BLUE, ORANGE, GREY, GREEN, PURPLE, OCHRE = "#0072b2", "#d55e00", "#6e6e6e", "#009e73", "#a8518a", "#8a6d00"
COLOURS = {
    INK: "ink",
    FAINT: "faint",
    RULE: "rule",
    BAR: "bar",
    PAPER: "paper",
    "#000000": "ink",
    BLUE: "blue",
    ORANGE: "orange",
    GREY: "grey",
    GREEN: "green",
    PURPLE: "purple",
    OCHRE: "ochre",
    "#cc79a7": "purple",
}
"""The CSS variables of the colours of figures, so that they follow the light and the dark theme of a page."""

LOOK: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "inosgm",  # the same figure gives the same file
    "text.parse_math": False,  # a label with a dollar sign is not a formula
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.labelcolor": INK,
}

MAX_FILE_WIDTH = 11.0
"""Largest width of a file of side-by-side panels, in inches: about a landscape page."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """The look of a line, a point or a bar; styles differ in colour, dashes and marker, for colour-blind readers.

    Attributes:
        colour: One of the colours above.
        dashes: As matplotlib has them; None for points alone.
        marker: As matplotlib has it, or "bar", or nothing.
    """

    colour: str
    dashes: Any = "-"
    marker: str = "o"


STYLES = (
    Style(colour=BLUE),
    Style(colour=ORANGE, dashes=(0, (6, 1.8)), marker="s"),
    Style(colour=GREY, dashes=(0, (1.6, 1.6)), marker="^"),
    Style(colour=GREEN, dashes=(0, (6, 1.5, 1.5, 1.5)), marker="D"),
    Style(colour=PURPLE, dashes=(0, (3, 1.5)), marker="v"),
    Style(colour=OCHRE, dashes=(0, (9, 2, 2, 2, 2, 2)), marker="P"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes:
        title: The title.
        draw: Draws into the axes.
    """

    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A figure as panels, as a description and as a table.

    Attributes:
        name: The name of its files, and its id on the page.
        title: The title.
        text: A description for screen readers, with the main result.
        panels: The axes.
        size: Width and height of a panel in inches.
        table: The numbers of the figure.
        keys: The legend.
        note: A note below the figure.
        secret: True if it is as secret as the records.
    """

    name: str
    title: str
    text: str
    panels: tuple[Panel, ...]
    size: tuple[float, float]
    table: TextTable
    keys: tuple[tuple[str, Style], ...] = ()
    note: str = ""
    secret: bool = False

    @property
    def layout(self) -> str:
        """The CSS class of the layout: the number of panels in a row, which depends on their width."""
        if self.size[0] < 3:
            return "five" if len(self.panels) % 5 == 0 else "four"
        return "three" if self.size[0] < 4 and len(self.panels) != 4 else "two"

    def parts(self) -> list[str]:
        """Return an SVG element for each panel, whose colours are those of the page."""
        return [self._element(number, panel) for number, panel in enumerate(self.panels)]

    def key_samples(self) -> list[tuple[str, str]]:
        """Return the entries of the legend, each with a small SVG element."""
        return [(label, _sample(style)) for label, style in self.keys]

    def file(self, ending: str) -> bytes:
        """Return all panels side by side as a file.

        Args:
            ending: svg or png.
        """
        return draw_panels(self.title, self.panels, self.size, self.keys, ending)

    def _element(self, number: int, panel: Panel) -> str:
        with (
            rc_context(LOOK),
            rc_context({"xtick.labelsize": 10.5, "ytick.labelsize": 10.5} if self.size[0] < 3 else {}),
        ):
            figure = Figure(figsize=self.size, layout="constrained")
            panel.draw(figure.subplots())
            text = _saved(figure, "svg", transparent=True).decode()
        name = f"{self.name}-{number}"
        title = f"{self.title}: {panel.title}" if panel.title else self.title
        return _inline(text, name, title, self.text)


def draw_panels(
    title: str,
    panels: Sequence[Panel],
    size: tuple[float, float],
    keys: Sequence[tuple[str, Style]],
    ending: str,
) -> bytes:
    """Return a file with panels of a size side by side, a title and a legend; the same for the same arguments."""
    width, height = size
    wide = max(1, min(len(panels), int(MAX_FILE_WIDTH / width)))
    high = -(-len(panels) // wide)
    with rc_context(LOOK):
        # 4.8 inches leave room for the title and the legend of a single panel.
        figure = Figure(figsize=(max(width * wide, 4.8), height * high + 0.75), layout="constrained")
        grid = figure.subplots(high, wide, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            panel.draw(axes)
            axes.set_title(panel.title)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        figure.suptitle(title, fontsize=11)
        if keys:
            lines, names = [_handle(style) for _, style in keys], [label for label, _ in keys]
            figure.legend(lines, names, loc="outside lower center", ncols=4, frameon=False, handlelength=3)
        return _saved(figure, ending)


def _saved(figure: Figure, ending: str, **options: Any) -> bytes:
    """Return the content of a file, the same for the same figure."""
    stream = io.BytesIO()
    about = {"Date": None, "Creator": None} if ending == "svg" else {"Software": None}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # browsers have fonts for all scripts
        figure.savefig(stream, format=ending, dpi=160, metadata=about, **options)
    return visible(stream.getvalue().decode()).encode() if ending == "svg" else stream.getvalue()


def _inline(text: str, name: str, title: str, description: str) -> str:
    """Return an SVG file as an element of a page, with unique ids, the page's colours and font, and a description."""
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">") + 1 : text.rindex("</svg>")]
    for gone in (r"<metadata>.*?</metadata>", r"<defs>\s*<style.*?</style>\s*</defs>"):
        body = re.sub(gone, "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]+>", lambda tag: _tag(tag[0], name), body)
    body = re.sub(r"\n\s*", "\n", body)
    return (
        f'<svg role="img" aria-labelledby="{name}-title {name}-text" viewBox="{box[1] if box else ""}">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(description)}</desc>'
        f"{body}</svg>"
    )


def _tag(tag: str, name: str) -> str:
    """Return a tag of an SVG file as an element of a page needs it."""
    tag = tag.replace("xlink:href", "href")
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', tag)
    tag = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", tag)
    tag = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", tag)
    tag = re.sub(r"(\d+\.\d\d)\d+", r"\1", tag)
    return re.sub(r"#[0-9a-fA-F]{6}\b", lambda match: _variable(match[0]), tag)


def logarithmic(axes: Axes, *names: str) -> None:
    """Make axes logarithmic, with plain numbers as labels."""
    for name in names:
        axis = getattr(axes, f"{name}axis")
        getattr(axes, f"set_{name}scale")("log")
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _variable(colour: str) -> str:
    name = COLOURS.get(colour.lower())
    return colour if name is None else f"var(--{name})"


def _handle(style: Style) -> Line2D:
    """Return the sample of a style in the legend of a file."""
    marker, size = ("s", 8) if style.marker == "bar" else (style.marker or "none", 5)
    dashes: Any = "none" if style.dashes is None else style.dashes
    return Line2D([], [], color=style.colour, linestyle=dashes, marker=marker, markersize=size)


def _sample(style: Style) -> str:
    """Return the sample of a style in the legend of a page, an SVG element."""
    colour = _variable(style.colour)
    line = ""
    if style.dashes is not None:
        lengths = [] if style.dashes == "-" else [f"{1.8 * length:g}" for length in style.dashes[1]]
        line = f'<path d="M1 7H35" stroke-width="1.8" stroke-dasharray="{" ".join(lengths) or "none"}"/>'
    return (
        f'<svg class="sample" aria-hidden="true" viewBox="0 0 36 14" style="stroke: {colour}; fill: {colour}">'
        f'{line}<path d="{MARKERS[style.marker]}" stroke="none"/></svg>'
    )


MARKERS = {
    "o": "M14.5 7a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
    "s": "M14.8 3.8h6.4v6.4h-6.4Z",
    "^": "M18 2.8L22 10.4H14Z",
    "D": "M18 2.6L22.4 7L18 11.4L13.6 7Z",
    "v": "M18 11.2L22 3.6H14Z",
    "P": "M16.6 2.8h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8Z",
    "|": "M17.1 1.5h1.8v11h-1.8Z",
    "bar": "M4 2.5h28v9H4Z",
    "": "",
}
"""The outlines of markers in a box of 36 x 14."""
