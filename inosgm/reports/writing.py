"""The report of runs as one HTML file."""

import os
from pathlib import Path

from inosgm._internal.files import write_durably
from inosgm.reports.contents import Contents
from inosgm.reports.page import Page
from inosgm.reports.reading import read

PUBLIC, SECRET = 0o666, 0o600
"""Modes of files: subject to the umask, and readable by their owner only."""


def report(
    *runs: str | os.PathLike[str],
    output: str | os.PathLike[str] = "report.html",
    figures: str | os.PathLike[str] | None = None,
    private: bool = False,
    title: str | None = None,
) -> Path:
    """Write a self-contained HTML file about the results of runs; the same runs give the same file.

    **Guarantee.** It shows what was released, what is public, and what is known about held-out records. Audits, which
    are as secret as the records, are in it if one of them is named, or lies in a directory that is; diagnostics on
    training records only if asked for. Such a page says NOT PRIVATE, and can be read by its owner only (mode 0600).

    Args:
        runs: Run directories, stores of seeds, comparisons, sweeps and audits, JSON answers of `inosgm stats --output`,
            or directories that hold some of these.
        output: The file.
        figures: A directory for every figure as SVG and PNG; made if it is not there.
        private: Also show diagnostics on training records. They are NOT PRIVATE.
        title: What the page is called.

    Returns:
        The file.

    Raises:
        ValueError: for runs that cannot be shown, and for those without results.
        FileNotFoundError: for runs that are not there.
    """
    return write(read(*runs, private=private), output=output, figures=figures, title=title)


def write(
    contents: Contents,
    *,
    output: str | os.PathLike[str],
    figures: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Path:
    """Write the page of contents that were read; see `report`."""
    path, page = Path(output), Page(contents, title)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory: name a file, such as {path / 'report.html'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, page.html().encode(), mode=SECRET if contents.secret else PUBLIC)
    if figures is not None:
        folder = Path(figures)
        folder.mkdir(parents=True, exist_ok=True)
        for picture in page.pictures:
            for ending in ("svg", "png"):
                mode = SECRET if picture.secret else PUBLIC
                write_durably(folder / f"{picture.name}.{ending}", picture.file(ending), mode=mode)
    return path
