"""Packages that only some rooms need: which command installs each, said in one sentence where one is missing."""

from importlib.util import find_spec

INSTALLED_BY = {
    "dp_accounting": "dp-accounting",
    "jinja2": "inosgm[report]",
    "matplotlib": "inosgm[report]",
    "mlxtend": "inosgm[data]",
    "opacus": "inosgm[train]",
    "ray": "inosgm[ray]",
    "s3fs": "inosgm[s3]",
    "sklearn": "inosgm[data]",
    "tensorboardX": "inosgm[train]",
    "torch": "inosgm[train]",
}
"""What pip is asked for to get a package."""


class MissingExtra(ModuleNotFoundError):
    """A package of an extra is not installed; the message names the command that installs it."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f'this needs {package}, which is not installed: pip install "{INSTALLED_BY[package]}"', name=package
        )

    def __reduce__(self) -> tuple[type["MissingExtra"], tuple[str]]:
        return MissingExtra, (str(self.name),)


def require_extra(package: str) -> None:
    """Raise MissingExtra if a package cannot be imported; import nothing."""
    try:
        found = find_spec(package) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise MissingExtra(package)


def missing_extra(error: ImportError) -> MissingExtra | None:
    """Return the error to raise instead of one about a package of an extra; None for any other."""
    package = (error.name or "").partition(".")[0]
    return MissingExtra(package) if isinstance(error, ModuleNotFoundError) and package in INSTALLED_BY else None
