"""Per-record gradients of a model, as fast as the model allows."""

from inosgm.training.gradients.base import Engine, Gradients, PerRecordLoss
from inosgm.training.gradients.bookkeeping import BookKeeping
from inosgm.training.gradients.choice import engine_for
from inosgm.training.gradients.fixes import fix_in_place, fixed
from inosgm.training.gradients.functional import Functional
from inosgm.training.gradients.layers import register_layer_rule
from inosgm.training.gradients.mixing import mixes_records, refuse_mixing
from inosgm.training.gradients.one_by_one import OneByOne
from inosgm.training.gradients.report import EngineReport

__all__ = [
    "BookKeeping",
    "Engine",
    "EngineReport",
    "Functional",
    "Gradients",
    "OneByOne",
    "PerRecordLoss",
    "engine_for",
    "fix_in_place",
    "fixed",
    "mixes_records",
    "refuse_mixing",
    "register_layer_rule",
]
