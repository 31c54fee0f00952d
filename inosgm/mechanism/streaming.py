"""The exact ordered sum of a stream: any chunks, any order of arrival and any tree of merges give the same bits."""

import copy
import math
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Purpose
from inosgm._internal.once import CoinClaim
from inosgm._internal.trees import require_floating, tree_digest
from inosgm._internal.validate import Array
from inosgm.ledger.cost import CoinLedger, LedgerHook
from inosgm.mechanism import sum_file as _sum_file
from inosgm.mechanism.contributions import Cells, Contributions, Dense
from inosgm.mechanism.fixed_point import BLOCK, LONGEST, Grid, WholeSum, split
from inosgm.mechanism.hashed_sampling import HashedSampler, Sampler, included, limits_of, secret_of
from inosgm.mechanism.mechanism import INOSGM, DrawnBatch, Release, require_sizes
from inosgm.mechanism.noise import DiscreteNoise, Noise, streams
from inosgm.mechanism.orders import Descending, Order
from inosgm.mechanism.rank_window import PassTask, RankCounts, RankWindow, needs_passes, sum_in_passes
from inosgm.mechanism.tail_buffer import HeldRecords, Kept
from inosgm.mechanism.tails import HardTail, NoTail, Tail
from inosgm.mechanism.weights import checked_scores
from inosgm.owners import Owners
from inosgm.planning.plan import Plan

_WIDE = 1 << 17  # numbers that are worked on at once: they stay in the cache
_COLUMNS = ("scores", "ids", "owners", "rows", "cells")  # what the tail is called in bytes, in this order


_Drawn = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | int, np.ndarray | None, np.ndarray]


