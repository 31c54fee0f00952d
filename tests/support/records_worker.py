"""Processes for the tests of records: they race and die. Run by path, with a command and the place of the records."""

import json
import os
import signal
import sys
import time
from itertools import count

from inosgm.jobs._records import records_at

SIZE = 20_000


def whole(content):
    return len(content) == SIZE and len(set(content)) == 1


def child(function, *arguments):
    """Run a function in a new process and return its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        function(*arguments)
        os._exit(0)
    finally:
        os._exit(1)


def race(place, letters, rounds):
    """Let a process per letter create the same records."""
    reading, writing = os.pipe()
    pids = [child(create_all, place, letter, int(rounds), reading, writing) for letter in letters]
    os.close(writing)  # they start when nobody can write any more
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


def create_all(place, letter, rounds, reading, writing):
    """Create records; say which were new, and how many were seen in part."""
    records, mine, content, halves = records_at(place), [], letter.encode() * SIZE, 0
    os.close(writing)
    os.read(reading, 1)
    for number in range(rounds):
        try:
            records.create(f"race/{number}", content)
            mine.append(number)
        except FileExistsError:
            halves += not whole(records.read(f"race/{number}"))
        records.replace("beat", content)
        halves += not whole(records.read("beat"))
        halves += sum(not whole(records.read(name)) for name in records.names("race"))
    os.write(1, f"{json.dumps([letter, mine, halves])}\n".encode())


def die(place, *functions):
    """Be killed where a function of the os would have been called, each in a store of its own."""
    for function in functions:
        pid = child(die_at, f"{place}/{function}", function)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def die_at(place, function):
    setattr(os, function, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    if function == "replace":
        records_at(place).replace("beat", b"new")
    else:
        records_at(place).create("result.json", b"done")


def die_anywhere(place, times):
    """Create records, and be killed after a few, again and again."""
    records = records_at(place)
    for kill in range(int(times)):
        enough = len(records.names()) + 3 + kill
        pid = child(create_forever, place)
        while len(records.names()) < enough:
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def create_forever(place):
    for number in count():
        records_at(place).create(f"jobs/{os.getpid()}-{number}/record", b"x" * SIZE)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    globals()[command](*arguments)
