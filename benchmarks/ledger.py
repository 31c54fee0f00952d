"""What a charge costs: after many rows, for a thousand owners, and for a million owners with a budget each.

Run it as `python -m benchmarks ledger`; it takes about a minute. Charges in memory show the accounting; those in a file
also wait for the disk (two fsyncs for each row). The ledger of fixed costs, which composes its whole history anew, is
measured beside it on its first rows.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from inosgm import Ledger, Owners
from inosgm.ledger.cost import Cost

ROWS, OWNERS, CLASSES = 10_000, 1000, (1.0, 2.0, 4.0, 8.0)
WINDOW = 200


def question(labels: tuple[int, ...], multipliers: np.ndarray, scale: float) -> Cost:
    """Return one question about all records."""
    return Cost(labels=labels, sample_rates=np.ones(len(labels)), noise_multipliers=multipliers * scale)


def milliseconds(ledger: Ledger, costs: list[Cost]) -> list[float]:
    """Return the time of each charge."""
    times = []
    for cost in costs:
        began = time.perf_counter()
        ledger.charge(cost)
        times.append(1000 * (time.perf_counter() - began))
    return times


def after_rows(path: Path | None, rows: int, *, adaptive: bool = True) -> tuple[float, float]:
    """Return the median time of the first and of the last charges, each with a cost of its own."""
    budgets = np.resize(CLASSES, OWNERS)
    owners = Owners(of_record=np.arange(OWNERS), epsilon=dict(enumerate(budgets.tolist())), delta=1e-5)
    labels, multipliers = tuple(owners.labels), 3000 / budgets
    ledger = Ledger(path, owners=owners, adaptive=adaptive)
    times = milliseconds(ledger, [question(labels, multipliers, 1 + row / rows) for row in range(rows)])
    window = min(WINDOW, rows // 2)
    return statistics.median(times[:window]), statistics.median(times[-window:])


def million(path: Path | None = None) -> list[float]:
    """Return the seconds of charges of a million owners with a budget each: two new costs, then one of them again."""
    size = 1_000_000
    epsilon = np.linspace(0.5, 8, size)
    owners = Owners(of_record=np.arange(size), epsilon=epsilon, delta=1e-5)
    ledger = Ledger(path, owners=owners)
    labels = tuple(owners.labels)
    costs = [question(labels, 100 / epsilon, scale) for scale in (1.0, 1.5)]
    return [time / 1000 for time in milliseconds(ledger, [*costs, costs[-1].of_new_job()])]


def listed(seconds: list[float]) -> str:
    """Return times as text."""
    return ", ".join(f"{value:.2f} s" for value in seconds)


def main() -> None:
    """Print the times."""
    first, last = after_rows(None, ROWS)
    print(f"adaptive, in memory, {OWNERS} owners, {len(CLASSES)} budgets")
    print(f"  {first:.2f} ms at first, {last:.2f} ms at row {ROWS}")
    with tempfile.TemporaryDirectory() as folder:
        first, last = after_rows(Path(folder, "ledger"), ROWS // 10)
        print(f"adaptive, in a file: {first:.2f} ms at first, {last:.2f} ms at row {ROWS // 10}")
        print(f"a million owners with a budget each, in a file: {listed(million(Path(folder, 'million')))}")
    first, last = after_rows(None, 100, adaptive=False)
    print(f"costs fixed in advance, in memory: {first:.2f} ms at first, {last:.2f} ms at row 100")
    print(f"a million owners with a budget each, in memory: {listed(million())}")


if __name__ == "__main__":
    main()
