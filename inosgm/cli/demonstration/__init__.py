"""The demonstration that `make demo` runs."""

from inosgm.cli.demonstration.running import PAGE, Size, run

__all__ = ["PAGE", "Size", "run"]
