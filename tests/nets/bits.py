"""Print what stands for every bit of the results of `workloads.py`, to compare two revisions on one machine.

    export OMP_NUM_THREADS=1
    cd REVISION && PYTHONPATH=$PWD python /path/to/tests/nets/bits.py > bits_there.json
    cd HERE && PYTHONPATH=$PWD python tests/nets/bits.py > bits_here.json
    python tests/nets/bits.py --compare bits_there.json bits_here.json

`--golden` prints what `golden.json` holds, with whole arrays where torch has computed them, and `--only NAME` some of
the entries. Unlike the test, which runs wherever the suite does, this compares torch's results exactly: two processors
differ in the last bits, one does not.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as in the tests: `nets` is found there

WHOLE = 1 << 20


def made(name, *, whole=False):
    """Return the results of an entry, as JSON has them."""
    from nets import workloads

    if name in workloads.EXACT:
        return workloads.spelled(workloads.EXACT[name]())
    results = {**workloads.CLOSE, **workloads.SLOW}[name]()
    return workloads.spelled(results, *([WHOLE] if whole else []))


def differences(one, other, path=()):
    """Yield the path and both values wherever two results differ in a bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {**one, **other}:
            yield from differences(one.get(name, "nothing"), other.get(name, "nothing"), (*path, name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, (*path, place))
    elif repr(one) != repr(other):  # 0.0 and -0.0 differ, a NaN does not differ from itself
        yield path, one, other


def text_of(results):
    """Return JSON with a line for each part of a result: small enough to look at, and to compare by line."""
    found = []
    for name, parts in results.items():
        content = json.dumps(parts)
        if isinstance(parts, dict):
            lines = ",\n".join(f" {json.dumps(part)}: {json.dumps(value)}" for part, value in parts.items())
            content = f"{{\n{lines}\n}}"
        found.append(f"{json.dumps(name)}: {content}")
    return "\n".join(["{", ",\n".join(found), "}"])


def compare(here, there):
    """Print where two files differ, and return how often."""
    found = list(differences(*(json.loads(Path(file).read_bytes()) for file in (here, there))))
    for path, one, other in found:
        print(f"{' / '.join(map(str, path))}: {str(one)[:120]} -> {str(other)[:120]}")
    print(f"{len(found)} differences")
    return len(found)


def main():
    """Print results, or compare two files of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs=2, metavar="FILE", help="Compare two files that this has printed.")
    parser.add_argument("--golden", action="store_true", help="Print what golden.json holds.")
    parser.add_argument("--only", action="append", metavar="NAME", help="Print this entry; may be repeated.")
    wish = parser.parse_args()
    if wish.compare:
        sys.exit(bool(compare(*wish.compare)))
    from nets import workloads

    names = wish.only or [*workloads.EXACT, *workloads.CLOSE, *([] if wish.golden else workloads.SLOW)]
    results = {"arithmetic": workloads.arithmetic(), **{name: made(name, whole=wish.golden) for name in names}}
    print(text_of(results) if wish.golden else json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
