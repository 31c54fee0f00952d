"""Poisson draws of the same expected batch from few and from many records."""

import numpy as np

from benchmarks.timing import medians, report
from inosgm.mechanism.sampling import PoissonSampler


def main() -> None:
    """Print what a draw of 1,000 costs from 10 million records with 1,000 rates, against 100 thousand."""
    small, large, one_rate = (_sampler(n, rates) for n, rates in ((100_000, 1000), (10_000_000, 1000), (10_000_000, 1)))
    generator = np.random.default_rng(0)
    coins = np.random.default_rng(1)
    seconds = medians(
        {
            "small": lambda: small.draw(generator),
            "large": lambda: large.draw(generator),
            "one rate": lambda: one_rate.draw(generator),
            "a coin per record": lambda: np.flatnonzero(coins.random(10_000_000) < 1e-4),
        },
        rounds=51,
    )
    report(
        "draw 1,000 of 10,000,000 / of 100,000 records, 1,000 rates each",
        seconds["large"] / seconds["small"],
        at_most=3,
    )
    report("draw 1,000 of 10,000,000 records with 1,000 rates / with one", seconds["large"] / seconds["one rate"])
    report("a coin for each of 10,000,000 records / ours", seconds["a coin per record"] / seconds["large"])


def _sampler(records: int, rates: int) -> PoissonSampler:
    generator = np.random.default_rng(2)
    spread = generator.uniform(0.1, 1.9, rates) if rates > 1 else np.ones(1)
    owners = generator.integers(rates, size=records)
    return PoissonSampler(spread * 1000 / spread[owners].sum(), owners)
