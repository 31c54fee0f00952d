"""Private means and CVaR of a Parquet file, beside aggregations without privacy and OpenDP with it.

python -m benchmarks.aggregations                      (two million rows)
python -m benchmarks.aggregations --rows 100000000     (some 850 MB in a temporary folder)

Every contender is a new process of one thread, from the start of Python to the printed value: seconds of the processor
and peak memory are its own. Contenders take turns. numpy reads through pyarrow, as it has no Parquet of its own.
OpenDP and numpy hold the whole column in memory; OpenDP gives one epsilon to all records, the strictest one.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BOUNDS = (0.0, 5000.0)
EPSILONS = {"a": 0.5, "b": 1.0, "c": 2.0}
DELTA = 1e-6
LEVEL = 0.9
ROUNDS = 3

READ = "import pyarrow.parquet as pq; values = pq.read_table(path, columns=['value'])['value'].to_numpy()"
DUCKDB = "import duckdb; duckdb.sql('set threads = 1'); print(duckdb.sql(f"
ASK = """
from inosgm import Owners, {function}
owners = Owners.from_csv(path.replace('.parquet', '.csv'), delta='delta')
print({function}(path, owners, column='value', owner='owner', bounds={bounds}, key=1{more}).value)
"""
OPENDP = """
import opendp.prelude as dp
dp.enable_features('contrib')
domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values))
space = domain, dp.symmetric_distance()
made = space >> dp.t.then_clamp({bounds}) >> dp.t.then_mean()
scale = dp.binary_search_param(lambda s: made >> dp.m.then_laplace(s), d_in=2, d_out={epsilon})
print((made >> dp.m.then_laplace(scale))(values))
"""
CONTENDERS = {
    "mean, numpy": f"import numpy as np; {READ}; print(np.clip(values, *{BOUNDS}).mean())",
    "mean, Polars": f"import polars as pl; print(pl.scan_parquet(path).select(pl.col('value').clip{BOUNDS}.mean())"
    ".collect(engine='streaming').item())",
    "mean, DuckDB": DUCKDB + "\"select avg(greatest(least(value, 5000), 0)) from '{path}'\").fetchall()[0][0])",
    "mean, OpenDP (one epsilon)": READ + OPENDP.format(bounds=BOUNDS, epsilon=min(EPSILONS.values())),
    "mean, inosgm": ASK.format(function="private_mean", bounds=BOUNDS, more=""),
    "CVaR, numpy": f"import numpy as np; {READ}; at = int({LEVEL} * values.size); "
    "print(np.partition(values, at)[at:].mean())",
    "CVaR, Polars": f"import polars as pl; v = pl.col('value'); print(pl.scan_parquet(path).select("
    f"v.filter(v >= v.quantile({LEVEL})).mean()).collect(engine='streaming').item())",
    "CVaR, DuckDB": DUCKDB + "\"select avg(value) from '{path}' where value >= "
    f"(select quantile_cont(value, {LEVEL}) from '{{path}}')\").fetchall()[0][0])",
    "CVaR, inosgm": ASK.format(function="private_upper_tail_mean", bounds=BOUNDS, more=f", level={LEVEL}"),
}


def write(path: Path, rows: int) -> None:
    """Write synthetic wages of three owners, and the owners' budgets beside them."""
    import pyarrow as pa
    from pyarrow import parquet

    generator, labels, sizes = np.random.default_rng(0), list(EPSILONS), np.zeros(len(EPSILONS), dtype=np.int64)
    schema = pa.schema({"value": pa.float64(), "owner": pa.dictionary(pa.int32(), pa.string())})
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 1_000_000):
            size = min(1_000_000, rows - start)
            owners = generator.integers(len(labels), size=size).astype(np.int32)
            values = np.minimum(generator.lognormal(6, 0.8, size), BOUNDS[1])
            writer.write_table(pa.table([values, pa.DictionaryArray.from_arrays(owners, labels)], schema=schema))
            sizes += np.bincount(owners, minlength=sizes.size)
    lines = [f"{label},{EPSILONS[label]},{DELTA},{size}" for label, size in zip(labels, sizes, strict=True)]
    path.with_suffix(".csv").write_text("\n".join(["owner,epsilon,delta,records", *lines, ""]))


def run(code: str, path: Path) -> tuple[float, float, float]:
    """Run a contender in a new process; return its value, its seconds of the processor and its peak memory in MB."""
    threads = ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_NUM_THREADS", "RAYON_NUM_THREADS")
    after = "import resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)"
    command = [sys.executable, "-c", f"path = {str(path)!r}\n{code.strip()}\n{after}"]
    env = os.environ | dict.fromkeys(threads, "1")
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    value, usage = done.stdout.strip().splitlines()[-2:]
    seconds, memory = map(float, usage.split())
    return float(value), seconds, memory


def main(rows: int = 2_000_000) -> None:
    """Print a row for each contender."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wages.parquet"
        write(path, rows)
        print(f"{rows:,} rows, {path.stat().st_size / 1e6:,.0f} MB of Parquet; medians of {ROUNDS} turns")
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in CONTENDERS}
        missing: dict[str, str] = {}
        for _ in range(ROUNDS):
            for name, code in CONTENDERS.items():
                try:
                    found[name].append(run(code, path))
                except RuntimeError as error:
                    missing[name] = str(error)
    for name, turns in found.items():
        if name in missing:
            print(f"{name:<28} not measured: {missing[name]}")
            continue
        value, seconds, memory = (statistics.median(column) for column in zip(*turns, strict=True))
        print(f"{name:<28} {value:12.4f} {seconds:8.2f} s of the processor {memory:8,.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    main(parser.parse_args().rows)
