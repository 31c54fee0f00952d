"""Units of privacy: the neighbouring relation that an epsilon refers to."""

ADD_REMOVE = "add/remove"
"""Neighbouring data sets differ by one record that is added or removed."""

REPLACE_ONE = "replace-one"
"""Neighbouring data sets differ by one replaced record (one removed and one added)."""

UNITS = {
    ADD_REMOVE: "about one record that is added or removed",
    REPLACE_ONE: "about one record that is replaced by another, where the same noise has about twice the epsilon",
}
"""A description of each unit, for messages and reports."""


def other_unit(here: str, there: str) -> str:
    """Return the part of an error message that explains why costs in two units cannot be added."""
    return (
        f"{here} ({UNITS[here]}) against {there} ({UNITS[there]}): epsilons of different units are different promises, "
        "and must not be added"
    )


def name_in(unit: str, name: str) -> str:
    """Return the name of the accountant of the same family (PLD or RDP) in a unit.

    >>> name_in(REPLACE_ONE, "rdp"), name_in(ADD_REMOVE, "pld-replace-one")
    ('rdp-replace-one', 'pld')
    """
    family = name.partition("-")[0]
    return family if unit == ADD_REMOVE else f"{family}-{unit}"
