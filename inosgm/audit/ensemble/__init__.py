"""Shadow models that are trained together."""

from inosgm.audit.ensemble.ensemble import Ensemble
from inosgm.audit.ensemble.unstackable import unstackable

__all__ = ["Ensemble", "unstackable"]
