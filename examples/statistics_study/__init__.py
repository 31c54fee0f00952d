"""A study: what individual budgets and orders buy on real tables. `python -m examples.statistics_study --help`."""
