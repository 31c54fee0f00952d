"""A study: does INO-SGD do what its paper says? `python -m examples.study --help` runs it."""
