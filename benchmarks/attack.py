"""The attacks themselves: 512 shadow models, 60,000 records, every one the target in turn, ROC of two owners and all.

python -m benchmarks.attack            (each attack in a process of its own, so that peak memory is its own)
python -m benchmarks.attack online     (one of them, here)
"""

import os
import resource
import subprocess
import sys
import time

import numpy as np

SHADOWS, RECORDS = 512, 60_000
SECONDS, BYTES = 5, 1e9
"""What was asked: less than this. It is one thread, so its CPU time is what a machine with nothing else to do takes."""


def measure(name: str) -> None:
    """Attack made-up scores; print seconds and peak memory."""
    from inosgm.audit.attacks import ATTACKS
    from inosgm.audit.pool import Shadows
    from inosgm.audit.roc import successes

    generator = np.random.default_rng(0)
    members = generator.random((SHADOWS, RECORDS), dtype=np.float32) < 0.5
    scores = generator.standard_normal((SHADOWS, RECORDS), dtype=np.float32)
    scores += members
    owners = generator.integers(0, 2, RECORDS)
    shadows = Shadows(scores=scores, members=members, owners=owners, labels=("a", "b"), asked=SHADOWS)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    found = successes(shadows, ATTACKS[name])
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    met = cpu < SECONDS and peak < BYTES
    asked = f"asked: below {SECONDS} s of CPU and {BYTES / 1e9:g} GB{'' if met else '  NOT REACHED'}"
    auc = found[-1][1].auc
    print(f"{name:<16} {cpu:6.1f} s of CPU ({seconds:.1f} s), {peak / 1e9:.2f} GB, AUC {auc:.4f}  {asked}", flush=True)


def main() -> None:
    """Measure every attack, each in a new process with one thread."""
    from inosgm.audit.attacks import ATTACKS

    for name in ATTACKS:
        command = [sys.executable, "-m", "benchmarks.attack", name]
        subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) > 1 else main()
