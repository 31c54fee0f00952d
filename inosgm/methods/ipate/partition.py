"""Who learns from which record: decided by public coins of the record's own, and by nothing else."""

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Purpose
from inosgm.mechanism.hashed_sampling import siphash
from inosgm.methods.ipate.teachers import Teachers


def partition_records(teachers: Teachers, owners: ArrayLike, ids: ArrayLike, *, seed: int) -> list[np.ndarray]:
    """Return the positions of the records that each teacher learns from, ascending.

    **Guarantee.** Which teachers a record goes to is a function of its id, its owner and the seed. So a record that is
    added or removed changes what its own teachers learn from, and nothing else: others stay where they are. (Shuffling
    all records and cutting them into stretches is the same in law, but lets a single record move all others.)

    Args:
        teachers: The teachers.
        owners: The owner of each record, as a position in the plan's labels.
        ids: A whole number for each record that it keeps whoever else is there, such as `ids_of` makes. A position is
            none: it is another one when somebody before it leaves.
        seed: Public: everything here is a function of it.

    >>> from inosgm import Owners
    >>> from inosgm.methods.ipate import upsampled_teachers
    >>> owners = Owners(of_record=["a"] * 6 + ["b"] * 3, epsilon={"a": 1.0, "b": 2.5}, delta=1e-5)
    >>> teachers = upsampled_teachers(owners, count=3, queries=1)
    >>> [some.tolist() for some in partition_records(teachers, owners.of_record, np.arange(9), seed=0)]
    [[7, 8], [1, 2, 6, 8], [0, 3, 4, 5, 6, 7]]
    """
    owner, names = np.asarray(owners, dtype=np.int64), np.asarray(ids)
    if names.shape != owner.shape:
        raise ValueError(f"ids must be one per record: got {names.shape} for {owner.shape}")
    seed = _validate.count("seed", seed)
    learner, record = [], []
    for copies in np.unique(teachers.copies[owner]).tolist():
        some = np.flatnonzero(teachers.copies[owner] == copies)
        drawn = _drawn(names[some], teachers.among[owner[some]], copies, seed)
        learner.append((teachers.first[owner[some], None] + drawn).ravel())
        record.append(np.repeat(some, copies))
    if not record:
        return [np.empty(0, dtype=np.int64) for _ in range(teachers.count)]
    to, which = np.concatenate(learner), np.concatenate(record)
    order = np.lexsort([which, to])
    ends = np.cumsum(np.bincount(to, minlength=teachers.count))
    return np.split(which[order], ends[:-1])


def ids_of(*columns: np.ndarray) -> np.ndarray:
    """Return a number of 64 bits for each record, made of everything in it: the same wherever it stands.

    Records that are equal have the same number, and the same teachers.

    Args:
        columns: Arrays with a row per record, such as inputs and classes.

    >>> x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    >>> np.array_equal(ids_of(x, y)[1:], ids_of(x[1:], y[1:]))
    True
    """
    rows = [np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8) for column in columns]
    found = np.empty(len(rows[0]), dtype=np.uint64)
    for place, parts in enumerate(zip(*rows, strict=True)):
        state = Purpose.RECORD_ID.hasher()
        for part in parts:
            state.update(part.data)
        found[place] = int.from_bytes(state.digest(), "little")
    return found


def _drawn(ids: np.ndarray, among: np.ndarray, copies: int, seed: int) -> np.ndarray:
    """Draw so many different numbers below `among` for each id, all choices alike (Floyd's algorithm)."""
    chosen = np.empty((ids.size, copies), dtype=np.int64)
    for draw in range(copies):
        last = among - copies + draw
        secret = Purpose.TEACHER_KEY.hasher(f"{seed} {draw}".encode()).digest()
        place = (siphash(secret, ids) % (last + 1).astype(np.uint64)).astype(np.int64)
        taken = (chosen[:, :draw] == place[:, None]).any(axis=1)
        chosen[:, draw] = np.where(taken, last, place)
    return chosen
