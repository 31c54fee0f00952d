"""Tables that show how far they were read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress

from inosgm.statistics.tables import Table, TableBatch


class Watched(Table):
    """A table that tells, while it is watched, which record was read last."""

    _tell: Callable[[int], None] | None = None

    @contextmanager
    def watched(self, quiet: bool) -> Iterator[None]:
        """Show a bar on a terminal, for every pass over the table from the beginning."""
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
            bar = progress.add_task("reading", total=self.rows)
            self._tell = lambda done: progress.update(bar, completed=done)
            try:
                yield
            finally:
                self._tell = None

    def read(self, *what: Any, **how: Any) -> Iterator[TableBatch]:
        """Read a fragment in batches, and tell so."""
        for batch in super().read(*what, **how):
            yield batch
            if self._tell is not None:
                self._tell(batch.first_id + len(batch.values))
