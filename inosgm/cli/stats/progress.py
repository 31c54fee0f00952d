"""Tables that show how many of their records were read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress

from inosgm.statistics.tables import Table, TableBatch


class ProgressTable(Table):
    """A table with a progress bar."""

    _advance: Callable[[int], None] | None = None

    @contextmanager
    def progress(self, quiet: bool) -> Iterator[None]:
        """Show a bar on a terminal while records are read, once per pass over the table."""
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as display:
            bar = display.add_task("reading", total=self.rows)
            self._advance = lambda done: display.update(bar, completed=done)
            try:
                yield
            finally:
                self._advance = None

    def read(self, *what: Any, **how: Any) -> Iterator[TableBatch]:
        """Read a fragment in batches, and advance the bar."""
        for batch in super().read(*what, **how):
            yield batch
            if self._advance is not None:
                self._advance(batch.first_id + len(batch.values))
