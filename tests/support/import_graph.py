"""The import graph of the package, read from its source: eager, lazy and typing-only imports alike."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("inosgm", "ray_jobs")

# From the lowest layer to the highest; rooms of one layer do not import each other.
LAYERS = (
    ("_internal",),
    ("inosgm",),  # the root, of which rooms use `__version__` only
    ("accounting", "owners"),
    ("ledger",),  # below planning, because a plan knows its Cost
    ("planning",),
    ("mechanism",),
    ("jobs",),  # below statistics and training, which run as durable jobs
    ("datasets", "statistics"),
    ("training",),
    ("methods",),  # above training, because IPATE trains teachers and a student
    ("experiments",),
    ("audit",),  # above experiments, because shadow models are an experiment
    ("reports",),
    ("cli",),
    ("ray_jobs", "__main__"),
)
LAYER_OF = {room: layer for layer, rooms in enumerate(LAYERS) for room in rooms}


@dataclass(frozen=True)
class Import:
    """One import statement: the importing module, the imported one, and where it is written."""

    source: str
    target: str
    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.target}"


def room_of(module: str) -> str:
    """Return the room of a module: "ledger" for "inosgm.ledger.cost", the package itself for its root."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] or package if package == "inosgm" else package


class Graph:
    """Every import of the package, resolved to the modules that define the imported names."""

    def __init__(self, root: Path = ROOT) -> None:
        files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
        self.file_of = {_module_name(file.relative_to(root)): file for file in files}
        self._trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in self.file_of.items()}
        self._exports = {name: self._exports_of(name) for name in self.file_of if self._is_package(name)}
        self.imports = [found for name in self.file_of for found in self._imports_of(name)]
        self.own = [found for found in self.imports if found.target in self.file_of]
        self.third_party = [found for found in self.imports if found.target not in self.file_of]

    def _is_package(self, module: str) -> bool:
        return self.file_of[module].name == "__init__.py"

    def _exports_of(self, package: str) -> dict[str, str]:
        """Map each name that a package exports to the module that it comes from."""
        return {
            name.asname or name.name: node.module
            for node in ast.walk(self._trees[package])
            if isinstance(node, ast.ImportFrom) and node.module
            for name in node.names
        }

    def _imports_of(self, module: str) -> Iterator[Import]:
        tree = self._trees[module]
        if self._is_package(module):  # names under TYPE_CHECKING are those that the package resolves lazily: its own
            tree = ast.Module(body=[node for node in tree.body if not isinstance(node, ast.If)], type_ignores=[])
        for node in ast.walk(tree):
            for target in _targets(node, self._resolve):
                if target != module:
                    yield Import(module, target, self.file_of[module], node.lineno)  # type: ignore[attr-defined]

    def _resolve(self, module: str, name: str) -> str:
        """Return the module that defines a name imported from `module`."""
        if f"{module}.{name}" in self.file_of:
            return f"{module}.{name}"
        origin = self._exports.get(module, {}).get(name)
        return self._resolve(origin, name) if origin and origin != module and origin in self.file_of else module


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _targets(node: ast.AST, resolve) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            yield from dict.fromkeys(resolve(module, name.name) for name in names)
        case ast.ImportFrom():
            raise AssertionError(f"imports are absolute, so that a reader finds them: {ast.unparse(node)}")
        case ast.Attribute(value=ast.Name(id="inosgm"), attr=name):  # a name of the root, resolved lazily
            yield resolve("inosgm", name)
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            yield name


def cycle_of(edges: Iterable[tuple[str, str]]) -> list[str]:
    """Return one cycle of a graph as a path that ends where it begins, or nothing if there is none."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for source, target in edges:
        sorter.add(source, target)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []
