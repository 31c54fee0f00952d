"""The demonstration that `make demo` runs."""

from inosgm.demo.running import PAGE, Size, run

__all__ = ["PAGE", "Size", "run"]
