"""Privacy accounting: the cost of sampled Gaussian steps per owner, its inverses, and the two units of privacy."""

from inosgm.accounting.accountants import (
    ACCOUNTANTS,
    PLD,
    RDP,
    PLDReplaceOne,
    RDPReplaceOne,
    Stretch,
    chosen,
)
from inosgm.accounting.interface import Accountant
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
