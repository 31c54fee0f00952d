"""A digest of source code, of which results are a function."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from inosgm._internal.imports import add_cwd_to_path
from inosgm._internal.keys import Purpose


def digest_of(packages: Iterable[str], versions: Iterable[str]) -> str:
    """Return a digest of the source files of packages (or modules), and of the versions of other packages."""
    state = Purpose.CODE_ID.hasher(repr(tuple(versions)).encode())
    for package in packages:
        for name, file in _sources(package):
            content = file.read_bytes()
            state.update(f"{package} {name} {len(content)} ".encode() + content)
    return state.hexdigest()


def _sources(package: str) -> list[tuple[str, Path]]:
    """List the source files of a package, or the file of a module, by name."""
    add_cwd_to_path()
    spec = find_spec(package)
    if spec is None:
        raise ValueError(f"there is no module {package!r}, which the configuration names")
    if spec.submodule_search_locations is None:
        return [] if spec.origin is None else [("", Path(spec.origin))]
    folders = map(Path, spec.submodule_search_locations)
    return sorted((file.relative_to(folder).as_posix(), file) for folder in folders for file in folder.rglob("*.py"))
