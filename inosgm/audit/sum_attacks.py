"""Attacks on a sum of weighted records: synthetic batches, and batches of real records."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import array_api_compat
import numpy as np

from inosgm._internal.records import gather, records_in
from inosgm._internal.trees import tree_leaves
from inosgm._internal.validate import Array
from inosgm.mechanism.inspection import Inspection

State = TypeVar("State")


class PairSearch(Protocol[State]):
    """A space of pairs of neighbouring batches with random starts, moves, and the ratio to maximise."""

    def start(self, generator: np.random.Generator) -> State:
        """Return a random pair to start from."""
        ...

    def move(self, state: State, generator: np.random.Generator) -> State:
        """Return a neighbour of a pair in the space of attacks."""
        ...

    def ratio(self, state: State) -> float:
        """Return the change of the sum, relative to the claimed sensitivity."""
        ...

    def evidence(self, state: State) -> dict[str, Any]:
        """Return the pair as a report shows it."""
        ...


def climb(attack: PairSearch[State], budget: int, generator: np.random.Generator) -> tuple[float, dict[str, Any]]:
    """Return the worst ratio of a hill climb, and its evidence.

    A fifth of the budget is for random starts; the rest climbs from the best eight.
    """
    starts = [attack.start(generator) for _ in range(max(1, budget // 5))]
    ranked = sorted(((attack.ratio(state), i, state) for i, state in enumerate(starts)), key=lambda item: item[:2])
    climbers = [(ratio, state) for ratio, _, state in ranked[-8:]]
    for used in range(budget - len(starts)):
        index = used % len(climbers)
        ratio, state = climbers[index]
        moved = attack.move(state, generator)
        moved_ratio = attack.ratio(moved)
        if moved_ratio >= ratio:
            climbers[index] = (moved_ratio, moved)
    ratio, state = max(climbers, key=lambda item: item[0])
    return ratio, attack.evidence(state)


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticBatch:
    """Scores and sensitivities of a synthetic batch, and the position of the added record."""

    scores: np.ndarray
    sensitivities: np.ndarray
    owners: np.ndarray
    added: int
    dtype: type[np.floating[Any]]
    case: str


RowSum = Callable[[np.ndarray, SyntheticBatch, np.ndarray], Array]
_LARGEST_BATCH = 1 << 16
"""Approximate largest number of records in a batch of data: a sum of more takes long."""

_SIZES = np.array([1, 2, 3, 5, 9, 17, 18, 24, 33, 48, 65, 97, 130])


class SyntheticPairs:
    """Synthetic batches against a sum of rows; `totals` are total sensitivities around which to search.

    With individual accounting, `paid` returns the cost of each record, which must bound the change of the sum.
    """

    def __init__(self, total: RowSum, totals: list[float], stretch: float = 1.0, paid: RowSum | None = None) -> None:
        self._sum, self._totals, self._stretch, self._paid = total, totals, stretch, paid

    def start(self, generator: np.random.Generator) -> SyntheticBatch:
        """Return a random pair to start from."""
        n = int(generator.choice(_SIZES)) + 1
        added = int(generator.choice([0, n - 1, int(generator.integers(n))]))
        scores, tied = _scores(generator, n)
        sensitivities, spread = _sensitivities(generator, n)
        rank = generator.choice(["lowest", "highest", "any"])
        if rank != "any":
            scores[added] = {"lowest": np.nanmin(scores) - 1, "highest": np.nanmax(scores) + 1}[rank]
        if generator.random() < 0.5:
            sensitivities[added] *= 10.0 ** generator.integers(-3, 1)
        sensitivities *= generator.choice(self._totals) * generator.uniform(0.5, 3) / sensitivities.sum()
        dtype = np.float32 if generator.random() < 0.25 else np.float64
        name = f"{tied}, {spread}, added record ranked {rank}, {np.dtype(dtype).name}"
        batch = SyntheticBatch(
            scores=scores,
            sensitivities=sensitivities,
            owners=generator.integers(0, 3, n).astype(float),
            added=added,
            dtype=dtype,
            case=name,
        )
        return _rounded(batch)

    def move(self, state: SyntheticBatch, generator: np.random.Generator) -> SyntheticBatch:
        """Return a neighbour of a pair in the space of attacks."""
        n = state.scores.size
        scores, sensitivities = state.scores.copy(), state.sensitivities.copy()
        owners, added = state.owners, state.added
        i, j = generator.integers(n, size=2)
        match generator.integers(9):
            case 0:
                scores[i] = scores[j]
            case 1:
                scores[i] = generator.normal()
            case 2:
                scores[[i, j]] = scores[[j, i]]
            case 3:
                sensitivities[i] = sensitivities[j]
            case 4:
                sensitivities[i] *= generator.choice([0.1, 0.5, 0.9, 1.1, 2.0, 10.0])
            case 5:
                sensitivities *= generator.choice([0.5, 0.9, 1.1, 2.0])
            case 6:
                added = int(i)
            case 7:
                sensitivities[added] *= generator.choice([0.1, 0.5, 2.0])
            case _:  # add or remove a record
                rows = (
                    np.delete(np.arange(n), i)
                    if n > 2 and i != added and generator.random() < 0.5
                    else np.insert(np.arange(n), i, j)
                )
                if rows.size <= 2 * _SIZES[-1]:
                    scores, sensitivities, owners = scores[rows], sensitivities[rows], owners[rows]
                    added = added + (rows.size - n) * int(i <= added)
        return _rounded(replace(state, scores=scores, sensitivities=sensitivities, owners=owners, added=added))

    def ratio(self, state: SyntheticBatch) -> float:
        """Return the change of the sum, relative to the claimed sensitivity."""
        return self._change(state, self._worst_vectors(state))

    def evidence(self, state: SyntheticBatch) -> dict[str, Any]:
        """Return the pair as a report shows it."""
        contributions = self._worst_vectors(state)
        everyone, others = _rows(state)

        def batch(rows: np.ndarray) -> dict[str, np.ndarray]:
            columns = {"contributions": contributions, "scores": state.scores, "sensitivities": state.sensitivities}
            return {name: column[rows] for name, column in columns.items()}

        batches = {"with_record": batch(everyone), "without_record": batch(others)}
        return {"case": state.case, "added": state.added, **batches}

    def _worst_vectors(self, state: SyntheticBatch) -> Array:
        """Return vectors along one line, directed so that all changes of weight add up.

        With orthogonal vectors as long as allowed, the sum shows the weight of each record; the signs of the
        changes are the directions that add up.
        """
        everyone, others = _rows(state)
        basis: Array = np.diag(self._stretch * state.sensitivities).astype(state.dtype)
        change = _float64(self._sum(basis.copy(), state, everyone)) - _float64(self._sum(basis[others], state, others))
        signs = np.where(change < 0, -1.0, 1.0)  # records that do not move add up, so that rounding errors show
        return (signs * self._stretch * state.sensitivities).astype(state.dtype)[:, None]

    def _change(self, state: SyntheticBatch, contributions: np.ndarray) -> float:
        everyone, others = _rows(state)
        change = _float64(self._sum(contributions.copy(), state, everyone)) - _float64(
            self._sum(contributions[others], state, others)
        )
        bounds = state.sensitivities if self._paid is None else self._paid(contributions.copy(), state, everyone)
        ratio = float(np.linalg.norm(change) / bounds[state.added])
        return np.inf if np.isnan(ratio) else ratio


def _rows(state: SyntheticBatch) -> tuple[np.ndarray, np.ndarray]:
    everyone = np.arange(state.scores.size)
    return everyone, np.delete(everyone, state.added)


def _rounded(state: SyntheticBatch) -> SyntheticBatch:
    """Return the batch with numbers that the attacked dtype can hold, and a ratio of sensitivities up to 1e6."""
    sensitivities = state.sensitivities
    if sensitivities.max() > 1e6 * sensitivities.min():
        sensitivities = np.maximum(sensitivities, sensitivities.max() / 1e6)
    return replace(
        state,
        scores=state.scores.astype(state.dtype).astype(np.float64),
        sensitivities=sensitivities.astype(state.dtype).astype(np.float64),
    )


def _scores(generator: np.random.Generator, n: int) -> tuple[np.ndarray, str]:
    kind = generator.choice(["tied scores", "few scores", "sorted scores", "odd scores", "distinct scores"])
    scores = generator.normal(size=n)
    match str(kind):
        case "tied scores":
            scores[:] = 0.0
        case "few scores":
            scores = np.round(scores)
        case "sorted scores":
            scores = np.sort(scores)[:: generator.choice([-1, 1])].copy()
        case "odd scores":
            odd = generator.random(n) < 0.3
            odd[0] = False
            scores[odd] = generator.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], size=int(odd.sum()))
    return scores, str(kind)


def _sensitivities(generator: np.random.Generator, n: int) -> tuple[np.ndarray, str]:
    kind = generator.choice(
        ["equal sensitivities", "sensitivities 1e-3..1e3", "two sensitivities", "mixed sensitivities"]
    )
    match str(kind):
        case "equal sensitivities":
            return np.ones(n), str(kind)
        case "sensitivities 1e-3..1e3":
            return 10.0 ** generator.uniform(-3, 3, n), str(kind)
        case "two sensitivities":
            return generator.choice([1.0, 10.0 ** generator.integers(1, 4)], size=n), str(kind)
        case _:
            return generator.uniform(0.2, 2, n), str(kind)


class DataPairs:
    """Batches of real records, or of whole units, through a mechanism's own contributions and scores."""

    def __init__(self, mechanism: Inspection, data: Any) -> None:
        self._mechanism, self._data, self._size = mechanism, data, mechanism.owners.size
        if records_in(data) != mechanism.n_records or not self._size:
            given = f"got {records_in(data)} for {mechanism.n_records}"
            raise ValueError(f"data must hold one record per owner entry: {given}")
        sensitivities = mechanism.plan.sensitivities[mechanism.owners]
        self._records = mechanism.filter()
        self._filling = min(mechanism.tail.length / float(sensitivities.mean()), _LARGEST_BATCH)

    def start(self, generator: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return a random pair to start from."""
        n = min(int(generator.choice(_SIZES)), self._size)
        if self._filling and generator.random() < 0.5:  # because a long tail would contain every small batch
            n = min(int(self._filling * generator.uniform(0.8, 1.6)) + 2, self._size)
        rows = np.sort(generator.choice(self._size, size=n, replace=False))
        return rows, int(generator.choice(rows))

    def move(self, state: tuple[np.ndarray, int], generator: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return a neighbour of a pair in the space of attacks."""
        rows, added = state
        other = int(generator.integers(self._size))
        match generator.integers(4):
            case 0:
                added = int(generator.choice(rows))
            case 1:
                rows = np.union1d(rows, [other])
            case 2:
                rows = rows[(rows == added) | (rows != generator.choice(rows))]
            case _:
                rows = np.union1d(rows[(rows == added) | (rows != generator.choice(rows))], [other])
        return rows, added

    def ratio(self, state: tuple[np.ndarray, int]) -> float:
        """Return the change of the sum, relative to the claimed sensitivity."""
        rows, added = state
        batches = [rows[rows != added], rows]
        sums = map(tree_leaves, self._mechanism.sums(self._data, batches, filters=[self._records] * 2))
        if self._records is None:
            bound = self._mechanism.plan.sensitivities[self._mechanism.owners[added]]
        else:  # the cost of a record is its contribution, which must bound the change
            bound = self._records.asked(added)
        moved = float(np.sqrt(sum(np.sum((_float64(a) - _float64(b)) ** 2) for a, b in zip(*sums, strict=True))))
        ratio = moved / bound if bound else (np.inf if moved else 0.0)
        return np.inf if np.isnan(ratio) else ratio

    def evidence(self, state: tuple[np.ndarray, int]) -> dict[str, Any]:
        """Return the pair as a report shows it."""
        rows, added = state
        larger, smaller = (
            {"positions": part, "records": gather(self._data, self._mechanism.records_of(part))}
            for part in (rows, rows[rows != added])
        )
        position = int(np.searchsorted(rows, added))
        return {"case": "records of the data", "added": position, "with_record": larger, "without_record": smaller}


def _float64(array: Array) -> np.ndarray:
    if array is None:
        raise TypeError("the function returned None: is a `return` missing?")
    if array_api_compat.is_torch_array(array):
        array = array.detach().cpu().numpy()
    return np.asarray(array, dtype=np.float64)
