"""Attacks on what was promised: membership inference by shadow models, and lower bounds on epsilon."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inosgm.audit.attacks import ATTACKS as ATTACKS
    from inosgm.audit.auditing import lira as lira
    from inosgm.audit.claims import Claim as Claim
    from inosgm.audit.claims import claims_of as claims_of
    from inosgm.audit.mechanism_audit import MechanismAudit as MechanismAudit
    from inosgm.audit.mechanism_audit import audit_mechanism as audit_mechanism
    from inosgm.audit.pool import Shadows as Shadows
    from inosgm.audit.report import Audit as Audit
    from inosgm.audit.study import ShadowStudy as ShadowStudy

_ROOMS = {
    "attacks": ["ATTACKS"],
    "auditing": ["lira"],
    "claims": ["Claim", "claims_of"],
    "mechanism_audit": ["MechanismAudit", "audit_mechanism"],
    "pool": ["Shadows"],
    "report": ["Audit"],
    "study": ["ShadowStudy"],
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [*_ROOM_OF]


def __getattr__(name: str) -> Any:
    """Import what is asked for: bounds do without torch."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
