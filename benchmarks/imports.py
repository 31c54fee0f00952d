"""import inosgm against import numpy, each in a fresh process."""

import subprocess
import sys

from benchmarks.timing import medians, report


def main() -> None:
    """Print the cost of the import, beside the bare interpreter."""

    def run(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    seconds = medians(
        {
            "nothing": lambda: run(""),
            "numpy": lambda: run("import numpy"),
            "inosgm": lambda: run("import inosgm"),
            "importance_weights": lambda: run("from inosgm import importance_weights"),
        },
        rounds=11,
    )
    base = seconds["nothing"]
    report("import inosgm / import numpy", (seconds["inosgm"] - base) / (seconds["numpy"] - base), at_most=2)
    ratio = (seconds["importance_weights"] - base) / (seconds["numpy"] - base)
    report("from inosgm import importance_weights (numpy, scipy.special) / import numpy", ratio)
