"""Keys of configurations with values, as options of commands."""

from collections.abc import Callable, Sequence
from typing import Any


def keys_of(option: str, texts: Sequence[str] | None, read: Callable[[str], Any]) -> dict[str, Any]:
    """Read keys with what comes after their sign."""
    found: dict[str, Any] = {}
    for text in texts or []:
        path, sign, rest = text.partition("=")
        if not sign or not path:
            raise ValueError(f"{option} takes a key and values, such as optimizer.lr=..., got {text!r}")
        if path in found:
            raise ValueError(f"{option} {text}: {path} is there twice")
        try:
            found[path] = read(rest)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{option} {text}: {error}") from None
    return found
