"""The partition of records among teachers: public hashes of each record decide, and no other record matters."""

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Purpose
from inosgm.mechanism.hashed_sampling import siphash
from inosgm.methods.ipate.teachers import Teachers


def partition_records(teachers: Teachers, owners: ArrayLike, ids: ArrayLike, *, seed: int) -> list[np.ndarray]:
    """Return the positions of the records that each teacher learns from, ascending.

    **Guarantee.** The teachers of a record are a function of its id, its owner and the seed. A record that is added or
    removed therefore changes the training data of its own teachers only; all other records keep their teachers.
    (Shuffling all records and cutting them into blocks has the same distribution, but there one record moves all
    others.)

    Args:
        teachers: The teachers.
        owners: The owner of each record, as a position in the plan's labels.
        ids: An integer for each record that does not depend on the other records, such as `ids_of` returns. Positions
            are not valid ids: they change when an earlier record is removed.
        seed: Public; it determines the partition.

    Raises:
        ValueError: if `ids` and `owners` have different shapes, or the seed is not a whole number >= 0.

    >>> from inosgm import Owners
    >>> from inosgm.methods.ipate import upsampled_teachers
    >>> owners = Owners(of_record=["a"] * 6 + ["b"] * 3, epsilon={"a": 1.0, "b": 2.5}, delta=1e-5)
    >>> teachers = upsampled_teachers(owners, count=3, queries=1)
    >>> [positions.tolist() for positions in partition_records(teachers, owners.of_record, np.arange(9), seed=0)]
    [[7, 8], [1, 2, 6, 8], [0, 3, 4, 5, 6, 7]]
    """
    owner, id_of = np.asarray(owners, dtype=np.int64), np.asarray(ids)
    if id_of.shape != owner.shape:
        raise ValueError(f"ids must be one per record: got {id_of.shape} for {owner.shape}")
    seed = _validate.count("seed", seed)
    assigned, copied = [], []
    for copies in np.unique(teachers.copies[owner]).tolist():
        records = np.flatnonzero(teachers.copies[owner] == copies)
        offsets = _distinct_offsets(id_of[records], teachers.among[owner[records]], copies, seed)
        assigned.append((teachers.first[owner[records], None] + offsets).ravel())
        copied.append(np.repeat(records, copies))
    if not copied:
        return [np.empty(0, dtype=np.int64) for _ in range(teachers.count)]
    teacher, record = np.concatenate(assigned), np.concatenate(copied)
    order = np.lexsort([record, teacher])
    ends = np.cumsum(np.bincount(teacher, minlength=teachers.count))
    return np.split(record[order], ends[:-1])


def ids_of(*columns: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of the content of each record, which does not depend on its position.

    Equal records have equal ids, and therefore the same teachers.

    Args:
        columns: Arrays with one row per record, such as inputs and classes.

    >>> x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    >>> np.array_equal(ids_of(x, y)[1:], ids_of(x[1:], y[1:]))
    True
    """
    rows = [np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8) for column in columns]
    ids = np.empty(len(rows[0]), dtype=np.uint64)
    for position, cells in enumerate(zip(*rows, strict=True)):
        state = Purpose.RECORD_ID.hasher()
        for cell in cells:
            state.update(cell.data)
        ids[position] = int.from_bytes(state.digest(), "little")
    return ids


def _distinct_offsets(ids: np.ndarray, among: np.ndarray, copies: int, seed: int) -> np.ndarray:
    """Draw `copies` distinct integers below `among` for each id, uniformly over subsets (Floyd's algorithm)."""
    chosen = np.empty((ids.size, copies), dtype=np.int64)
    for draw in range(copies):
        last = among - copies + draw
        secret = Purpose.TEACHER_KEY.hasher(f"{seed} {draw}".encode()).digest()
        offset = (siphash(secret, ids) % (last + 1).astype(np.uint64)).astype(np.int64)
        taken = (chosen[:, :draw] == offset[:, None]).any(axis=1)
        chosen[:, draw] = np.where(taken, last, offset)
    return chosen
