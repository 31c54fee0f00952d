"""Results of an audit say that they are secret, and are written to files that only their owner can read."""

import os
from typing import BinaryIO

WARNING = "NOT PRIVATE: this and the store are as secret as the records"


def write_secret(file: str | os.PathLike[str] | BinaryIO, content: bytes) -> None:
    """Write to an open file, or to a file by its name, with mode 0600 if it is new."""
    if isinstance(file, str | os.PathLike):
        with open(file, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            stream.write(content)
    else:
        file.write(content)
