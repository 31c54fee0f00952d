"""What steps cost every owner, and what a budget buys: sampled Gaussian mechanisms, add/remove neighbours."""

from inosgm.accounting.accountants import ACCOUNTANTS, PLD, RDP, Accountant, Stretch, chosen
from inosgm.accounting.inverses import composed_epsilon, epsilon, noise_multiplier, sample_rate, steps
from inosgm.accounting.segments import Segment

__all__ = [
    "ACCOUNTANTS",
    "PLD",
    "RDP",
    "Accountant",
    "Segment",
    "Stretch",
    "chosen",
    "composed_epsilon",
    "epsilon",
    "noise_multiplier",
    "sample_rate",
    "steps",
]
