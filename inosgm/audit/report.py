"""An audit: what it has found, as tables, files and a figure."""

import io
import os
from typing import Any, BinaryIO, Self

from inosgm._internal.plugins import plugin
from inosgm.audit import mechanism_store, parquet_tables, tables
from inosgm.audit.claims import claims_of
from inosgm.audit.findings import Findings
from inosgm.audit.secret_files import write_secret
from inosgm.audit.study import stored
from inosgm.jobs import Store

FILES = ("audit.parquet", "roc.parquet", "bounds.parquet", "differences.parquet", "roc.svg")
"""What `Audit.write` puts into a store, beside what it knows about the mechanism."""


class Audit(Findings):
    """What attacks achieve against a method, beside what was promised to each owner.

    NOT PRIVATE: everything here is as secret as the records.

    Args:
        shadows: The scores that attacks look at.
        claims: What was promised to each owner.
        attacks: Those that are reported, by their names in `ATTACKS`; tables and figures show the first in full.
        targets: Which shadow models are attacked; every one in turn, with the others, if not given.
        mechanisms: What audits of the mechanism itself have found, for some owners, all or none.
        canaries: How many records of every owner were made to stand out; if any, `shadows` are about them alone.
        confidence: All lower bounds hold at once with this probability, if `mechanisms` were made with
            `mechanism_confidence`. Each interval around an attack's success does by itself.

    Raises:
        ValueError: for attacks and targets that there are not, and claims about others than the owners.
    """

    @classmethod
    def of(cls, store: Store | str | os.PathLike[str], shadows: int | None = None, **options: Any) -> Self:
        """Read what a store holds of an audit; nothing is trained, and neither data nor the method's code are needed.

        Audits of the mechanism that were written there are in it, if they are as sure as the confidence takes.

        Args:
            store: Where it is.
            shadows: How many shadow models are wanted; all that were ever asked for if not given.
            **options: What else `Audit` takes; by default the confidence is that of the audit that was written.

        Raises:
            FileNotFoundError: for a store of something else.
            StoreDamaged: for a result that is not what was written.
        """
        store = store if isinstance(store, Store) else Store(store)
        found = stored(store, shadows)
        claims = claims_of(found.plan)
        mechanisms, confidence = mechanism_store.kept(store, claims)
        asked = options.setdefault("confidence", cls.confidence if confidence is None else confidence)
        sure = [one for one in mechanisms if one.confidence >= mechanism_confidence(asked, len(mechanisms))]
        options.setdefault("mechanisms", tuple(sure))
        return cls(shadows=found.shadows, claims=claims, canaries=found.canaries, **options)

    def table(self) -> str:
        """Return what there is to know about each owner, for people."""
        return tables.table(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it but the curves, for JSON."""
        return tables.to_dict(self)

    def to_parquet(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write a Parquet file with a row for each attack and owner: how well the attack does, and what was promised.

        Args:
            file: Its name, for its owner's eyes only, or a file that is open for writing.
        """
        write_secret(file, parquet_tables.numbers(self))

    def figure(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Draw true against false positive rates of the first attack, a line for each owner.

        Args:
            file: Its name, whose ending says the format, or a file that is open for writing, which becomes SVG.
        """
        plugin("draw an audit")({"": self}, file, self.attacks[0])

    def write(self, store: Store) -> None:
        """Write FILES into a store: numbers, curves, bounds and t-tests as Parquet, and the figure.

        What is known about the mechanism is written, too, so that `Audit.of` knows it.
        """
        stream = io.BytesIO()
        self.figure(stream)
        tables = (parquet_tables.numbers, parquet_tables.curves, parquet_tables.bounds, parquet_tables.differences)
        if self.mechanisms:
            mechanism_store.keep(store, self.mechanisms, self.confidence)
        for name, content in zip(FILES, [*(make(self) for make in tables), stream.getvalue()], strict=True):
            store.put(name, content, secret=True)


def mechanism_confidence(confidence: float, count: int) -> float:
    """Return the confidence that so many audits of the mechanism need for all bounds of an audit to hold at once.

    They get half of the error; the bounds from shadow models get the other half.
    """
    return 1 - (1 - confidence) / (2 * count)
