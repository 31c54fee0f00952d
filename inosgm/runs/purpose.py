"""What a store is for: training runs, or the shadow models of an audit, never both."""

from inosgm.jobs import Store

STUDY, AUDIT = "study.json", "audit.json"
"""The documents that say so."""

PURPOSES = {STUDY: "training runs", AUDIT: "shadow models of an audit"}


def require_purpose(store: Store, name: str) -> None:
    """Raise if a store holds something else than what the document of this name is about."""
    for other, what in PURPOSES.items():
        if other != name and holds(store, other):
            raise ValueError(f"store: {store.uri} holds {what}: take another store (--store)")


def holds(store: Store, name: str) -> bool:
    """Say whether a store has such a document."""
    try:
        store.claimed(name)
    except FileNotFoundError:
        return False
    return True
