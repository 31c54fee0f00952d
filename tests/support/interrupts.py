"""What tests of releases share: forks of a worker, Ctrl+C at any line of a release, and a cheap accountant."""

import json
import linecache
import subprocess
import sys
from pathlib import Path

import inosgm

WORKER = Path(__file__).parent / "once_worker.py"
WATCHED = tuple(
    Path(inosgm.__file__).parent / name
    for name in (
        "mechanism/mechanism.py",
        "mechanism/streaming.py",
        "mechanism/tail_buffer.py",
        "mechanism/fixed_point.py",
        "ledger/ledger.py",
        "ledger/accounts.py",
        "ledger/rules.py",
        "ledger/journal.py",
        "ledger/charges.py",
        "ledger/cost.py",
        "_internal/once.py",
    )
)
"""Where a release claims, charges, counts, sums and draws."""

PURE = tuple(
    Path(inosgm.__file__).parent / name
    for name in (
        "mechanism/clipping.py",
        "mechanism/contributions.py",
        "mechanism/discrete_gaussian.py",
        "mechanism/hashed_sampling.py",
        "mechanism/noise.py",
        "mechanism/orders.py",
        "mechanism/piecewise_cubic.py",
        "mechanism/record_filter.py",
        "mechanism/sampling.py",
        "mechanism/secure_generator.py",
        "mechanism/tails.py",
        "mechanism/weights.py",
        "mechanism/ziggurat.py",
        "planning/plan.py",
        "planning/variants.py",
        "accounting/segments.py",
        "accounting/units.py",
        "owners.py",
        "_internal/files.py",
        "_internal/keys.py",
        "_internal/records.py",
        "_internal/trees.py",
        "_internal/validate.py",
    )
)
"""Other files that a release goes through: they compute, and change no state (plans of these tests have no filter)."""


class Cheap:
    """An accountant whose epsilon is a sum: not private, but quick."""

    def epsilon_of(self, segments, delta):
        return sum(steps / multiplier for _, multiplier, steps in segments)


def forked(*arguments):
    """Return what the four workers and the parent came to, and how many steps were charged."""
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    return told["found"], told["steps"]


def values(found):
    return [one["value"] for one in found if "value" in one]


def interrupted(call, number):
    """Call a function with Ctrl-C at the so-many-th line of some modules; return its value, and whether it got there.

    The end of a `with` block and a `try` do not count as lines: Python does not look for signals there.
    """
    assert all(file.is_file() for file in WATCHED)
    count, last = 0, {}
    modules = {str(file) for file in WATCHED}

    def trace(frame, event, _):
        nonlocal count
        file, line = frame.f_code.co_filename, frame.f_lineno
        if file not in modules:
            return None
        if event == "line":
            code = linecache.getline(file, line).strip()
            count += not (code == "try:" or (code.startswith("with ") and last.get(frame, 0) > line))
            last[frame] = line
            if count == number:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        return call(), count >= number
    except KeyboardInterrupt:
        return None, True
    finally:
        sys.settrace(None)
        last.clear()


def files_of(call):
    """Call a function, and return the files of the package that it goes through."""
    files = set()

    def trace(frame, event, _):
        files.add(frame.f_code.co_filename)

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return {file for file in map(Path, files) if file.is_relative_to(Path(inosgm.__file__).parent)}
