"""An audit and its findings as tables, files and a figure."""

import io
import os
from typing import Any, BinaryIO, Self

from inosgm._internal.plugins import plugin
from inosgm.audit import mechanism_store, parquet_tables, tables
from inosgm.audit.claims import claims_of
from inosgm.audit.findings import Findings
from inosgm.audit.secret_files import write_secret
from inosgm.audit.shadow_study import stored
from inosgm.jobs import Store

FILES = ("audit.parquet", "roc.parquet", "bounds.parquet", "differences.parquet", "roc.svg")
"""The files that `Audit.write` puts into a store, beside the audits of the mechanism."""


class Audit(Findings):
    """The success of attacks against a method, beside the promises to each owner.

    NOT PRIVATE: everything here is as secret as the records.

    Args:
        shadows: The scores of shadow models.
        claims: The promises to each owner.
        attacks: The reported attacks, by their names in `ATTACKS`; tables and figures show the first in full.
        targets: The attacked shadow models; every one in turn, with the others, if not given.
        mechanisms: Audits of the mechanism itself, for some owners, all or none.
        canaries: The number of canaries of every owner; if not 0, `shadows` holds only these.
        confidence: All lower bounds hold at once with this probability, if `mechanisms` were made with
            `mechanism_confidence`. Each interval around an attack's success does by itself.

    Raises:
        ValueError: for unknown attacks and targets, and for claims about others than the owners.
    """

    @classmethod
    def of(cls, store: Store | str | os.PathLike[str], shadows: int | None = None, **options: Any) -> Self:
        """Read an audit from a store; nothing is trained, and neither data nor the method's code are needed.

        Stored audits of the mechanism are included if their confidence is high enough.

        Args:
            store: The store.
            shadows: The number of shadow models to read; all that were ever requested if not given.
            **options: Other arguments of `Audit`; the default confidence is that of the stored audit.

        Raises:
            FileNotFoundError: for a store of something else.
            StoreDamaged: for a result that was changed after it was written.
        """
        store = store if isinstance(store, Store) else Store(store)
        study = stored(store, shadows)
        claims = claims_of(study.plan)
        mechanisms, confidence = mechanism_store.kept(store, claims)
        asked = options.setdefault("confidence", cls.confidence if confidence is None else confidence)
        sure = [one for one in mechanisms if one.confidence >= mechanism_confidence(asked, len(mechanisms))]
        options.setdefault("mechanisms", tuple(sure))
        return cls(shadows=study.shadows, claims=claims, canaries=study.canaries, **options)

    def table(self) -> str:
        """Return the findings about each owner as text."""
        return tables.table(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all findings except the curves, for JSON."""
        return tables.to_dict(self)

    def to_parquet(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write a Parquet file with a row for each attack and owner: the success of the attack, and the promise.

        Args:
            file: Its name, created with mode 0600, or a file that is open for writing.
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

        Audits of the mechanism are written as well, so that `Audit.of` includes them.
        """
        stream = io.BytesIO()
        self.figure(stream)
        tables = (parquet_tables.numbers, parquet_tables.curves, parquet_tables.bounds, parquet_tables.differences)
        if self.mechanisms:
            mechanism_store.keep(store, self.mechanisms, self.confidence)
        for name, content in zip(FILES, [*(make(self) for make in tables), stream.getvalue()], strict=True):
            store.put(name, content, secret=True)


def mechanism_confidence(confidence: float, count: int) -> float:
    """Return the confidence that each of `count` audits of the mechanism needs for all bounds to hold at once.

    They get half of the error; the bounds from shadow models get the other half.
    """
    return 1 - (1 - confidence) / (2 * count)
