"""Whatever comes out of an audit says that it is secret, and is written for its owner's eyes only."""

import os
from typing import BinaryIO

WARNING = "NOT PRIVATE: this and the store are as secret as the records"


def write_secret(file: str | os.PathLike[str] | BinaryIO, content: bytes) -> None:
    """Write a file, by its name with mode 0600 if it is new, or into one that is open."""
    if isinstance(file, str | os.PathLike):
        with open(file, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            stream.write(content)
    else:
        file.write(content)
