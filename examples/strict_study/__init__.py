"""A study: who serves strict owners? `python -m examples.strict_study --help` runs it."""
