"""The purpose of a store: training runs, the shadow models of an audit, or a statistic, and nothing else beside it."""

from contextlib import suppress

from inosgm.jobs.store import Store

STUDY, AUDIT, STATISTIC = "study.json", "audit.json", "statistic.json"
"""The documents that say so."""

RUN = "plan-0.json"
"""A file that is in every run directory, and in no store."""

PURPOSES = {STUDY: "training runs", AUDIT: "shadow models of an audit", STATISTIC: "a statistic"}


def require_purpose(store: Store, name: str) -> None:
    """Raise if a store holds something else than what the document of this name is about."""
    with suppress(FileNotFoundError):
        store.get(RUN)
        raise ValueError(f"store: {store.uri} is the directory of a run: take another store (--store)")
    for other, what in PURPOSES.items():
        if other != name and holds(store, other):
            raise ValueError(f"store: {store.uri} holds {what}: take another store (--store)")


def claim_purpose(store: Store, name: str) -> None:
    """Set the purpose of a store once, before anything is charged or written there.

    Raises:
        ValueError: if the store has another purpose.
    """
    require_purpose(store, name)
    known = store.claim("purpose.json", {"purpose": name})["purpose"]
    if known != name:
        raise ValueError(f"store: {store.uri} holds {PURPOSES[known]}: take another store (--store)")


def holds(store: Store, name: str) -> bool:
    """Return whether a store has such a document."""
    try:
        store.claimed(name)
    except FileNotFoundError:
        return False
    return True
