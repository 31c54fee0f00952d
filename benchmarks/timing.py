"""Interleaved timing: every round runs each contender once, so that a noisy machine disturbs all alike."""

import statistics
import time
from collections.abc import Callable
from typing import Any


def medians(
    contenders: dict[str, Callable[[], Any]], rounds: int = 15, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median seconds of each contender over interleaved rounds, after one warm-up round.

    On a busy machine, time.process_time as the clock leaves out what other programs took.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            begin = clock()
            run()
            if number:
                seconds[name].append(clock() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def report(what: str, ratio: float, *, at_most: float | None = None, at_least: float | None = None) -> None:
    """Print one ratio beside what was asked of it."""
    asked, met = "", True
    if at_most is not None:
        asked, met = f"asked: at most {at_most:g}x", ratio <= at_most
    if at_least is not None:
        asked, met = f"asked: at least {at_least:g}x", ratio >= at_least
    print(f"{what:<76} {ratio:8.2f}x  {asked}{'' if met else '  NOT REACHED'}")
