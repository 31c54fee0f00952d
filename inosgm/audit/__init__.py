"""Attacks on what was promised: membership inference by shadow models, and lower bounds on epsilon."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.audit.attack_power import Power as Power
    from inosgm.audit.attack_power import power as power
    from inosgm.audit.attacks import ATTACKS as ATTACKS
    from inosgm.audit.auditing import lira as lira
    from inosgm.audit.black_box import GaussianSteps as GaussianSteps
    from inosgm.audit.black_box import ReleaseAudit as ReleaseAudit
    from inosgm.audit.black_box import audit_callable as audit_callable
    from inosgm.audit.claims import Claim as Claim
    from inosgm.audit.claims import claims_of as claims_of
    from inosgm.audit.mechanism_audit import MechanismAudit as MechanismAudit
    from inosgm.audit.mechanism_audit import audit_mechanism as audit_mechanism
    from inosgm.audit.model_audit import ModelAudit as ModelAudit
    from inosgm.audit.model_audit import audit_model as audit_model
    from inosgm.audit.pool import Shadows as Shadows
    from inosgm.audit.report import Audit as Audit
    from inosgm.audit.shadow_study import ShadowStudy as ShadowStudy

_NAMES_OF = {
    "attack_power": ["Power", "power"],
    "attacks": ["ATTACKS"],
    "auditing": ["lira"],
    "black_box": ["GaussianSteps", "ReleaseAudit", "audit_callable"],
    "claims": ["Claim", "claims_of"],
    "mechanism_audit": ["MechanismAudit", "audit_mechanism"],
    "model_audit": ["ModelAudit", "audit_model"],
    "pool": ["Shadows"],
    "report": ["Audit"],
    "shadow_study": ["ShadowStudy"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
