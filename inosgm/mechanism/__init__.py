"""INO-SGM: the one place where a private value is made, and the parts that it is made of."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.mechanism.clipping import AutomaticClipping as AutomaticClipping
    from inosgm.mechanism.clipping import Clipping as Clipping
    from inosgm.mechanism.clipping import ClipToShare as ClipToShare
    from inosgm.mechanism.clipping import PerSampleAdaptive as PerSampleAdaptive
    from inosgm.mechanism.clipping import ScaleClipped as ScaleClipped
    from inosgm.mechanism.contributions import Cells as Cells
    from inosgm.mechanism.contributions import Concatenated as Concatenated
    from inosgm.mechanism.contributions import Contributions as Contributions
    from inosgm.mechanism.contributions import Dense as Dense
    from inosgm.mechanism.mechanism import INOSGM as INOSGM
    from inosgm.mechanism.mechanism import Release as Release
    from inosgm.mechanism.noise import DiscreteNoise as DiscreteNoise
    from inosgm.mechanism.noise import GaussianNoise as GaussianNoise
    from inosgm.mechanism.orders import Ascending as Ascending
    from inosgm.mechanism.orders import Descending as Descending
    from inosgm.mechanism.orders import Order as Order
    from inosgm.mechanism.orders import OwnerFirst as OwnerFirst
    from inosgm.mechanism.orders import RandomOrder as RandomOrder
    from inosgm.mechanism.streaming import OrderedSum as OrderedSum
    from inosgm.mechanism.streaming import Streaming as Streaming
    from inosgm.mechanism.tails import BetaTail as BetaTail
    from inosgm.mechanism.tails import HardTail as HardTail
    from inosgm.mechanism.tails import LinearTail as LinearTail
    from inosgm.mechanism.tails import NoTail as NoTail
    from inosgm.mechanism.tails import StepTail as StepTail
    from inosgm.mechanism.tails import TableTail as TableTail
    from inosgm.mechanism.tails import Tail as Tail
    from inosgm.mechanism.units import UnitMean as UnitMean
    from inosgm.mechanism.units import UnitRule as UnitRule
    from inosgm.mechanism.units import UnitSum as UnitSum
    from inosgm.mechanism.weights import importance_weights as importance_weights
    from inosgm.mechanism.weights import ordered_sum as ordered_sum

_NAMES_OF = {
    "clipping": ["AutomaticClipping", "ClipToShare", "Clipping", "PerSampleAdaptive", "ScaleClipped"],
    "contributions": ["Cells", "Concatenated", "Contributions", "Dense"],
    "mechanism": ["INOSGM", "Release"],
    "noise": ["DiscreteNoise", "GaussianNoise"],
    "orders": ["Ascending", "Descending", "Order", "OwnerFirst", "RandomOrder"],
    "streaming": ["OrderedSum", "Streaming"],
    "tails": ["BetaTail", "HardTail", "LinearTail", "NoTail", "StepTail", "TableTail", "Tail"],
    "units": ["UnitMean", "UnitRule", "UnitSum"],
    "weights": ["importance_weights", "ordered_sum"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
