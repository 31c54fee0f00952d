"""Planning against the peer's way: Opacus' accountant in a loop over groups, bisection for multipliers and
for rates.

Run it as `python benchmarks/planning.py`; it takes two to four minutes. Ours and the peer alternate, medians
are compared. The peer is measured with 8 groups; for 128 its time is multiplied by its exact number of
accountant calls.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from inosgm.accounting import PLD, RDP, epsilon
from inosgm.accounting.pld import pld_epsilon
from inosgm.owners import Owners
from inosgm.planning.planners import plan_sample, plan_scale

RECORDS, BATCH, STEPS, DELTA, PRECISION = 60000, 512, 9375, 1e-5, 0.01
RATE = BATCH / RECORDS
Oracle = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass
class Peer:
    """IDP-SGD's Algorithms 2 to 5 over an accountant that is asked one case at a time."""

    oracle: Oracle
    calls: int = 0

    def ask(self, rate: np.ndarray, multiplier: np.ndarray) -> np.ndarray:
        """Ask the accountant, and count."""
        self.calls += rate.size
        return self.oracle(rate, multiplier)

    def noise(self, target: np.ndarray) -> np.ndarray:
        """Algorithm 5, which is Opacus' get_noise_multiplier, for every group."""
        low, high = np.zeros(target.size), np.full(target.size, 10.0)
        spent = np.full(target.size, np.inf)
        while (over := np.flatnonzero(spent > target)).size:
            high[over] *= 2
            spent[over] = self.ask(np.full(over.size, RATE), high[over])
        while (open_ := np.flatnonzero(target - spent > PRECISION)).size:
            middle = (low[open_] + high[open_]) / 2
            found = self.ask(np.full(open_.size, RATE), middle)
            fits = found < target[open_]
            high[open_[fits]], spent[open_[fits]] = middle[fits], found[fits]
            low[open_[~fits]] = middle[~fits]
        return high

    def rates(self, target: np.ndarray, multiplier: float) -> np.ndarray:
        """Algorithm 4, with the rate moved the way that keeps the budget."""
        low, high = np.full(target.size, 1e-9), np.full(target.size, 0.2)
        spent = np.zeros(target.size)
        while (open_ := np.flatnonzero(target - spent > PRECISION)).size:
            middle = (low[open_] + high[open_]) / 2
            found = self.ask(middle, np.full(open_.size, multiplier))
            fits = found < target[open_]
            low[open_[fits]], spent[open_[fits]] = middle[fits], found[fits]
            high[open_[~fits]] = middle[~fits]
        return low

    def scale(self, target: np.ndarray) -> None:
        """Algorithm 3."""
        self.noise(target)

    def sample(self, target: np.ndarray) -> None:
        """Algorithm 2, with halves instead of a factor just below one, which would take several times as
        long.
        """
        low, high = 0.1, float(self.noise(target[:1])[0])
        while True:
            middle = (low + high) / 2
            mean = self.rates(target, middle).mean()
            if abs(mean / RATE - 1) < PRECISION:
                return
            low, high = (low, middle) if mean > RATE else (middle, high)


def opacus(rate: np.ndarray, multiplier: np.ndarray) -> np.ndarray:
    """Ask Opacus' RDP accountant, one case after the other."""
    from opacus.accountants import RDPAccountant

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each, noise in zip(rate, multiplier, strict=True):
            accountant = RDPAccountant()
            accountant.history = [(float(noise), float(each), STEPS)]
            found.append(accountant.get_epsilon(DELTA))
    return np.array(found)


def calls(groups: int, method: str) -> int:
    """Count what the peer would ask for so many groups; our accountant, all groups at once, answers in its
    place.
    """
    peer = Peer(lambda rate, multiplier: epsilon(rate, multiplier, STEPS, DELTA, RDP()))
    getattr(peer, method)(budgets(groups))
    return peer.calls


def budgets(count: int) -> np.ndarray:
    """Return distinct budgets in [1, 3]."""
    return np.linspace(1, 3, count)


