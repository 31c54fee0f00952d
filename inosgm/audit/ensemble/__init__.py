"""Shadow models that are trained together."""

from inosgm.audit.ensemble.ensemble import Ensemble

__all__ = ["Ensemble"]
