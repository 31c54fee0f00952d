"""The names of all attacks, and what each takes for a sign of membership; commands, tables and documents read them.

The attacks themselves are in `attacks.ATTACKS`. This module imports nothing, so that a command can show its help
without numpy.
"""

ATTACK_NAMES = {
    "online": "LiRA: the score is likelier among shadow models with the record than among those without it",
    "online-global": "LiRA with one variance for all records in, and one for all records out",
    "offline-density": "LiRA, offline: the score has a low density among shadow models without the record",
    "offline-tail": "LiRA, offline: the score is high among shadow models without the record",
    "rmia": "RMIA: the model prefers the record, relative to shadow models, more than it prefers other records",
    "rmia-offline": "RMIA with only the shadow models without the record",
    "bavaria": "Student's t predictive densities instead of LiRA's Gaussians, with a prior from all records",
    "quantile": "the score is in a high quantile among records that other models find equally hard",
    "loss": "the score is high, with one threshold for all records; needs no shadow models",
}
