"""Fixed features of records, which a model is trained on instead of the records themselves."""

from inosgm.training.features.frozen import make, require_frozen, transform
from inosgm.training.features.scattering import Scattering

__all__ = ["Scattering", "make", "require_frozen", "transform"]
