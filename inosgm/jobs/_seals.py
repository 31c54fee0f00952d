"""Records with a checksum."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

DIGEST = 32
"""Bytes of a checksum: against damage, not against an adversary, so that any cryptographic length does."""


class StoreDamaged(ValueError):
    """A record of a store that is not what was written: cut, edited, or mixed up. It is never repaired by itself."""


def checksum(content: bytes) -> bytes:
    """Return the digest that goes with a content."""
    return blake2b(content, digest_size=DIGEST).digest()


def seal(values: Mapping[str, Any]) -> bytes:
    """Return values as a line of JSON and a line with its checksum."""
    line = json.dumps(values, separators=(",", ":"), allow_nan=False).encode()
    return b"%s\n%s\n" % (line, checksum(line).hex().encode())


def unseal(content: bytes, name: str) -> dict[str, Any]:
    """Return the values of a sealed record.

    Raises:
        StoreDamaged: naming the record.
    """
    line, _, rest = content.partition(b"\n")
    if rest != checksum(line).hex().encode() + b"\n":
        raise StoreDamaged(f"{name} is not what was written: its checksum does not fit")
    values: dict[str, Any] = json.loads(line)
    return values


def pack(content: bytes) -> bytes:
    """Return a content behind its checksum."""
    return checksum(content) + content


def unpack(content: bytes) -> bytes | None:
    """Return packed content, or None if it is damaged."""
    found = content[DIGEST:]
    return found if content[:DIGEST] == checksum(found) else None
