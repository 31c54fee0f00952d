"""importance_weights against a bare sort of the same scores, and against a record-by-record loop."""

import numpy as np
import torch
from scipy import integrate, special

from benchmarks.timing import medians, report
from inosgm import BetaTail, LinearTail, importance_weights


def main() -> None:
    """Print the ratios that issue 2 names, at three batch sizes, in numpy and torch."""
    torch.set_num_threads(1)  # numpy sorts in one thread, too
    generator = np.random.default_rng(0)
    for n in (1024, 65_536, 1_048_576):
        _against_sorting(n, generator)
    n, length = 1024, 400.0
    scores, sensitivities = generator.normal(size=n), np.ones(n)
    tail = BetaTail(2, 3, length)
    seconds = medians(
        {
            "loop": lambda: _loop(scores, sensitivities, 2, 3, length),
            "100 of ours": lambda: [importance_weights(scores, sensitivities, tail) for _ in range(100)],
            "making the tail": lambda: BetaTail(2, 3, length).pieces,
        },
        rounds=7,
    )
    ours = seconds["100 of ours"] / 100
    report("n =     1,024: record-by-record loop with quadrature / ours", seconds["loop"] / ours, at_least=100)
    report("making a BetaTail, once for a whole plan / one call of ours", seconds["making the tail"] / ours)


def _against_sorting(n: int, generator: np.random.Generator) -> None:
    """Print what weights cost beside a bare sort of n scores."""
    scores, sensitivities = generator.normal(size=n), generator.choice([0.5, 1.0, 2.0], size=n)
    half_tied = np.maximum(scores, 0.0)  # as a saturated loss
    length = 0.4 * float(sensitivities.sum())
    beta, linear = BetaTail(2, 3, length), LinearTail(length)
    tensors = torch.from_numpy(scores), torch.from_numpy(sensitivities)
    seconds = medians(
        {
            "beta": lambda: importance_weights(scores, sensitivities, beta),
            "linear": lambda: importance_weights(scores, sensitivities, linear),
            "half tied": lambda: importance_weights(half_tied, sensitivities, beta),
            "stable argsort of half tied": lambda: np.argsort(half_tied, kind="stable"),
            "torch": lambda: importance_weights(*tensors, beta),
            "stable argsort": lambda: np.argsort(scores, kind="stable"),
            "argsort": lambda: np.argsort(scores),
            "torch argsort": lambda: torch.argsort(tensors[0], stable=True),
        }
    )
    asked = 2.0 if n >= 65_536 else None
    for ours, peer in (
        ("beta", "stable argsort"),
        ("linear", "stable argsort"),
        ("half tied", "stable argsort of half tied"),
        ("torch", "torch argsort"),
        ("beta", "argsort"),
    ):
        bound = asked if peer != "argsort" else None  # ties need a stable sort; the unstable one is shown beside
        report(f"n = {n:>9,}: {ours} weights / {peer}", seconds[ours] / seconds[peer], at_most=bound)


def _loop(scores: np.ndarray, sensitivities: np.ndarray, alpha: float, beta: float, length: float) -> list[float]:
    """Integrate the importance over the interval of each record, one record at a time, as Alg. 1 is written."""
    rho, below = [], 0.0
    for k in np.argsort(-scores, kind="stable")[::-1]:
        end = below + sensitivities[k]
        area, _ = integrate.quad(lambda u: special.betainc(alpha, beta, min(u / length, 1.0)), below, end)
        rho.append(area / sensitivities[k])
        below = end
    return rho