@cache
def owners(count: int) -> Owners:
    """Return owners with one of these budgets each."""
    of_record = np.repeat(np.arange(count), max(1, RECORDS // count))
    return Owners(of_record=of_record, epsilon=budgets(count), delta=DELTA)


def ours(method: str, accountant: PLD | RDP, count: int) -> Any:
    """Plan from scratch, with an empty cache of distributions."""
    pld_epsilon.cache_clear()
    grants, plan = owners(count), {"scale": plan_scale, "sample": plan_sample}[method]
    return plan(grants, steps=STEPS, expected_batch=RATE * grants.n_records, clip_norm=1.0, accountant=accountant)


def seconds(work: Callable[[], Any]) -> float:
    """Return how long some work takes, in CPU seconds of this process: the machine may be shared."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print the ratios."""
    ours("scale", RDP(), 8)
    opacus(np.array([RATE]), np.array([2.0]))
    for method, rounds in (("scale", 5), ("sample", 2)):
        kinds: dict[str, Callable[[], Any]] = {
            "peer RDP, 8 groups": lambda method=method: getattr(Peer(opacus), method)(budgets(8)),
            "ours RDP, 8": lambda method=method: ours(method, RDP(), 8),
            "ours RDP, 128": lambda method=method: ours(method, RDP(), 128),
            "ours RDP, 50000": lambda method=method: ours(method, RDP(), 50000),
            "ours PLD, 8": lambda method=method: ours(method, PLD(), 8),
            "ours PLD, 128": lambda method=method: ours(method, PLD(), 128),
            "ours PLD, 50000": lambda method=method: ours(method, PLD(), 50000),
        }
        taken = {name: [] for name in kinds}  # type: dict[str, list[float]]
        for _ in range(rounds):
            for name, work in kinds.items():
                taken[name].append(seconds(work))
        median = {name: statistics.median(times) for name, times in taken.items()}
        peer = median["peer RDP, 8 groups"]
        factor = calls(128, method) / calls(8, method)
        print(f"\nplan_{method}: {STEPS} steps, expected batch {BATCH} of {RECORDS}, budgets in [1, 3]")
        for name, value in median.items():
            spread = f"{min(taken[name]):.3f} .. {max(taken[name]):.3f}"
            print(f"  {name:20s} {value:9.3f} s  (from {spread})  peer with 8 / this = {peer / value:8.1f}")
        print(f"  peer RDP, 128 groups {peer * factor:9.3f} s  ({factor:.2f} times the calls of 8)")
        print(
            f"  -> 128 budgets, RDP, ours against the peer's way: "
            f"{peer * factor / median['ours RDP, 128']:.0f}x (goal 500x)"
        )
        print(f"  -> 50,000 budgets by RDP / peer with 8: {median['ours RDP, 50000'] / peer:.2f} (goal below 1)")
        print(f"  -> 128 budgets by PLD / peer with 8: {median['ours PLD, 128'] / peer:.2f} (goal below 1)")
        print(
            f"  -> 50,000 budgets by PLD / 128 by PLD: "
            f"{median['ours PLD, 50000'] / median['ours PLD, 128']:.2f} (goal at most 5)"
        )
        ours(method, PLD(), 50000)
        asked = pld_epsilon.cache_info()
        one = seconds(lambda: [pld_epsilon.__wrapped__(((RATE, m, STEPS),), DELTA) for m in (1.2, 1.8, 2.4)]) / 3
        part = asked.misses * one / median["ours PLD, 50000"]
        print(
            f"  50,000 by PLD: {asked.misses} distributions of {1000 * one:.0f} ms, {part:.0%} of the time; "
            "the rest is sorting,"
        )
        print(
            "  interpolation and labels. Next bottleneck: the FFTs of the distributions, then, for "
            "millions, the sorting."
        )
    print("\na million records with one budget each, PLD, in a process of its own")
    for method in ("scale", "sample"):
        print(
            "  "
            + subprocess.run(
                [sys.executable, __file__, "--million", method], capture_output=True, text=True, check=True
            ).stdout.strip()
        )


def million(method: str) -> None:
    """Plan for a million budgets and print time and memory."""
    plan_time = seconds(lambda: ours(method, PLD(), 10**6))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"plan_{method}: {plan_time:.2f} s, peak memory {peak:.0f} MB (goal below 2048 MB)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", choices=["scale", "sample"])
    wanted = parser.parse_args().million
    if wanted:
        million(wanted)
    else:
        main()
