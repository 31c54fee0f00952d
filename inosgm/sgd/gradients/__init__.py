"""Per-record gradients of a model, as fast as the model allows."""

from inosgm.sgd.gradients.base import Engine, Gradients, PerRecordLoss
from inosgm.sgd.gradients.bookkeeping import BookKeeping
from inosgm.sgd.gradients.choice import engine_for
from inosgm.sgd.gradients.fixes import fix_in_place, fixed
from inosgm.sgd.gradients.functional import Functional
from inosgm.sgd.gradients.mixing import mixes_records, refuse_mixing
from inosgm.sgd.gradients.one_by_one import OneByOne

__all__ = [
    "BookKeeping",
    "Engine",
    "Functional",
    "Gradients",
    "OneByOne",
    "PerRecordLoss",
    "engine_for",
    "fix_in_place",
    "fixed",
    "mixes_records",
    "refuse_mixing",
]
