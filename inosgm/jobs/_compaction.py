"""Many small results as one Parquet file."""

import io
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from inosgm.jobs.spec import JobSpec
from inosgm.jobs.task import Result


def compacted(results: Iterable[tuple[str, JobSpec, Result]]) -> bytes:
    """Return a Parquet file with a row per job.

    Its columns are `index`, `seed`, `job`, `kind`, `data_fingerprint`, `code_version`, `configuration` and `values`
    (JSON), and `arrays`, a list with name, dtype, shape and bytes (little-endian, rows first) of each.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    array = pa.struct(
        {"name": pa.string(), "dtype": pa.string(), "shape": pa.list_(pa.int64()), "content": pa.large_binary()}
    )
    text = ("job", "kind", "data_fingerprint", "code_version", "configuration", "values")
    numbers = {"index": pa.int64(), "seed": pa.int64()}
    schema = pa.schema({**numbers, **{name: pa.string() for name in text}, "arrays": pa.list_(array)})
    stream = io.BytesIO()
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for job, spec, result in results:  # one at a time: arrays may be large
            row = {"job": job, "arrays": [_array(name, values) for name, values in result.arrays.items()]}
            told = json.loads(spec.to_json()) | {"seed": spec.seed, "values": dict(result.values)}
            texts = {name: json.dumps(told[name], sort_keys=True) for name in ("configuration", "values")}
            writer.write_table(pa.Table.from_pylist([told | texts | row], schema=schema))
    return stream.getvalue()


def _array(name: str, values: np.ndarray) -> dict[str, Any]:
    plain = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
    return {"name": name, "dtype": plain.dtype.str, "shape": list(plain.shape), "content": plain.tobytes()}
