"""Processes for the tests of what may be released once: they fork, then all release. Run by path, with a command."""

import fcntl
import json
import multiprocessing
import os
import signal
import sys
import threading

import numpy as np

from inosgm.ledger.ledger import Ledger
from inosgm.mechanism.mechanism import INOSGM, Cost
from inosgm.mechanism.streaming import OrderedSum
from inosgm.owners import Owners
from inosgm.planning.planners import Plan

LABELS = ("a", "b")
OWNERS = Owners(of_record=["a"] * 50 + ["b"] * 50, epsilon=50.0, delta=1e-5)
DATA = np.linspace(0, 1, 100)[:, None]
FORK = multiprocessing.get_context("fork")


class Total(INOSGM):
    """The plainest mechanism."""

    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def plan_of(rate=1.0, steps=1):
    """Return a plan for the owners a and b."""
    rates, sizes = [rate, rate], [50, 50]
    return Plan(sample_rates=rates, sensitivities=[1, 1], sizes=sizes, noise_scale=5, steps=steps, labels=LABELS)


def ledger_at(place):
    """Return a ledger in a file or in memory, or none."""
    return {"none": lambda: None, "memory": lambda: Ledger(owners=OWNERS)}.get(
        place, lambda: Ledger(place, owners=OWNERS)
    )()


def everybody(function):
    """Call a function in four workers of a pool that forks, at once, and then here; return what each came to."""
    gate = FORK.Barrier(4)

    def called():
        try:
            return {"value": float(function())}
        except Exception as error:
            return {"error": type(error).__name__, "about": str(error)}

    global _task

    def _task():
        gate.wait()  # so that each worker gets one of the four calls
        return called()

    with FORK.Pool(4) as pool:
        found = pool.map(_call, range(4), chunksize=1)
    return [*found, called()]


def _call(_):
    return _task()


def told(found, ledger):
    """Print what everybody came to, and how many steps were charged."""
    steps = None if ledger is None else sum(charge.steps for charge in ledger.history())
    print(json.dumps({"found": found, "steps": steps}))


def pool(place, key=None):
    """Release the only step of a mechanism in four workers and in the parent."""
    ledger = ledger_at(place)
    mechanism = Total(plan_of(), OWNERS, ledger=ledger, key=key)
    told(everybody(lambda: mechanism.release(DATA).value[0]), ledger)


def in_advance(place):
    """Pay for two steps with the first, and fork before the second."""
    ledger = ledger_at(place)
    mechanism = Total(plan_of(steps=2), OWNERS, ledger=ledger, charge_steps=2)
    mechanism.release(DATA)
    told(everybody(lambda: mechanism.release(DATA).value[0]), ledger)


def inside(place):
    """Fork while a batch is summed, so that two processes come out of one release."""
    ledger, (reader, writer) = ledger_at(place), os.pipe()

    class Forking(Total):
        child = -1

        def contributions(self, batch):
            if len(batch):
                self.child = os.fork()
            return batch

    mechanism = Forking(plan_of(), OWNERS, ledger=ledger)
    try:
        found = {"value": float(mechanism.release(DATA).value[0])}
    except Exception as error:
        found = {"error": type(error).__name__, "about": str(error)}
    if not mechanism.child:
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(mechanism.child, 0)
    told([json.loads(os.read(reader, 1 << 16)), found], ledger)


def charges(place):
    """Charge one cost of a job without a key in four workers and in the parent; nothing is released."""
    ledger = ledger_at(place)
    cost = Cost(labels=LABELS, sample_rates=[1, 1], noise_multipliers=[5, 5])
    told(everybody(lambda: ledger.charge(cost) or 1), ledger)


class _Forks:
    """An accountant that forks while the ledger holds its lock."""

    def __init__(self):
        self.child = -1

    def epsilon_of(self, segments, delta):
        self.child = os.fork()
        return 0.1


def forked_books(place):
    """Fork while a charge is worked out: two processes hold one lock, and would write the same row."""
    (reader, writer), accountant = os.pipe(), _Forks()
    ledger = Ledger(place, owners=Owners(of_record=["a", "b"], epsilon=1.0, delta=1e-5), accountant=accountant)
    try:
        ledger.charge(Cost(labels=LABELS, sample_rates=[1, 1], noise_multipliers=[5, 5], job="j"))
        found = {"value": 1.0}
    except Exception as error:
        found = {"error": type(error).__name__, "about": str(error)}
    if not accountant.child:
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(accountant.child, 0)
    told([json.loads(os.read(reader, 1 << 16)), found], Ledger(place))


def lock_inherited(place):
    """Fork in one thread while another holds the lock of the ledger; the parent charges, then the child, both alive."""
    ready, go = threading.Event(), threading.Event()
    (told_parent, tell_parent), (told_child, tell_child) = os.pipe(), os.pipe()

    class Slow:
        def epsilon_of(self, segments, delta):
            ready.set()
            go.wait()
            return 0.1

    ledger = Ledger(place, owners=OWNERS, accountant=Slow())
    holder = threading.Thread(target=lambda: ledger.charge(_named("parent")))
    holder.start()
    ready.wait()
    child = os.fork()
    if not child:
        os.write(tell_parent, b".")
        os.read(told_child, 1)  # the parent has charged
        go.set()
        found = _free(place) and ledger._journal.turn.acquire(blocking=False)
        if found:
            ledger.charge(_named("child"))
        os.write(tell_parent, b"1" if found else b"0")
        signal.pause()  # and lives on, with whatever it has inherited
    os.read(told_parent, 1)  # the child has let go of the file: it does so first of all, but not at once
    go.set()
    holder.join()
    free = _free(place)
    os.write(tell_child, b"1")
    charged = os.read(told_parent, 1) == b"1"
    history = Ledger(place).history() if free and _free(place) else ()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(json.dumps({"found": [{"value": float(free)}, {"value": float(charged)}], "steps": len(history)}))


def _free(place):
    """Say whether nobody holds the lock of a ledger."""
    with open(place, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _named(job):
    return Cost(labels=LABELS, sample_rates=[1, 1], noise_multipliers=[5, 5], job=job)


def sums(place, secret=None, key=None):
    """Release one sum whose coins were tossed before the fork."""
    ledger = ledger_at(place)
    total = OrderedSum(plan_of(0.5), secret=None if secret is None else secret.encode())
    total.update(DATA[:, 0], DATA[:, 0], np.repeat([0, 1], 50), 0)
    told(everybody(lambda: total.release(ledger=ledger, key=key).value), ledger)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    globals()[command](*(int(value) if value.isdecimal() else value for value in arguments))
