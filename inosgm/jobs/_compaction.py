"""Many small results as one Parquet file."""

import io
import json
from collections.abc import Iterable

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
    rows = []
    for job, spec, result in results:
        told = json.loads(spec.to_json())
        arrays = []
        for name, values in result.arrays.items():
            plain = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
            arrays.append(
                {"name": name, "dtype": plain.dtype.str, "shape": list(plain.shape), "content": plain.tobytes()}
            )
        rows.append(
            {
                "job": job,
                **told,
                "seed": spec.seed,
                "configuration": json.dumps(told["configuration"], sort_keys=True),
                "values": json.dumps(dict(result.values), sort_keys=True),
                "arrays": arrays,
            }
        )
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), stream, compression="zstd")
    return stream.getvalue()
