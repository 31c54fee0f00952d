"""Counts of the house: sizes of rooms, comments, the longest parts, private attributes, and what one call passes.

`python -m benchmarks.house [ROOT]` reads the source below ROOT, this checkout by default. To compare with an earlier
revision, add a worktree of it and run this file with the worktree first on PYTHONPATH, and as ROOT.
"""

import ast
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("inosgm", "ray_jobs")
REPEATED = 6
"""Lines that are the same in two places count as repeated from this many in a row on: fewer are often an idiom."""


def main(root: Path | None = None) -> None:
    """Print all counts."""
    root = root or Path(__file__).resolve().parents[1]
    texts = {
        file: file.read_text(encoding="utf-8")
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
    }
    trees = {file: ast.parse(text) for file, text in texts.items()}
    rooms: dict[str, list[Path]] = defaultdict(list)
    for file in texts:
        rooms[room_of(file.relative_to(root))].append(file)
    lines = {file: len(text.splitlines()) for file, text in texts.items()}
    print("room            files   lines")
    for room, members in sorted(rooms.items()):
        print(f"{room:15} {len(members):5} {sum(lines[file] for file in members):7}")
    total = sum(lines.values())
    print(f"{'all':15} {len(texts):5} {total:7}")
    count = sum(len(list(comments(file))) for file in texts)
    print(f"comments: {count}, {100 * count / total:.1f} % of lines")
    longest = max(lines, key=lambda file: lines[file])
    print(f"longest file: {longest.relative_to(root)}, {lines[longest]} lines")
    length, name = max(function for file, tree in trees.items() for function in functions(file.relative_to(root), tree))
    print(f"longest function: {name}, {length} lines")
    across_files, across_rooms = private_accesses(root, trees)
    print(f"private attributes touched across files: {across_files}, across rooms: {across_rooms}")
    print(f"repeated lines ({REPEATED} or more in a row): {repeated_lines(texts)}")
    sys.path.insert(0, str(root))
    for name, workload in {"Trainer.step": training_step, "private_mean": a_mean}.items():
        functions_passed, files_passed = passed(workload(), root)
        print(f"{name} passes {functions_passed} functions in {files_passed} files")


def room_of(path: Path) -> str:
    """Return the first folder of the package, or "root" for files that are in none."""
    package, *rest = path.parts
    return package if package != "inosgm" else rest[0] if len(rest) > 1 else "root"


def comments(file: Path) -> Iterator[str]:
    """Yield the comments of a file, without those that are instructions for tools."""
    with tokenize.open(file) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa", "#!")):
                yield token.string


def functions(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the length and the name of every function, the docstring not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            documented = ast.get_docstring(node) is not None
            first = node.body[0]
            docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            yield node.end_lineno - node.lineno + 1 - docstring, f"{path}:{node.name}"


def private_accesses(root: Path, trees: dict[Path, ast.Module]) -> tuple[int, int]:
    """Return how often code touches a private attribute that only other files, and only other rooms, define."""
    defined = {file: set(private_names(tree)) for file, tree in trees.items()}
    by_room: dict[str, set[str]] = defaultdict(set)
    for file, names in defined.items():
        by_room[room_of(file.relative_to(root))] |= names
    everywhere = set().union(*defined.values())
    touched = [
        (node.attr in defined[file], node.attr in by_room[room_of(file.relative_to(root))])
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr in everywhere
    ]
    return sum(not here for here, _ in touched), sum(not here for _, here in touched)


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a file defines: functions, and attributes and variables that it assigns."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found = name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found = name
            case _:
                continue
        if is_private(found):
            yield found


def is_private(name: str) -> bool:
    """Return whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def repeated_lines(texts: dict[Path, str]) -> int:
    """Return how many lines of code are part of a block that is somewhere else as well."""
    blocks: Counter[tuple[str, ...]] = Counter()
    windows = []
    for file, text in texts.items():
        if file.name == "__init__.py":
            continue
        code = [line.strip() for line in text.splitlines()]
        code = [line for line in code if line and not line.startswith(("import ", "from ", "#"))]
        for place in range(len(code) - REPEATED + 1):
            block = tuple(code[place : place + REPEATED])
            blocks[block] += 1
            windows.append((file, place, block))
    found = {(file, place + i) for file, place, block in windows if blocks[block] > 1 for i in range(REPEATED)}
    return len(found)


def passed(call: Callable[[], Any], root: Path) -> tuple[int, int]:
    """Return how many functions of ours one call passes, and in how many files."""
    seen = set()
    ours = tuple(f"{root / package}/" for package in PACKAGES)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(ours):
            seen.add(code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(seen), len({code.co_filename for code in seen})


def training_step() -> Callable[[], Any]:
    """Return one step of a small network."""
    import torch

    from inosgm import LinearTail, Owners, Trainer, plan_scale

    owners = Owners(of_record=[0] * 50 + [1] * 50, epsilon={0: 1.0, 1: 4.0}, delta=1e-5)
    plan = plan_scale(owners, steps=10, expected_batch=50, clip_norm=1.0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tail = LinearTail(plan.tail_length(0.5))
    trainer = Trainer(plan, model, torch.nn.CrossEntropyLoss(), optimizer, tail=tail)
    x, y = torch.randn(100, 8), torch.arange(100) % 2
    trainer.step(x, y)  # the first step also chooses an engine and examines the model
    return lambda: trainer.step(x, y)


def a_mean() -> Callable[[], Any]:
    """Return a private mean of an array."""
    import numpy as np

    from inosgm import Owners, private_mean

    owners = Owners(of_record=[0] * 50 + [1] * 50, epsilon={0: 1.0, 1: 4.0}, delta=1e-5)
    values = np.linspace(0, 10, 100)
    private_mean(values, owners, bounds=(0, 10))  # modules are loaded
    return lambda: private_mean(values, owners, bounds=(0, 10))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None)
