"""Attacks on what was promised: membership inference by shadow models, and lower bounds on epsilon."""
