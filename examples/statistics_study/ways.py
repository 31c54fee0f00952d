"""What the ways of answering are called."""

EACH_ONCE, WEIGHTED = "every record once (default)", "weighted by budgets"
STRATIFIED, STRICTEST = "owner by owner", "strictest for all"
WITHOUT_ORDER = "default, without an order"
OPENDP, OPENDP_CENTRED = "OpenDP", "OpenDP, centred"
