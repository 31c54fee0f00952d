"""The exact streaming sum against plain numpy sums, against sorting everything, and on two cores.

python -m benchmarks.streaming            (each measurement in a process of its own, so that peak memory is its own)
python -m benchmarks.streaming scalar     (one of them, here)

Rows come in chunks that are made up while no clock runs. Every chunk is given to all contenders in turn. Ratios are
those of all time taken, of the processor, in one thread: medians over chunks, shown beside, would hide what a tail
costs from time to time. Memory is the peak of the whole process.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.timing import medians, report

if TYPE_CHECKING:
    from inosgm.jobs import Executor

ROWS, CHUNK = 100_000_000, 1_000_000
WIDE_ROWS, WIDE_CHUNK, WIDTH = 10_000_000, 50_000, 64
"""64 columns of 100 million rows are 51 GB of made-up numbers: a tenth of the rows tells the same."""

BLOCK = 16_384
"""Rows that plain numpy works on at a time: what stays in the cache is faster than a whole chunk."""

SENSITIVITIES = np.array([0.5, 1.0, 2.0])
TAILS = (10_000, 1_000_000)
"""About how many records a tail holds."""

FILES, FILE_ROWS = 16, 8_000_000
"""What one core and two read; each file has 64 MB of values."""

LABELS = ["a", "b", "c"]

Chunk = tuple[np.ndarray, np.ndarray, np.ndarray, int]


def chunks(rows: int, size: int, width: int | None = None) -> Iterator[Chunk]:
    """Yield contributions, scores, owners and the first id of made-up rows; a third of the contributions is clipped."""
    generator = np.random.default_rng(0)
    wide = None if width is None else generator.standard_normal((size, width)) * np.sqrt(1 / width)
    for first in range(0, rows, size):
        owners = generator.integers(len(SENSITIVITIES), size=size)
        contributions = generator.standard_normal(size) if wide is None else wide
        yield contributions, generator.standard_normal(size), owners, first


def tail_of(records: int) -> float:
    """Return the length of a tail that holds about so many records."""
    return records * float(SENSITIVITIES.mean())


def stream(
    rows: int, size: int, width: int | None, contenders: dict[str, Callable[[Chunk], object]]
) -> dict[str, float]:
    """Return the nanoseconds per row of each contender, and print peak memory on the way."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    stops = {max(1, round(share * rows / size)) for share in (0.02, 0.1, 0.5, 1)}
    for number, chunk in enumerate(chunks(rows, size, width), start=1):
        for name, take in contenders.items():
            begin = time.process_time()
            take(chunk)
            seconds[name].append(time.process_time() - begin)
        if number in stops:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"after {number * size:>11,} rows: peak memory of everything {peak:,.0f} MB", flush=True)
    for name, values in seconds.items():
        mean, median = (1e9 * function(values) / size for function in (np.mean, np.median))
        print(f"{name:<46} {1e3 / mean:7.1f} million rows per second: {mean:.1f} ns a row (median {median:.1f})")
    return {name: 1e9 * float(np.mean(values)) / size for name, values in seconds.items()}


def scalar() -> None:
    """100 million scalar contributions."""
    from inosgm import LinearTail, NoTail
    from inosgm.mechanism.streaming import OrderedSum

    sums = {f"OrderedSum, tail of {n:,} records": OrderedSum(SENSITIVITIES, LinearTail(tail_of(n))) for n in TAILS}
    sums["OrderedSum, no tail"] = OrderedSum(SENSITIVITIES, NoTail())
    plain = {"numpy, in blocks": BLOCK, "numpy, chunk by chunk": CHUNK}
    contenders: dict[str, Callable[[Chunk], object]] = {
        **{name: lambda chunk, total=total: total.update(*chunk) for name, total in sums.items()},
        **{name: lambda chunk, block=block: _plain(chunk, block) for name, block in plain.items()},
        "numpy, values that come clipped": lambda chunk: (chunk[0].sum(), np.count_nonzero(chunk[1] > 2)),
    }
    _ratios("scalar", stream(ROWS, CHUNK, None, contenders), list(sums), [*contenders][len(sums) :])


def wide() -> None:
    """Rows of 64 columns, clipped by their norm."""
    from inosgm import LinearTail, NoTail
    from inosgm.mechanism.streaming import OrderedSum

    total = {"OrderedSum, tail of 10,000 records": LinearTail(tail_of(10_000)), "OrderedSum, no tail": NoTail()}
    sums = {name: OrderedSum(SENSITIVITIES, tail) for name, tail in total.items()}
    contenders: dict[str, Callable[[Chunk], object]] = {
        **{name: lambda chunk, total=total: total.update(*chunk) for name, total in sums.items()},
        "numpy, in blocks": lambda chunk: _plain_wide(chunk, 512),
        "numpy, chunk by chunk": lambda chunk: _plain_wide(chunk, WIDE_CHUNK),
        "numpy, sum within a matrix product": _product,
        "numpy, rows that come clipped": lambda chunk: (chunk[0].sum(axis=0), np.count_nonzero(chunk[1] > 2)),
    }
    print(f"{WIDTH} columns, {WIDE_ROWS:,} rows:")
    _ratios("64 columns", stream(WIDE_ROWS, WIDE_CHUNK, WIDTH, contenders), list(sums), [*contenders][len(sums) :])


