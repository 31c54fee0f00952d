"""Records that belong to several people: a choice of records of which nobody has more than a few."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Purpose
from inosgm._internal.labels import Label
from inosgm.mechanism.hashed_sampling import siphash


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedContributions:
    """The records that `bound_contributions` has chosen.

    Attributes:
        kept: The positions of the chosen records, ascending.
        left_out: The positions of the others, ascending.
        most: The largest number of chosen records of one person.
        people: The number of people.
        cut: The number of people who have fewer records than before.
    """

    kept: np.ndarray
    left_out: np.ndarray
    most: int
    people: int
    cut: int

    def report(self) -> str:
        """Return a sentence that says what was left out."""
        records = self.kept.size + self.left_out.size
        return (
            f"{self.kept.size} of {records} records are kept, so that none of {self.people} people has more than "
            f"{self.most}; {self.left_out.size} are left out, of which {self.cut} people have some"
        )


def bound_contributions(
    people_of_record: Sequence[Iterable[Label]], *, most: int, seed: int = 0
) -> BoundedContributions:
    """Choose records that belong to several people each, so that nobody has more than `most` of them.

    Records are looked at in the order of a hash of their position; a record is chosen if none of its people has `most`
    chosen records yet (Ganesh et al. 2025). No further record can be chosen then.

    **Guarantee.** Everybody has at most `most` of the chosen records, so taking one person's records out of the chosen
    ones changes at most `most` records. The choice follows from `people_of_record` and the seed alone, never from what
    records contain: a mechanism on the chosen records that protects groups of `most` records (`Plan.group_privacy`)
    protects every person, if WHO belongs to which record is public. If that is to be hidden as well, nothing follows:
    a choice that is made anew without a person may differ in records of people who never met it, because places that
    become free are taken by others, and theirs by others still.

    Args:
        people_of_record: The people of each record; a person who is named twice counts once. A record of nobody is
            chosen.
        most: The largest number of records of one person, at least 1.
        seed: Determines the order, with the positions of the records.

    Raises:
        ValueError: for a number below 1.
        TypeError: for a record whose people are one text instead of a list.

    >>> messages = [("ann", "bob"), ("ann", "cyd"), ("bob", "cyd"), ("ann", "dan")]
    >>> chosen = bound_contributions(messages, most=1)
    >>> chosen.kept.tolist(), chosen.left_out.tolist()
    ([0], [1, 2, 3])
    """
    most = _validate.count("most", most, least=1)
    secret = Purpose.CONTRIBUTION_ORDER.hasher(str(_validate.count("seed", seed)).encode()).digest()
    people = []
    for position, some in enumerate(people_of_record):
        if isinstance(some, str | bytes | int):
            raise TypeError(
                f"people_of_record must hold a list of people for each record, got one {type(some).__name__} at "
                f"position {position}: write [person] for a record of one person"
            )
        people.append(frozenset(some))
    held, chosen = Counter[Label](), np.zeros(len(people), dtype=np.bool_)
    for position in np.argsort(siphash(secret, np.arange(len(people))), kind="stable").tolist():
        if all(held[person] < most for person in people[position]):
            chosen[position] = True
            held.update(people[position])
    before = Counter(person for some in people for person in some)
    return BoundedContributions(
        kept=np.flatnonzero(chosen),
        left_out=np.flatnonzero(~chosen),
        most=most,
        people=len(before),
        cut=sum(held[person] < count for person, count in before.items()),
    )
