"""Units of privacy: what a promise is about."""

ADD_REMOVE = "add/remove"
"""One record that is added or removed."""

REPLACE_ONE = "replace-one"
"""One record that is replaced by another, which is one removed and one added: the same noise has about twice the
epsilon."""

UNITS = {
    ADD_REMOVE: "about one record that is added or removed",
    REPLACE_ONE: "about one record that is replaced by another, where the same noise has about twice the epsilon",
}
"""What they mean, for people."""


def other_unit(here: str, there: str) -> str:
    """Say why what is counted in two units is not added up."""
    return (
        f"{here} ({UNITS[here]}) against {there} ({UNITS[there]}): epsilons of different units are different promises, "
        "and must not be added"
    )


def name_in(unit: str, name: str) -> str:
    """Return the name of the accountant that works like another one, in a unit.

    >>> name_in(REPLACE_ONE, "rdp"), name_in(ADD_REMOVE, "pld-replace-one")
    ('rdp-replace-one', 'pld')
    """
    family = name.partition("-")[0]
    return family if unit == ADD_REMOVE else f"{family}-{unit}"