class OrderedSum:
    """The weighted sum of an INO-SGM over records that come in chunks, on whatever machines.

    Only the tail is held: a record is kept while the records that rank below it have less sensitivity together than
    the tail is long. That sum only grows, so everything else joins the full-weight sum for ever. Memory is that of
    ceil(tail.length / smallest sensitivity) records and a chunk, however many records there are.

    Sensitivities, thresholds and contributions are whole numbers of a unit, about 2^-38 of the largest sensitivity,
    rounded towards zero, each by itself; their sums are exact. Weights are computed from exact thresholds at the end.
    So the state is a function of the records and their ids alone.

    **Guarantee.** Contributions are clipped to their owner's sensitivity. The sum is that of an INO-SGM with
    sensitivities (rounded down) that are at most those given: a record more or less moves it by at most its owner's.
    NOT PRIVATE: only what `release` returns is. It assumes that every record is added once, with an id of its own.

    Args:
        plan: The plan that is followed, or the sensitivity of each owner: then nothing can be released.
        tail: The part of the order that is down-weighted.
        order: What counts as important.
        cells: Into how many sums records are sorted; each record adds to one of them.
        secret: With sample rates below 1, 16 bytes that all parts of one sum share and nobody else knows; drawn from
            the operating system if not given. Parts of one sum are copies of an empty one. A sum whose secret is given
            needs a ledger in a file to be released, since another sum may have the same secret.
        window: For a `HardTail`, the ranks between which it ends, from earlier passes over the same records: only the
            records in it are held. A window in which the tail does not end is refused by `exact`, so a sum is never
            that of another tail.

    Raises:
        ValueError: for sensitivities, rates or a tail that fixed point cannot hold, and for a window of another tail.

    >>> from inosgm import LinearTail
    >>> halves = [OrderedSum([1.0, 3.0], LinearTail(4.0)) for _ in range(2)]
    >>> halves[0].update([1.0, 2.0], scores=[1.0, 2.0], owners=[0, 1], ids=[0, 1])
    >>> halves[1].update([3.0], scores=[3.0], owners=[1], ids=[2])
    >>> halves[0].merge(halves[1])
    >>> halves[0].exact()
    array(4.375)
    """

    def __init__(
        self,
        plan: Plan | ArrayLike,
        tail: Tail = NoTail(),
        order: Order = Descending(),
        *,
        cells: int = 1,
        secret: bytes | None = None,
        window: RankWindow | None = None,
    ) -> None:
        _validate.instance("tail", tail, Tail, "take one such as LinearTail(plan.tail_length(0.4)), or TableTail.of")
        _validate.instance("order", order, Order, "take one such as Descending()")
        self.plan = plan if isinstance(plan, Plan) else None
        self.sensitivities = plan.sensitivities if isinstance(plan, Plan) else _sensitivities(plan)
        self.tail, self.order, self.cells = tail, order, _validate.count("cells", cells, least=1)
        self._limits = limits_of(plan.sample_rates) if isinstance(plan, Plan) else None
        if secret not in (None, b"") and len(secret or b"") != 16:
            raise ValueError(f"secret must be 16 bytes, got {len(secret or b'')}")
        self._secret = b"" if self._limits is None else secrets.token_bytes(16) if secret is None else secret
        # The name says how coins follow from a secret: parts that draw them in another way are parts of another sum.
        self._coins = Purpose.SAMPLING_NAME.hasher(self._secret and self._secret + b" in groups of eight").hexdigest()
        self._grid = Grid.of(self.sensitivities, None if self.plan is None else self.plan.sizes)
        self._span = self._grid.spans[0] if (self._grid.spans == self._grid.spans[0]).all() else None
        begins = math.ceil(tail.length / self._grid.unit)
        if begins >= LONGEST:
            raise ValueError(f"tail must be shorter than {LONGEST * self._grid.unit:g}, got {tail.length:g}")
        if window is not None and not (isinstance(tail, HardTail) and order.scores_decide):
            raise ValueError(f"window goes with a HardTail and an order by scores, got {tail} and {order}")
        costs = self.sensitivities if self.plan is None else self.plan.step_cost
        self.window, self.begins = window, begins  # the first threshold, in units, that is not in the tail
        self._below = self._above = 0  # the sensitivity of the records below the window, and how many are above it
        self._kept = Kept(order, self._grid.spans, costs, begins if window is None else LONGEST, self.cells)
        self._counts = np.zeros(self.sensitivities.size, dtype=np.int64)
        self._shape: tuple[int, ...] | None = None
        self._whole = WholeSum(0)
        self._lent = False
        self._claim = CoinClaim(sole=secret is None)
        self._lock = threading.RLock()  # sorting the tail changes it, so what looks at a sum waits as well
        self._half = False

    @property
    def counts(self) -> np.ndarray:
        """The number of records of each owner that were added, those that were not sampled included. NOT PRIVATE."""
        with self._lock:
            return self._counts.copy()

    @np.errstate(all="ignore")
    def update(
        self, contributions: Array, scores: Array, owners: Array, ids: Array, *, cells: Array | None = None
    ) -> None:
        """Add records.

        Args:
            contributions: One number per record, or an array with one record per row.
            scores: How important each is; one number per record.
            owners: The position of each record's owner in the plan, or one for all.
            ids: A whole number per record that no other record of the data has, or the first of consecutive ones.
            cells: The sum that each adds to, if there are several.

        Raises:
            ValueError: for arrays that do not pair up, and for owners or cells that do not exist.
        """
        rows, values, places, numbers, chosen, counts = self._drawn(contributions, scores, owners, ids, cells)
        with self._changing(rows.shape[1:]):
            self._add(rows, values, places, numbers, chosen)
            self._counts += counts

    def _drawn(self, contributions: Array, scores: Array, owners: Array, ids: Array, cells: Array | None) -> _Drawn:
        """Return the records of a chunk that are in the batch, column by column, and how many each owner has in all."""
        rows = _validate.numeric("contributions", contributions).astype(np.float64, copy=False)
        if not rows.ndim:
            raise ValueError("contributions must have one entry per record, got a single number")
        n = rows.shape[0]
        values = _validate.numeric("scores", scores).astype(np.float64, copy=False)
        numbers = int(ids) if isinstance(ids, int | np.integer) else _whole("ids", ids)
        places, chosen = _whole("owners", owners), None if cells is None else _whole("cells", cells)
        places = np.broadcast_to(places, n) if not places.ndim else places
        for name, column in {"scores": values, "owners": places, "ids": numbers, "cells": chosen}.items():
            if column is not None and not isinstance(column, int) and column.shape != (n,):
                raise ValueError(f"{name} must pair up with contributions: got {column.shape} for {n} records")
        counts = _counted("owners", places, self._counts.size)
        if chosen is not None:
            _counted("cells", chosen, self.cells)
        elif self.cells > 1:
            raise ValueError(f"cells must say which of the {self.cells} sums each record adds to")
        if self._limits is not None:
            if not self._secret:
                raise ValueError("this sum was read from bytes, which leave out the secret of its coins: only merge it")
            there = np.flatnonzero(included(self._secret, numbers, self._limits, places))
            numbers = numbers + there if isinstance(numbers, int) else numbers[there]
            rows, values, places = rows[there], values[there], places[there]
            chosen = None if chosen is None else chosen[there]
        return rows, values, places, numbers, chosen, counts

    def skip(self, counts: Array) -> None:
        """Count records that take no part in the sum, because of a condition on themselves.

        Such a record contributes nothing and has no rank. Whether it takes part is a function of the record alone, so a
        record more or less still moves the sum by at most its owner's sensitivity.

        Args:
            counts: The number of such records of each owner in the plan.
        """
        skipped = _whole("counts", counts)
        if skipped.shape != self._counts.shape or (skipped < 0).any():
            raise ValueError(f"counts must be a number of records for each of {self._counts.size} owners")
        with self._lock:
            self._require_whole()
            self._counts += skipped

    def add(
        self, rows: np.ndarray, scores: np.ndarray, owners: np.ndarray, ids: np.ndarray | int, cells: np.ndarray | None
    ) -> None:
        """Add records that are known to be sound and in the batch: no coin is tossed, nobody is counted."""
        with self._changing(rows.shape[1:]):
            self._add(rows, scores, owners, ids, cells)

    def _add(
        self, rows: np.ndarray, scores: np.ndarray, owners: np.ndarray, ids: np.ndarray | int, cells: np.ndarray | None
    ) -> None:
        shape = rows.shape[1:]
        rows = rows.reshape(rows.shape[0], math.prod(shape)) if shape else rows
        block = min(BLOCK, max(256, _WIDE // max(math.prod(shape), 1)))
        for begin in range(0, rows.shape[0], block):
            part = slice(begin, begin + block)
            span = self._grid.spans[owners[part]] if self._span is None else self._span
            whole = (self._grid.rows if shape else self._grid.numbers)(rows[part], span)
            first = ids + begin if isinstance(ids, int) else ids[part]
            self._block(whole, scores[part], owners[part], first, None if cells is None else cells[part])

    def count(self, counts: RankCounts, scores: np.ndarray, owners: np.ndarray, ids: np.ndarray | int) -> None:
        """Count records that are known to be in the batch by their rank, and add nothing."""
        spans = self._grid.spans.astype(np.int64)
        for begin in range(0, scores.size, _WIDE):
            part = slice(begin, begin + _WIDE)
            first = ids + begin if isinstance(ids, int) else ids[part]
            counts.add(self.order.deciding(scores[part], None, None), spans[owners[part]], first)

    def in_passes(self, read: Callable[[PassTask | None], Any]) -> "OrderedSum":
        """Return the sum of records that can be read several times, as this empty one would be: see `Streaming`."""
        records = np.inf if self.plan is None else float(self.plan.sizes.sum())
        if needs_passes(self.tail, self.order, self.sensitivities, records):
            made: OrderedSum = sum_in_passes(self.begins, read)
        else:
            made = read(None)
        return made

    def merge(self, other: "OrderedSum") -> None:
        """Add the records of another part of the same sum.

        Raises:
            ValueError: for a part of another sum: another plan, tail, order, coins, or number of cells.
        """
        _validate.instance("other", other, OrderedSum, "merge takes another part of the same sum")
        if other.signature != self.signature:
            raise ValueError(
                "other must be part of the same sum: copy an empty one for every part, and fill the copies. With "
                "sample rates below 1, a part that an earlier version of inosgm has written must be made again"
            )
        with other._lock:  # and not the own one as well: two sums may be merged into each other at once
            shape, whole, counts, kept = other._shape, other._whole.copy(), other._counts.copy(), other._kept.all()
            below, above = other._below, other._above
            other._require_whole()
        if other._claim.sole:  # both have the same coins, so one claim on them
            self._claim = other._claim
        self._lent |= other._lent
        if shape is None:
            return
        with self._changing(shape):
            self._whole.merge(whole)
            self._counts += counts
            self._below, self._above = self._below + below, self._above + above
            for records in kept:
                self._hold(records)

    def exact(self) -> np.ndarray:
        """Return the weighted sum. NOT PRIVATE: it carries no noise and spends no budget.

        Returns:
            A sum of the shape of one contribution; with several cells one for each, along the first axis.

        Raises:
            ValueError: if nothing was ever added, so that the shape of the sum is not known; and if the tail does not
                end in the window that was given.
        """
        with self._lock:
            return self._exact()

    def _exact(self) -> np.ndarray:
        if self._shape is None:
            raise ValueError("nothing was added: add a chunk, if only one without records")
        records = self._settled()
        if self.window is not None:
            self._require_window(records)
        total, parts = self._whole.copy(), np.zeros(self._whole.low.size, dtype=np.int64)
        if records is not None:
            spans = self._grid.spans[records.owners].astype(np.int64)
            thresholds = self._below + np.concatenate([[0], np.cumsum(spans)])
            for begin in range(0, len(records), BLOCK):
                some = records.at(slice(begin, begin + BLOCK))
                rho = self._weights(thresholds[begin : begin + BLOCK + 1])
                whole, rest = split(some.rows * (rho[:, None] if some.rows.ndim > 1 else rho))
                total.add(self._sums(whole, some.cells))
                parts += self._sums(rest, some.cells).astype(np.int64)
        sums = total.floats(parts) * self._grid.unit
        return sums.reshape((self.cells, *self._shape) if self.cells > 1 else self._shape)

    def _require_window(self, records: HeldRecords | None) -> None:
        """Raise unless every record below the window has weight 0, and every record above it weight 1."""
        held = 0 if records is None else int(self._grid.spans[records.owners].astype(np.int64).sum())
        if self._below > math.floor(self.tail.length / self._grid.unit) or (
            self._above and self._below + held < self.begins
        ):
            raise ValueError(
                "the tail does not end in the window of ranks that was given: have the records changed between two "
                "passes over them? Begin again with the first pass"
            )

    def release(self, *, key: int | None = None, ledger: LedgerHook | None = None, note: str = "") -> Release:
        """Release the noisy sum, charged to every owner before it exists; for a plan of one step.

        **Guarantee.** That of `INOSGM`, through which it goes. Where sample rates are below 1, the coins of a sum are
        used once: they are claimed before the charge, by one of the sum and all of its copies in this process, and a
        ledger that is charged for them refuses them to every other release, also later and in other processes. A charge
        that is refused frees the claim.

        Args:
            key: Makes the noise a function of it: reproducible, and not private against whoever knows it. The same key
                for the same sum is a retry, which has the same value.
            ledger: Is told the cost before the value exists, and may refuse it. With sample rates below 1, a sum whose
                coins others may have (its secret was given, it was unpickled, or its process has forked) needs a
                `Ledger` in a file, which others see.
            note: What the ledger says about it, for people.

        Raises:
            JobMismatch: if the ledger knows the coins from another release.
            RuntimeError: if the coins were used in this process, or others may have used them and no file tells.
            ValueError: without a plan of one step, and if owners have other numbers of records than the plan says.
        """
        if self.plan is None or self.plan.steps != 1:
            raise ValueError("release needs a plan of one step: for more, take the parts of a Streaming mechanism")
        if not self._claim.here:
            self._claim = CoinClaim(sole=False)
        claim = self._claim
        with claim.lock:
            if self._limits is not None:
                self._require_coins(ledger)
            adopted = _Adopted(self, key=key, ledger=ledger, note=note)
            first = self._limits is not None and claim.take(*adopted.use)
            try:
                return adopted.release(self)
            except BaseException:
                if first and not adopted.released:  # nothing was drawn
                    claim.free()
                raise

    def _require_coins(self, ledger: LedgerHook | None) -> None:
        """Raise for a sum whose coins belong to something else, or may be used by others without anybody noticing."""
        if self._lent or not self._secret:
            raise RuntimeError(
                "the coins of this sum may be used once, and not by it: it was made by a Streaming mechanism, read "
                "from bytes, or copied after records were added. Let the mechanism release it, or merge it into the "
                "sum that it is a part of, and release that"
            )
        if not self._claim.sole and not (isinstance(ledger, CoinLedger) and ledger.durable):
            raise RuntimeError(
                "the coins of this sum may be used once, and other sums may have the same: its secret was given, it "
                "was unpickled, or the process that made it has forked. Release it with ledger=Ledger(path), which "
                "refuses coins that were used before; or make the sum and release it in one process, without a secret"
            )

    @property
    def signature(self) -> str:
        """A digest of what parts of one sum have in common."""
        followed = self.sensitivities.tobytes().hex() if self.plan is None else self.plan.digest
        public = f"{followed} {self.tail!r} {self.order!r} {self.cells} {self._coins}"
        public += "" if self.window is None else f" {self.window!r}"
        return Purpose.SUM_SIGNATURE.hex(public)

    def to_bytes(self) -> bytes:
        """Return the sum as bytes, the same for the same records. NOT PRIVATE; the secret of coins is left out."""
        with self._lock:
            records = self._settled()
            arrays = {"counts": self._counts, "high": self._whole.high, "low": self._whole.low}
            if records is not None:
                arrays |= {name: getattr(records, name) for name in _COLUMNS}
            about: dict[str, Any] = {"cells": self.cells, "shape": self._shape, "coins": self._coins}
            if self.window is not None:
                about |= {"window": asdict(self.window), "below": self._below, "above": self._above}
            return _sum_file.written(self.plan, self.sensitivities, self.tail, self.order, about, arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a sum. Where coins are tossed it can be merged, and takes no more records.

        What can be checked is: nobody's contribution in the tail is longer than allowed. Whoever made the part is
        trusted for its sums.

        Raises:
            ValueError: for bytes that are something else.
        """
        plan, sensitivities, tail, order, about, arrays = _sum_file.read(content)
        try:
            window = RankWindow(**about["window"]) if "window" in about else None
            followed = sensitivities if plan is None else plan
            found = cls(followed, tail, order, cells=about["cells"], secret=b"", window=window)
            found._coins = str(about["coins"])
            if window is not None:
                found._below, found._above = (_validate.count(name, about[name]) for name in ("below", "above"))
            if about["shape"] is not None:
                found._load(tuple(_validate.count("shape", size) for size in about["shape"]), arrays)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"these bytes are not an ordered sum: {error}") from None
        return found

    def _load(self, shape: tuple[int, ...], arrays: dict[str, np.ndarray]) -> None:
        """Take over arrays that were read, if they can be those of a sum: whoever wrote them may be wrong, or lie.

        Raises:
            ValueError: if not.
        """
        size = self.cells * math.prod(shape)
        high, low, counts = (arrays[name] for name in ("high", "low", "counts"))
        sums = high.dtype == low.dtype == counts.dtype == np.int64 and high.shape == low.shape == (size,)
        if not sums or counts.shape != self._counts.shape or (counts < 0).any() or (low < 0).any() or (low >> 32).any():
            raise ValueError("its sums are of another kind")
        self._begin(shape)
        self._counts, self._whole.high, self._whole.low = counts, high, low
        if "scores" not in arrays:
            return
        records = HeldRecords(*(arrays[name] for name in _COLUMNS))
        n = len(records)
        whole = all(column.dtype == np.int64 for column in (records.ids, records.owners, records.cells))
        wide = records.rows.shape == ((n, math.prod(shape)) if shape else (n,))
        if not whole or not wide or not records.scores.dtype == records.rows.dtype == np.float64:
            raise ValueError("its tail is of another kind")
        if any(column.shape != (n,) for column in (records.scores, records.ids, records.owners, records.cells)):
            raise ValueError("its tail has columns of different lengths")
        _counted("owners", records.owners, self._counts.size)
        _counted("cells", records.cells, self.cells)
        spans = self._grid.spans[records.owners]
        squares = (records.rows.reshape(n, -1) ** 2).sum(axis=1)
        if not (np.isfinite(records.rows).all() and (records.rows == np.trunc(records.rows)).all()):
            raise ValueError("its tail holds something else than whole numbers")
        if (squares > spans**2 * (1 + 1e-9)).any():
            raise ValueError("its tail holds contributions that are longer than the sensitivity of their owner")
        self._hold(records)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the secret of coins out once there are records: copies of an empty sum are filled, others merged."""
        with self._lock:
            self._require_whole()
            state = {**vars(self), "_secret": self._secret if self._shape is None else b""}
            del state["_lock"]
            return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()

    def __copy__(self) -> Self:
        """Return a copy that shares the claim on its coins, and no records: each copy is filled by itself."""
        return copy.deepcopy(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrderedSum) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<OrderedSum: {len(self.sensitivities)} owners, {self.tail}, {self.order}>"

    def _begin(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._whole = WholeSum(self.cells * math.prod(shape))

    def _block(
        self, whole: np.ndarray, scores: np.ndarray, owners: np.ndarray, ids: np.ndarray | int, cells: np.ndarray | None
    ) -> None:
        """Add a block of contributions in units to the sum, and take back from it what may be in the tail."""
        low: np.ndarray | None
        if self.window is None:
            low = self._kept.candidates(scores, owners, ids)
            if low is not None:
                self._whole.add(self._sums(whole, cells))
        else:
            high, low, below = self.window.split(self.order.deciding(scores, None, None), ids)
            self._whole.add(self._sums(whole[high], None if cells is None else cells[high]))
            self._above += high.size
            self._below += int(self._grid.spans[owners[below]].astype(np.int64).sum())
        if low is not None and not low.size:
            return
        held = self._kept.take(scores, ids, owners, whole, cells, low)
        if self.window is None and low is not None:
            self._whole.add(-self._sums(held.rows, held.cells))
        self._kept.shrink(self._evict)

    def _hold(self, records: HeldRecords) -> None:
        """Take over records of the tail of another part."""
        self._kept.take(records.scores, records.ids, records.owners, records.rows, records.cells)
        self._kept.shrink(self._evict)

    def _sums(self, whole: np.ndarray, cells: np.ndarray | None) -> np.ndarray:
        """Return the sums of at most a block of whole numbers, cell by cell: float64 holds them exactly."""
        if cells is None or self.cells == 1:
            sums = whole.sum(axis=0, keepdims=True)
        elif whole.ndim == 1:
            sums = np.bincount(cells, weights=whole, minlength=self.cells)
        else:
            sums = np.stack([np.bincount(cells, weights=c, minlength=self.cells) for c in whole.T], axis=1)
        return np.asarray(sums.ravel())

    def _evict(self, rows: np.ndarray, cells: np.ndarray) -> None:
        """Add at most a block of records to the full-weight sum for ever."""
        self._whole.add(self._sums(rows, cells))

    def _settled(self) -> HeldRecords | None:
        """Return the tail, from the least important record up; under the lock."""
        self._require_whole()
        self._half = True
        try:
            self._kept.settle(self._evict)
        except ValueError:  # two records have one id, which was noticed before anything was changed
            self._half = False
            raise
        self._half = False
        return self._kept.records

    @contextmanager
    def _changing(self, shape: tuple[int, ...]) -> Iterator[None]:
        """Change a sum of contributions of a shape; one that is interrupted meanwhile is of no use any more."""
        with self._lock:
            self._require_whole()
            if self._shape is None:
                self._begin(shape)
            elif shape != self._shape:
                raise ValueError(f"contributions must be of shape {self._shape} each, as those before, got {shape}")
            self._half = True
            yield
            self._half = False

    def _require_whole(self) -> None:
        if self._half:
            raise RuntimeError(
                "this sum was interrupted while records were added, so some of them may be missing or count twice: "
                "make a new one, and add all records to that"
            )

    def _weights(self, thresholds: np.ndarray) -> np.ndarray:
        """Return the weights of records between exact thresholds, in units."""
        high = thresholds.astype(np.float64)
        low = (thresholds - high.astype(np.int64)).astype(np.float64)
        unit, spans = self._grid.unit, np.diff(thresholds).astype(np.float64)
        return np.asarray(self.tail.pieces.means(high * unit, low * unit, spans * unit))


class CountingPass:
    """Counts records in a window of ranks where a sum would add them: the same records, by the same coins. NOT PRIVATE.

    Args:
        total: An empty sum of the batch.
        window: The window.
    """

    def __init__(self, total: OrderedSum, window: RankWindow) -> None:
        self._total, self.counts = total, RankCounts(window)

    def update(
        self, contributions: Array, scores: Array, owners: Array, ids: Array, *, cells: Array | None = None
    ) -> None:
        """Count records; arguments and errors are those of `OrderedSum.update`."""
        _, values, places, numbers, _, _ = self._total._drawn(contributions, scores, owners, ids, cells)
        self._total.count(self.counts, values, places, numbers)

    def skip(self, counts: Array) -> None:
        """Leave out records that take no part."""


class Streaming(INOSGM):
    """A mechanism whose sums are exact ordered sums: of records in memory, or of parts that were filled anywhere.

    A subclass says what a record contributes and how important it is, as for every `INOSGM`; contributions are arrays
    (or `Cells`). With a key, a release is the same in bits whether the records came at once, in chunks, or were
    merged from parts: coins are keyed hashes of record ids, which are positions in the data.

    **Guarantee.** That of `INOSGM`, with sensitivities rounded down to fixed point.

    Args:
        plan: The public numbers: rates, sensitivities, noise scale, steps.
        owners: As for `INOSGM`; None for a mechanism that is given parts only.
        cells: Into how many sums records are sorted, where contributions are `Cells`.
        noise: Discrete by default: sums are whole numbers of a unit already.
        options: As for `INOSGM`, but for the clipping: contributions are clipped to C, then scaled.

    >>> class Total(Streaming):
    ...     def contributions(self, batch):
    ...         return batch
    ...     def scores(self, batch):
    ...         return batch
    >>> plan = Plan(sample_rates=[1, 1], sensitivities=[1, 3], sizes=[1, 2], noise_scale=0.1, steps=1)
    >>> at_once, in_parts = Total(plan, [0, 1, 1], key=1), Total(plan, key=1)
    >>> parts = [in_parts.part(np.array([1.0]), [0], 0), in_parts.part(np.array([2.0, 3.0]), [1, 1], 1)]
    >>> parts[0].merge(parts[1])
    >>> bool(at_once.release(np.array([1.0, 2.0, 3.0])).value == in_parts.release(parts[0]).value)
    True
    """

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Sequence[str | int] | np.ndarray | None = None,
        *,
        cells: int = 1,
        noise: Noise = DiscreteNoise(),
        **options: Any,
    ) -> None:
        if options.pop("clipping", None) is not None:
            raise TypeError("clipping: a streaming mechanism clips contributions to C, then scales them")
        self._cells = _validate.count("cells", cells, least=1)
        self.sizes_vary = owners is None
        self._drawn: tuple[int, bytes, int] | None = None
        self._drawing = threading.Lock()
        super().__init__(plan, [] if owners is None else owners, noise=noise, **options)
        OrderedSum(plan, self._tail, cells=cells, secret=b"")  # raises for what fixed point cannot hold

    def partial(self) -> OrderedSum:
        """Return an empty sum for the next step: fill copies of it anywhere, merge them, and release the whole."""
        return self._empty(self.released)

    def start(self, task: PassTask | None) -> OrderedSum | CountingPass:
        """Return what a pass over the records of the next step fills: an empty sum, or empty counts.

        Args:
            task: What the pass does; None for a sum in one pass.
        """
        if task is None:
            return self.partial()
        if task.counting:
            return CountingPass(self.partial(), task.window)
        return self._empty(self.released, task.window)

    def sum_in_passes(self, read: Callable[[PassTask | None], Any]) -> OrderedSum:
        """Return the sum of the next step over records that can be read several times, with little memory. NOT PRIVATE.

        All tails but long hard ones take one pass, and hold the records of the tail.

        Args:
            read: Fills what `start` returns for a task with all records, and returns it, or the counts in it.
        """
        return self.partial().in_passes(read)

    def part(self, batch: Any, owners: Array, ids: Array) -> OrderedSum:
        """Return a part of the next step's sum. NOT PRIVATE.

        Args:
            batch: Records, in the form that `contributions` and `scores` take.
            owners: The position of each record's owner in the plan.
            ids: The position of each record in the whole data, or that of the first if they are consecutive.
        """
        found = self.partial()
        self.fill(found, batch, owners, ids)
        return found

    @np.errstate(all="ignore")  # a warning of numpy would tell everybody about a record
    def fill(self, part: OrderedSum | CountingPass, batch: Any, owners: Array, ids: Array) -> None:
        """Add records to a part of the next step's sum: faster than to make a part of them and merge it.

        Args:
            part: What `partial` or `start` returned, or a copy.
            batch: As for `part`, like the others.
            owners: The position of each record's owner in the plan.
            ids: The position of each record in the whole data, or that of the first if they are consecutive.
        """
        places = _whole("owners", owners)
        contributions, scores = self.measure(batch, None, places.copy(), self.released)
        rows, cells = _rows_of(contributions)
        part.update(rows, scores, places, ids, cells=cells)

    def _empty(self, step: int, window: RankWindow | None = None) -> OrderedSum:
        secret, order = self._chance(step)
        how: dict[str, Any] = {"cells": self._cells, "secret": secret, "window": window}
        found = OrderedSum(self._plan, self._tail, self._order.at(step, order), **how)
        found._lent = True
        return found

    def _chance(self, step: int) -> tuple[bytes, int]:
        """Return the secrets of the coins and of the order of a step: all parts of it share them."""
        if self._key is not None:
            return secret_of(streams(self._key, step)[0]), self._key
        with self._drawing:  # parts that threads make at once have the same coins
            if self._drawn is None or self._drawn[0] != step:
                self._drawn = step, secrets.token_bytes(16), secrets.randbits(128)
            return self._drawn[1:]

    def _sampler_of(self, plan: Plan) -> Sampler:
        return HashedSampler(plan.sample_rates, self._owners)

    def _check(self, data: Any) -> None:
        if not isinstance(data, OrderedSum):
            super()._check(data)
            return
        self._require_step_left()
        self._require_own(data)
        require_sizes(self._plan, data.counts)
        require_floating(data.exact())

    def _require_own(self, data: OrderedSum) -> None:
        if data.signature != self._empty(self.released, data.window).signature:
            raise ValueError(
                "data must be the sum of the next step: fill copies of partial(), or take part(), and merge"
            )

    @np.errstate(all="ignore")
    def _sum(self, batch: DrawnBatch) -> np.ndarray:
        if isinstance(batch.data, OrderedSum):
            return batch.data.exact()
        contributions, scores = batch.measured()
        rows, cells = _rows_of(contributions)
        _, values = checked_scores(scores)
        if values.size != len(rows) or values.size != batch.positions.size:
            raise ValueError("contributions and scores must pair up: one of each for every record of a batch")
        order = self._order.at(batch.step, batch.order_secret)
        count = contributions.count if isinstance(contributions, Cells) else 1
        found = OrderedSum(self._plan, self._tail, order, cells=count)

        def read(task: PassTask | None) -> OrderedSum | RankCounts:
            if task is not None and task.counting:
                counts = RankCounts(task.window)
                found.count(counts, np.asarray(values), batch.owners, batch.positions)
                return counts
            window = None if task is None else task.window
            total = OrderedSum(self._plan, self._tail, order, cells=count, window=window)
            total.add(rows, np.asarray(values), batch.owners, batch.positions, cells)
            return total

        return found.in_passes(read).exact()


class _Adopted(Streaming):
    """The mechanism of a sum that was made by hand, with coins of its own."""

    def __init__(self, found: OrderedSum, **options: Any) -> None:
        assert found.plan is not None
        super().__init__(found.plan, None, tail=found.tail, order=found.order, **options)
        self._total = found.exact()  # once: what is claimed, released and bound is the same
        if found._limits is not None:
            self._cost = self._cost.with_coins(found._coins)

    @property
    def use(self) -> tuple[str, str]:
        """What the coins are claimed for: a job, and with a key the sum that its noise is added to."""
        return self._cost.job, "" if self._key is None else tree_digest(self._total, self._key)

    def measure(self, data: Any, positions: np.ndarray | None, owners: np.ndarray, step: int) -> NoReturn:
        """Raise: the sum was made before, and has no records left to measure."""
        raise NotImplementedError

    def _require_own(self, data: OrderedSum) -> None:
        """Accept the sum that this mechanism was made for."""

    def _sum(self, batch: DrawnBatch) -> np.ndarray:
        return self._total


def _rows_of(contributions: Contributions) -> tuple[np.ndarray, np.ndarray | None]:
    """Return contributions as rows, and the cell of each, if they have any."""
    if isinstance(contributions, Cells):
        return contributions.rows, contributions.cells
    if not isinstance(contributions, Dense):
        raise TypeError(f"a streaming mechanism needs contributions in rows, got {type(contributions).__name__}")
    return np.asarray(contributions.array, dtype=np.float64), None


def _sensitivities(values: ArrayLike) -> np.ndarray:
    found = _validate.vector("sensitivities", values)
    if not found.size:
        raise ValueError("sensitivities must hold one number per owner, got none")
    within = (found >= _validate.TINY) & (found <= _validate.HUGE)
    _validate.each("sensitivities", found, within, f"lie in [{_validate.TINY}, {_validate.HUGE}]")
    return found


def _whole(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"{name} must be whole numbers, got {array.dtype}")
    return array.astype(np.int64, copy=False)


def _counted(name: str, places: np.ndarray, size: int) -> np.ndarray:
    """Count how often each place occurs.

    Raises:
        ValueError: for a place that does not exist.
    """
    try:
        counts = np.bincount(places, minlength=size)
    except ValueError:  # it looks for negative ones itself
        counts = None
    if counts is None or counts.size > size:
        raise ValueError(f"{name} must lie in 0, ..., {size - 1}")
    return counts
