"""A study: what do individual budgets and orders buy for statistics of real tables? `python -m examples.statistics_study`."""
