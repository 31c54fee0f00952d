"""The votes of teachers: one noisy release that labels every query."""

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.ledger.cost import LedgerHook
from inosgm.mechanism.mechanism import INOSGM
from inosgm.methods.ipate.teachers import Teachers
from inosgm.owners import labels_at


class NoisyVotes(INOSGM):
    """Releases the weighted votes of teachers on all queries at once: a matrix with a row per query, flattened.

    **Guarantee.** For one record of owner n added to or removed from the training data of the teachers, the release is
    one Gaussian mechanism with noise multiplier noise_scale / C_n of `teachers.plan`; `Teachers` has the proof. The
    guarantee assumes that every teacher was trained separately, on the records that `partition_records` returns for
    it, and that nothing else about the teachers is released.

    The rows of its data are teachers, not records. Their number is public: a record changes votes of its teachers, so
    that the sensitivity is proven for the sum (`Teachers`) and not for each row. A row is attributed to an owner whose
    records its teacher may learn from. The norm of a row, w sqrt(queries), is below the sensitivity of that owner,
    copies w sqrt(2 queries). Clipping therefore never changes a vote, which would void the proof. There is no tail.

    Args:
        teachers: The teachers.
        classes: Number of classes.
        key: As in `INOSGM`. A tail or another clipping cannot be set: the proof is for unchanged votes.
        ledger: As in `INOSGM`.
        note: As in `INOSGM`.

    >>> from inosgm import Owners
    >>> from inosgm.methods.ipate import weighted_teachers
    >>> owners = Owners(of_record=["a"] * 60 + ["b"] * 30, epsilon={"a": 8.0, "b": 9.0}, delta=1e-5)
    >>> votes = NoisyVotes(weighted_teachers(owners, count=30, queries=2), classes=3, key=1)
    >>> votes.labels(np.tile([2, 0], (30, 1)))
    array([2, 0])
    """

    sizes_vary = True

    def __init__(
        self,
        teachers: Teachers,
        classes: int,
        *,
        key: int | None = None,
        ledger: LedgerHook | None = None,
        note: str = "",
    ) -> None:
        self._teachers, self._classes = teachers, _validate.count("classes", classes, least=1)
        numbers = np.arange(teachers.count)
        may = (teachers.first <= numbers[:, None]) & (numbers[:, None] < teachers.first + teachers.among)
        owners = labels_at(teachers.plan.labels, may.argmax(axis=1))
        super().__init__(teachers.plan, owners, key=key, ledger=ledger, note=note)

    def contributions(self, batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return the weighted votes of some teachers: one-hot over the classes for each query, flattened."""
        numbers, votes = batch
        ones = votes[:, :, None] == np.arange(self._classes)
        weighted = self._teachers.weights[numbers, None, None] * ones
        return np.asarray(weighted.reshape(len(numbers), self._teachers.queries * self._classes))

    def scores(self, batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return equal scores: no vote is down-weighted."""
        return np.zeros(len(batch[0]))

    def labels(self, votes: np.ndarray) -> np.ndarray:
        """Release the votes, and return the class with the largest noisy count for each query.

        Args:
            votes: The class that each teacher (a row) assigns to each query (a column). Private.

        Raises:
            ValueError: for votes of another shape; nothing is charged or released.
        """
        expected = (self._teachers.count, self._teachers.queries)
        if votes.shape != expected:
            raise ValueError(f"votes must have a row per teacher and a column per query, {expected}, got {votes.shape}")
        value = self.release((np.arange(self._teachers.count), votes)).value
        return np.asarray(value.reshape(self._teachers.queries, self._classes).argmax(axis=1))
