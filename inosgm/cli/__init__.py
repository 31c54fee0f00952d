"""The command line: one module per command."""

from inosgm.cli.program import main, program

__all__ = ["main", "program"]