def sampled() -> None:
    """Coins: one keyed hash per record where rates are below 1."""
    from inosgm import LinearTail
    from inosgm.mechanism.streaming import OrderedSum
    from inosgm.planning.planners import Plan

    rows = 20_000_000
    contenders: dict[str, Callable[[Chunk], object]] = {}
    for rate in (1.0, 0.5, 0.01):
        sizes = [rows // 3] * 3
        plan = Plan(sample_rates=[rate] * 3, sensitivities=SENSITIVITIES, sizes=sizes, noise_scale=1, steps=1)
        total = OrderedSum(plan, LinearTail(tail_of(10_000)), secret=bytes(16))
        contenders[f"OrderedSum, rate {rate:g}"] = lambda chunk, total=total: total.update(*chunk)
    seconds = stream(rows, CHUNK, None, contenders)
    for rate in (0.5, 0.01):
        what = f"scalar: rate {rate:g}, a hashed coin per record / rate 1"
        report(what, seconds[f"OrderedSum, rate {rate:g}"] / seconds["OrderedSum, rate 1"])


def falling() -> None:
    """The worst order of arrival: every record is less important than all before it, and so enters the tail."""
    from inosgm import LinearTail
    from inosgm.mechanism.streaming import OrderedSum

    def fallen(chunk: Chunk) -> Chunk:
        values, scores, owners, first = chunk
        return values, -np.arange(first, first + scores.size, dtype=np.float64), owners, first

    sums = {f"OrderedSum, tail of {n:,} records": OrderedSum(SENSITIVITIES, LinearTail(tail_of(n))) for n in TAILS}
    contenders: dict[str, Callable[[Chunk], object]] = {
        **{name: lambda chunk, total=total: total.update(*fallen(chunk)) for name, total in sums.items()},
        "numpy, in blocks": lambda chunk: _plain(fallen(chunk), BLOCK),
    }
    found = stream(20_000_000, CHUNK, None, contenders)
    for name in sums:
        report(f"scores that only fall: {name} / numpy, in blocks", found[name] / found["numpy, in blocks"])


def sorting() -> None:
    """All rows in memory, sorted, against the stream of the same rows."""
    for rows in (1_000_000, 10_000_000):
        _against_sorting(rows)


def _against_sorting(rows: int) -> None:
    """Print what it takes to sort so many rows beside what it takes to stream them."""
    from inosgm import LinearTail, ordered_sum
    from inosgm.mechanism.streaming import OrderedSum

    whole, tail = list(chunks(rows, CHUNK)), LinearTail(tail_of(10_000))
    contributions, scores, owners = (np.concatenate([chunk[part] for chunk in whole]) for part in range(3))
    bounds = SENSITIVITIES[owners]

    def streamed() -> np.ndarray:
        total = OrderedSum(SENSITIVITIES, tail)
        for chunk in whole:
            total.update(*chunk)
        return total.exact()

    def by_hand() -> np.ndarray:
        order = np.argsort(scores, kind="stable")
        ranked = bounds[order]
        rho = np.diff(tail.W(np.cumsum(ranked)), prepend=0.0) / ranked
        return np.asarray(rho @ np.clip(contributions[order], -ranked, ranked))

    def ours() -> np.ndarray:
        return np.asarray(ordered_sum(np.clip(contributions, -bounds, bounds)[:, None], scores, bounds, tail))

    np.testing.assert_allclose(by_hand(), streamed(), rtol=1e-6)
    ways = {"streamed": streamed, "by hand": by_hand, "ordered_sum": ours}
    seconds = medians(ways, rounds=5, clock=time.process_time)
    print(f"{rows:>10,} rows: " + ", ".join(f"{name} {1e9 * s / rows:.1f} ns a row" for name, s in seconds.items()))
    for name, what in (("by hand", "argsort and weights of all"), ("ordered_sum", "inosgm.ordered_sum")):
        report(f"{rows:>10,} rows in memory: {what} / OrderedSum", seconds[name] / seconds["streamed"])


def cores() -> None:
    """One question about Parquet files, by this process alone, by two processes, and by two cores of Ray.

    By the clock, so on a machine that others use it says little. Ray and its workers are there before the clock runs.
    """
    import ray

    from inosgm.jobs import Executor, ProcessExecutor, SerialExecutor
    from ray_jobs import RayDataExecutor

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    executors: dict[str, Executor] = {
        "one core": SerialExecutor(),
        "two processes": ProcessExecutor(2),
        "Ray, two cores": RayDataExecutor(),
    }
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        sizes = _write(place / "table")
        for question, more in (("mean", {}), ("top-heavy-sum", {"fraction": 0.001})):
            ways = {
                name: lambda executor=executor, question=question, more=more: _asked(
                    place, sizes, executor, question, more
                )
                for name, executor in executors.items()
            }
            found = {name: way() for name, way in ways.items()}
            assert len(set(found.values())) == 1, "the same bits on any executor"
            seconds = medians(ways, rounds=3)
            rows = sum(sizes)
            print(
                f"{question} of {rows:,} rows in {FILES} Parquet files: "
                + ", ".join(f"{name} {rows / s / 1e6:.1f} million rows per second" for name, s in seconds.items())
            )
            for name in ("two processes", "Ray, two cores"):
                asked = 1.7 if name == "Ray, two cores" else None
                report(f"{question}: one core / {name}", seconds["one core"] / seconds[name], at_least=asked)
    ray.shutdown()


def _write(place: Path) -> list[int]:
    """Write made-up values and owners to Parquet files; return how many records each owner has."""
    import pyarrow as pa
    from pyarrow import parquet

    place.mkdir()
    sizes = np.zeros(len(SENSITIVITIES), dtype=np.int64)
    for number, (values, _, owners, _) in enumerate(chunks(FILES * FILE_ROWS, FILE_ROWS)):
        table = pa.table({"value": values, "owner": pa.DictionaryArray.from_arrays(owners.astype(np.int32), LABELS)})
        parquet.write_table(table, place / f"{number:02}.parquet", row_group_size=FILE_ROWS // 4)
        sizes += np.bincount(owners, minlength=sizes.size)
    return sizes.tolist()


def _asked(place: Path, sizes: list[int], executor: "Executor", question: str, more: dict[str, float]) -> float:
    """Ask a question about the files, from looking at them to the estimate."""
    from inosgm import Owners
    from inosgm.statistics.durable import run_statistic
    from inosgm.statistics.tables import Table

    owners = Owners.from_table({"owner": LABELS, "epsilon": [0.5, 1.0, 2.0], "records": sizes}, delta=1e-6)
    table = Table.of(place / "table", "value", "owner")
    with tempfile.TemporaryDirectory(dir=place) as store:
        estimate = run_statistic(
            question, table, owners, store=store, executor=executor, key=1, progress=False, bounds=(-5, 5), **more
        )
    return float(estimate.value)


def _plain(chunk: Chunk, block: int) -> float:
    """Sum values clipped to their owner's bound, and compare every score with a number: plain numpy."""
    values, scores, owners, _ = chunk
    total, kept = 0.0, 0
    for begin in range(0, values.size, block):
        bounds = SENSITIVITIES[owners[begin : begin + block]]
        total += float(np.clip(values[begin : begin + block], -bounds, bounds).sum())
        kept += int(np.count_nonzero(scores[begin : begin + block] > 2))
    return total + kept


def _plain_wide(chunk: Chunk, block: int) -> np.ndarray:
    """Sum rows clipped to the norm that their owner allows, and compare every score with a number: plain numpy."""
    rows, scores, owners, _ = chunk
    total, kept = np.zeros(rows.shape[1]), 0
    for begin in range(0, len(rows), block):
        part, bounds = rows[begin : begin + block], SENSITIVITIES[owners[begin : begin + block]]
        factors = np.minimum(1, bounds / np.linalg.norm(part, axis=1))
        total += (part * factors[:, None]).sum(axis=0)
        kept += int(np.count_nonzero(scores[begin : begin + block] > 2))
    return total + kept


def _product(chunk: Chunk) -> np.ndarray:
    """Do the same without ever having the clipped rows."""
    rows, scores, owners, _ = chunk
    factors = np.minimum(1, SENSITIVITIES[owners] / np.sqrt(np.einsum("ij,ij->i", rows, rows)))
    return np.asarray(factors @ rows + np.count_nonzero(scores > 2))


def _ratios(what: str, found: dict[str, float], ours: list[str], peers: list[str]) -> None:
    """Print every ratio, with what was asked beside the plain sums that clip themselves."""
    for name in ours:
        for peer in peers:
            asked = 3 if peer in ("numpy, in blocks", "numpy, chunk by chunk") else None
            report(f"{what}: {name} / {peer}", found[name] / found[peer], at_most=asked)


MEASUREMENTS = {
    "scalar": scalar,
    "wide": wide,
    "falling": falling,
    "sampled": sampled,
    "sorting": sorting,
    "cores": cores,
}


def main() -> None:
    """Take every measurement, each in a new process with one thread."""
    for name in MEASUREMENTS:
        command = [sys.executable, "-m", "benchmarks.streaming", name]
        subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)


if __name__ == "__main__":
    MEASUREMENTS[sys.argv[1]]() if len(sys.argv) > 1 else main()
