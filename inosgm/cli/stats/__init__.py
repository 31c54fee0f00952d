"""`inosgm stats`: private statistics of tables, one command for each of `PROCEDURES`."""

from inosgm.cli.stats.commands import OTHER_NAMES, QUESTIONS, stats

__all__ = ["OTHER_NAMES", "QUESTIONS", "stats"]
