"""The demonstration that `make demo` runs."""

from inosgm.demo.running import Size, run

__all__ = ["Size", "run"]
