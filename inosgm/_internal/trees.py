"""Arrays, or lists, tuples and dicts of arrays: the values that mechanisms sum and release."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import array_api_compat
import numpy as np

from inosgm._internal.keys import Purpose


def tree_map(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply a function to the arrays at the same place of equally built trees."""
    first = trees[0]
    if isinstance(first, dict):
        return {name: tree_map(function, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, list | tuple):
        mapped = [tree_map(function, *leaves) for leaves in zip(*trees, strict=True)]
        return type(first)(*mapped) if hasattr(first, "_fields") else type(first)(mapped)  # _fields: a namedtuple
    return function(*trees)


def tree_leaves(tree: Any) -> list[Any]:
    """List the arrays of a tree."""
    leaves: list[Any] = []
    tree_map(leaves.append, tree)
    return leaves


def tree_digest(tree: Any, key: int) -> str:
    """Return a keyed digest of the arrays of a tree; without the key it reveals nothing about them."""
    secret = Purpose.SUM_DIGEST_KEY.hasher(str(key).encode()).digest()
    state = blake2b(key=secret, digest_size=16)
    for leaf in tree_leaves(tree):
        array = leaf.detach().cpu().double().numpy() if array_api_compat.is_torch_array(leaf) else leaf
        state.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return state.hexdigest()


def require_floating(tree: Any) -> None:
    """Raise unless every leaf is an array of floating-point numbers, to which noise can be added.

    Sums in half precision are refused: one record can move a rounded sum by many sensitivities.
    """
    for leaf in tree_leaves(tree):
        if array_api_compat.is_torch_array(leaf):
            floating = leaf.is_floating_point()
        else:
            floating = type(leaf) is np.ndarray and leaf.dtype.kind == "f"  # not masked: noise must reach everything
        if not floating:
            raise TypeError(f"weighted_sum must give arrays of floating-point numbers, got {type(leaf).__name__}")
        if leaf.dtype.itemsize < 4:
            raise TypeError(f"weighted_sum must add up in float32 or float64, got {leaf.dtype}")
