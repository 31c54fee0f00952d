"""What the ways of answering are called."""

INDIVIDUAL, STRATIFIED, STRICTEST = "individual budgets", "owner by owner", "strictest for all"
WITHOUT_ORDER = "individual, without an order"
OPENDP, OPENDP_CENTRED = "OpenDP", "OpenDP, centred"
