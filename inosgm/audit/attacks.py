"""The registry of attacks: commands, tables, figures and reports find an attack here by its name."""

from inosgm.audit.attack import Attack, LossThreshold
from inosgm.audit.attack_names import ATTACK_NAMES
from inosgm.audit.bavaria import Bavaria
from inosgm.audit.gaussian_attacks import Offline, Online
from inosgm.audit.quantile_attack import Quantile
from inosgm.audit.rmia import Rmia

_EVERY: tuple[Attack, ...] = (
    Online(),
    Online("global"),
    Offline("density"),
    Offline("tail"),
    Rmia(),
    Rmia(offline=True),
    Bavaria(),
    Quantile(),
    LossThreshold(),
)

ATTACKS: dict[str, Attack] = {attack.name: attack for attack in _EVERY}
"""The attacks by name, in the order of `ATTACK_NAMES`; the first, LiRA, is the reference that tables show in full."""

if tuple(ATTACKS) != tuple(ATTACK_NAMES):
    raise RuntimeError(f"attacks and their names differ: {', '.join(ATTACKS)}; {', '.join(ATTACK_NAMES)}")
