"""What the ways of answering are called."""

INDIVIDUAL, STRATIFIED, STRICTEST = "individual budgets", "owner by owner", "strictest for all"
OPENDP, OPENDP_CENTRED = "OpenDP", "OpenDP, centred"
