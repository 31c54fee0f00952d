"""The sum of a statistic as an aggregation of a Ray dataset, for those who have one."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from ray.data.aggregate import AggregateFnV2
from ray.data.block import Block, BlockAccessor

from inosgm.mechanism.streaming import OrderedSum
from inosgm.statistics.files.columns import positions
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.tables import LABELS, NUMBERS, BadTable


class OrderedAggregate(AggregateFnV2[bytes, bytes]):
    """Sums up the next round of a statistic over a Ray dataset: the bytes of an `OrderedSum`. NOT PRIVATE.

    Only what the statistic releases of it is:

        found = dataset.aggregate(OrderedAggregate(statistic, columns="wage", owner="clinic", ids="id"))
        statistic.release(OrderedSum.from_bytes(found["ordered_sum"]))

    That checks how many records each owner has, charges the ledger, and repeats bit for bit, whatever blocks there are
    and however often they are read. `inosgm.statistics.durable.run_statistic` reads files by itself, keeps finished
    work, and resumes after a failure.

    Args:
        statistic: The statistic; workers make the same one.
        columns: The column of the values, or several.
        owner: The column that names the owner of each record, as the plan does.
        ids: The column with a whole number for each record that no other record has.
        key: The key of the statistic, which Ray sends to workers; not needed where all records take part and nothing is
            ordered at random.

    Raises:
        ValueError: for another key than that of the statistic.
    """

    def __init__(
        self, statistic: Statistic, *, columns: str | Sequence[str], owner: str, ids: str, key: int | None = None
    ) -> None:
        self._kind, self._plan, self._parameters = type(statistic), statistic.plan, statistic.parameters
        self._observed, self._key = list(statistic.observed), key
        self._columns = [columns] if isinstance(columns, str) else list(columns)
        self._owner, self._ids = owner, ids
        if self._made().partial().signature != statistic.partial().signature:
            raise ValueError("key must be that of the statistic, so that workers toss the same coins")
        super().__init__("ordered_sum", zero_factory=bytes, on=None, ignore_nulls=False)

    def aggregate_block(self, block: Block) -> bytes:
        """Return the sum of a block.

        Raises:
            BadTable: for records that cannot be used.
        """
        table = BlockAccessor.for_block(block).to_arrow().combine_chunks()
        wanted = [*self._columns, self._owner, self._ids]
        missing = [name for name in wanted if name not in table.column_names]
        if missing:
            raise BadTable(f"the dataset has no column {missing[0]!r}, its columns are {table.column_names}")
        statistic = self._made()
        form = LABELS if statistic.of_labels else NUMBERS
        columns = {name: _whole(table.column(name)) for name in wanted}
        values = [form(name, columns[name], _where) for name in self._columns]
        batch = values[0] if len(values) == 1 else np.stack(values, axis=1)
        places = {str(label): place for place, label in enumerate(self._plan.labels)}
        owners = positions(self._owner, columns[self._owner], places, _where)
        ids = columns[self._ids].to_numpy(zero_copy_only=False)
        statistic.check(batch)
        return statistic.part(batch, owners, ids).to_bytes()

    def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
        """Return the sum of two sums, which stay as they are."""
        if not current_accumulator or not new:
            return current_accumulator or new
        total = OrderedSum.from_bytes(current_accumulator)
        total.merge(OrderedSum.from_bytes(new))
        return total.to_bytes()

    def _made(self) -> Statistic:
        return self._kind(self._plan, key=self._key, **self._parameters).after(self._observed)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _where(position: int) -> str:
    return f"position {position} of a block"
