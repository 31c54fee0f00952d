"""`inosgm stats`: private statistics of tables, one command for each of `PROCEDURES`, and one for several questions."""

import inosgm.cli.stats.several  # noqa: F401  # which adds its command to the group
from inosgm.cli.stats.commands import OTHER_NAMES, QUESTIONS, stats

__all__ = ["OTHER_NAMES", "QUESTIONS", "stats"]
