"""Units of privacy: what an epsilon protects, and the neighbouring relation that it refers to.

A unit is written as a relation, for one record ("add/remove"), or as a relation and the name of something that holds
several records ("add/remove of patient"). Two units are the same if the texts are.
"""

from inosgm._internal.labels import RECORD as RECORD

ADD_REMOVE = "add/remove"
"""Neighbouring data sets differ by one record, or by all records of one unit, that is added or removed."""

REPLACE_ONE = "replace-one"
"""Neighbouring data sets differ by one replaced record or unit (one removed and one added)."""

RELATIONS = (ADD_REMOVE, REPLACE_ONE)

_OF = " of "


def unit_of(relation: str, name: str = RECORD) -> str:
    """Return the unit of a relation between data sets that differ by something with this name.

    >>> unit_of(ADD_REMOVE), unit_of(REPLACE_ONE, "patient")
    ('add/remove', 'replace-one of patient')
    """
    return relation if name == RECORD else f"{relation}{_OF}{name}"


def relation_of(unit: str) -> str:
    """Return the neighbouring relation of a unit.

    >>> relation_of("add/remove of patient")
    'add/remove'
    """
    return unit.partition(_OF)[0]


def name_of(unit: str) -> str:
    """Return what a unit protects: "record", or the name that `Owners` gave to its units.

    >>> name_of(ADD_REMOVE), name_of("add/remove of patient")
    ('record', 'patient')
    """
    return unit.partition(_OF)[2] or RECORD


def is_unit(unit: str) -> bool:
    """Say whether a text is a unit."""
    relation, of, name = unit.partition(_OF)
    return relation in RELATIONS and bool(name) == bool(of) and name != RECORD


def protected(unit: str) -> str:
    """Return what a unit protects, in words.

    >>> protected(ADD_REMOVE), protected("add/remove of patient")
    ('one record', 'one patient with all its records')
    """
    name = name_of(unit)
    return f"one {name}" + " with all its records" * (name != RECORD)


def described(unit: str) -> str:
    """Return what an epsilon of a unit is about, for messages and reports.

    >>> described("add/remove of patient")
    'about one patient with all its records that is added or removed'
    """
    if relation_of(unit) == ADD_REMOVE:
        return f"about {protected(unit)} that is added or removed"
    return f"about {protected(unit)} that is replaced by another, where the same noise has about twice the epsilon"


def other_unit(here: str, there: str) -> str:
    """Return the part of an error message that explains why costs in two units cannot be added."""
    return (
        f"{here} ({described(here)}) against {there} ({described(there)}): epsilons of different units are different "
        "promises, and must not be added"
    )


def name_in(unit: str, name: str) -> str:
    """Return the name of the accountant of the same family (PLD or RDP) in a unit.

    >>> name_in(REPLACE_ONE, "rdp"), name_in("add/remove of patient", "pld-replace-one")
    ('rdp-replace-one', 'pld')
    """
    family, relation = name.partition("-")[0], relation_of(unit)
    return family if relation == ADD_REMOVE else f"{family}-{relation}"
