"""What a shell proposes for words that are no options: keys of a configuration."""

from collections.abc import Iterator
from typing import Any


def keys(incomplete: str) -> list[str]:
    """Return the paths of keys that begin like a word, with a sign after those that take a value.

    >>> keys("plan.s"), keys("optimizer.l")
    (['plan.steps='], ['optimizer.lr='])
    """
    from inosgm.config import TrainingConfig

    return [path for path in _paths(TrainingConfig) if path.startswith(incomplete)]


def _paths(section: Any, before: str = "") -> Iterator[str]:
    """Yield the paths of all keys, those of every form that a section may have, each once."""
    from inosgm._problems import sections

    for name, field in section.model_fields.items():
        yield f"{before}{name}="
        found = (path for inner in sections(field) for path in _paths(inner, f"{before}{name}."))
        yield from dict.fromkeys(found)
