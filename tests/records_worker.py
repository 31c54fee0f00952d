"""Processes for the tests of records: they race and die. Run by path, with a command and the place of the records."""

import json
import os
import signal
import sys
import time

from inosgm.jobs._records import records_at

SIZE = 20_000


def whole(content):
    return len(content) == SIZE and len(set(content)) == 1


def wait_for(records, name):
    while name not in records.names():
        time.sleep(0.001)


def race(records, letter, rounds):
    """Create the same records as others do; say which were won, and how many were seen in part."""
    mine, content, halves = [], letter.encode() * SIZE, 0
    records.create(f"ready/{letter}", b"")
    wait_for(records, "start")
    for number in range(int(rounds)):
        try:
            records.create(f"race/{number}", content)
            mine.append(number)
        except FileExistsError:
            halves += not whole(records.read(f"race/{number}"))
        records.replace("beat", content)
        halves += not whole(records.read("beat"))
        halves += sum(not whole(records.read(name)) for name in records.names("race"))
    print(json.dumps([mine, halves]))


def die(records, function):
    """Be killed where a function of the os would have been called."""
    setattr(os, function, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    if function == "replace":
        records.replace("beat", b"new")
    else:
        records.create("result.json", b"done")


def create_forever(records):
    """Create records until killed."""
    for number in range(1_000_000):
        records.create(f"jobs/{os.getpid()}-{number}/record", b"x" * SIZE)


if __name__ == "__main__":
    command, place, *arguments = sys.argv[1:]
    globals()[command](records_at(place), *arguments)
