"""Arrays, or lists, tuples and dicts of arrays: the values that mechanisms sum and release."""

from collections.abc import Callable
from typing import Any


def tree_map(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply a function to the arrays at the same place of equally built trees."""
    first = trees[0]
    if isinstance(first, dict):
        return {name: tree_map(function, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, list | tuple):
        return type(first)(tree_map(function, *leaves) for leaves in zip(*trees, strict=True))
    return function(*trees)


def tree_leaves(tree: Any) -> list[Any]:
    """List the arrays of a tree."""
    leaves: list[Any] = []
    tree_map(leaves.append, tree)
    return leaves
