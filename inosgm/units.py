"""Units of privacy: what a promise is about."""

ADD_REMOVE = "add/remove"
"""One record that is added or removed."""

REPLACE_ONE = "replace-one"
"""One record that is replaced by another: roughly half as strong a promise at the same epsilon."""
