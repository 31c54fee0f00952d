"""Who writes a row of a ledger: a user, a host and a program, and nothing about records or arguments."""

import getpass
import platform
import sys
from functools import cache
from pathlib import Path


@cache
def author() -> str:
    """Return user@host and the name of the program, without its arguments, which may hold keys and paths."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container without an entry for its user
        user = "unknown"
    return f"{user}@{platform.node() or 'unknown'} {Path(sys.argv[0]).name if sys.argv else ''}".rstrip()
