"""Run all benchmarks, or those named: python -m benchmarks weights sampling."""

import sys
from importlib import import_module

NAMES = [
    "imports",
    "weights",
    "noise",
    "sampling",
    "planning",
    "training",
    "architectures",
    "units",
    "workers",
    "jobs",
    "shadows",
    "attack",
    "streaming",
    "ledger",
    "aggregations",
]

for name in sys.argv[1:] or NAMES:
    if name not in NAMES:
        sys.exit(f"no benchmark {name!r}: choose from {', '.join(NAMES)}")
    print(f"\n== {name}")
    import_module(f"benchmarks.{name}").main()
