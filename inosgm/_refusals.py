"""Why a ledger refuses a charge."""

from inosgm.owners import Label


class BudgetExceeded(Exception):
    """A charge that an owner's budget does not cover; nothing was charged and nothing may be released.

    Attributes:
        owner: The owner for whom it is worst.
        granted: The epsilon that it grants.
        spent: The epsilon that it has spent.
        total: The epsilon that it would have spent.
        owners: How many owners cannot pay.
    """

    def __init__(self, owner: Label, granted: float, spent: float, total: float, owners: int = 1) -> None:
        super().__init__(owner, granted, spent, total, owners)
        self.owner, self.granted, self.spent, self.total, self.owners = owner, granted, spent, total, owners

    @property
    def left(self) -> float:
        """What the owner has left."""
        return max(self.granted - self.spent, 0.0)

    @property
    def asked(self) -> float:
        """What the charge would have added."""
        return self.total - self.spent

    def __str__(self) -> str:
        others = f" (and {self.owners - 1} other owners)" if self.owners > 1 else ""
        return (
            f"owner {self.owner!r}{others} has epsilon {self.left:.6g} left of {self.granted:.6g}, and this "
            f"asks for {self.asked:.6g}: nothing was charged or released; "
            "use fewer steps, more noise or lower sample rates"
        )


class JobMismatch(ValueError):
    """A job that was charged before, with another cost or on other data: no noise may be used twice."""
