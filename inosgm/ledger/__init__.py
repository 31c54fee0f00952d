"""The ledger: the budget that every owner has spent, recorded before anything is released."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.ledger.accounts import HistoryAccountant as HistoryAccountant
    from inosgm.ledger.charges import Charge as Charge
    from inosgm.ledger.cost import BindingLedger as BindingLedger
    from inosgm.ledger.cost import CoinLedger as CoinLedger
    from inosgm.ledger.cost import Cost as Cost
    from inosgm.ledger.cost import LedgerHook as LedgerHook
    from inosgm.ledger.cost import UndoingLedger as UndoingLedger
    from inosgm.ledger.journal import LedgerDamaged as LedgerDamaged
    from inosgm.ledger.ledger import Ledger as Ledger
    from inosgm.ledger.refusals import BudgetExceeded as BudgetExceeded
    from inosgm.ledger.refusals import JobMismatch as JobMismatch

_NAMES_OF = {
    "accounts": ["HistoryAccountant"],
    "charges": ["Charge"],
    "cost": ["BindingLedger", "CoinLedger", "Cost", "LedgerHook", "UndoingLedger"],
    "journal": ["LedgerDamaged"],
    "ledger": ["Ledger"],
    "refusals": ["BudgetExceeded", "JobMismatch"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
