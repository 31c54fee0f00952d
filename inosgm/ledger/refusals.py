"""The exceptions by which a ledger refuses a charge."""

from inosgm.owners import Label


class BudgetExceeded(Exception):
    """A charge that an owner's budget does not cover; nothing was charged and nothing may be released.

    Attributes:
        owner: The owner whose budget would be exceeded by the largest factor.
        granted: The epsilon that it grants.
        spent: The epsilon that it has spent.
        total: The epsilon that it would have spent.
        owners: The number of owners that cannot pay.
        advice: The remedy; a caller that knows what was asked may set a more specific one.
    """

    def __init__(self, owner: Label, granted: float, spent: float, total: float, owners: int = 1) -> None:
        super().__init__(owner, granted, spent, total, owners)
        self.owner, self.granted, self.spent, self.total, self.owners = owner, granted, spent, total, owners
        self.advice = "ask for less: a smaller share of the budgets, fewer steps, more noise or lower sample rates"

    @property
    def left(self) -> float:
        """The epsilon that the owner has left."""
        return max(self.granted - self.spent, 0.0)

    @property
    def asked(self) -> float:
        """The epsilon that the charge would have added."""
        return self.total - self.spent

    def __str__(self) -> str:
        others = f" (and {self.owners - 1} other owner{'s' * (self.owners > 2)})" if self.owners > 1 else ""
        return (
            f"owner {self.owner!r}{others} has epsilon {self.left:.6g} left of {self.granted:.6g}, and this "
            f"would add {self.asked:.6g}: nothing was charged or released; {self.advice}"
        )


class JobMismatch(ValueError):
    """A charge that contradicts an earlier one; nothing was charged and nothing may be released.

    The job was charged with another cost or on other data, the step cannot be repeated and was charged before, or the
    coins of the batch were used before.
    """
