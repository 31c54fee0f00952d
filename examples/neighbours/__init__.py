"""A study: the neighbouring methods under one roof. `python -m examples.neighbours --help` runs it."""
