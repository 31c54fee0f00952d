"""What steps cost every owner, and what a budget buys: sampled Gaussian mechanisms, and the two units of privacy."""

from inosgm.accounting.accountants import (
    ACCOUNTANTS,
    PLD,
    RDP,
    Accountant,
    PLDReplaceOne,
    RDPReplaceOne,
    Stretch,
    chosen,
)
from inosgm.accounting.inverses import composed_epsilon, epsilon, noise_multiplier, sample_rate, steps
from inosgm.accounting.segments import Segment

__all__ = [
    "ACCOUNTANTS",
    "PLD",
    "RDP",
    "Accountant",
    "PLDReplaceOne",
    "RDPReplaceOne",
    "Segment",
    "Stretch",
    "chosen",
    "composed_epsilon",
    "epsilon",
    "noise_multiplier",
    "sample_rate",
    "steps",
]
