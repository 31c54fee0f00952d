"""Processes for the tests of the ledger: they race, die and run out of disk. Run by path, with a command."""

import json
import math
import os
import resource
import signal
import sys
import time

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from inosgm.ledger.journal import FileJournal
from inosgm.ledger.ledger import BudgetExceeded, Ledger
from inosgm.mechanism.mechanism import INOSGM, Cost
from inosgm.owners import Owners
from inosgm.planning.planners import Plan


class Unsampled:
    """Exact accounting of Gaussians (Balle and Wang, 2018, Thm 8), blind to sampling: valid, and fast."""

    def __init__(self):
        self.calls = []

    def epsilon_of(self, segments, delta):
        self.calls.append((segments, delta))
        mu = math.sqrt(sum(steps / multiplier**2 for _, multiplier, steps in segments))

        def excess(epsilon):
            upper = ndtr(mu / 2 - epsilon / mu)
            return upper - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)) - delta

        return 0.0 if excess(0.0) <= 0 else brentq(excess, 0.0, mu * mu + 20 * mu + 10, xtol=1e-12)


def cost(labels=("a", "b"), multiplier=10.0, rate=1.0, **more):
    n = len(labels)
    return Cost(labels=labels, sample_rates=np.full(n, rate), noise_multipliers=np.full(n, multiplier), **more)


class Total(INOSGM):
    """The plainest mechanism."""

    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def race():
    """For every path on standard input, wait for the given moment, then charge it once."""
    for line in sys.stdin:
        path, start, multiplier = json.loads(line)
        ledger = Ledger(path, accountant=Unsampled())
        while time.time() < start:
            pass
        try:
            ledger.charge(cost(multiplier=multiplier))
            print("paid", flush=True)
        except BudgetExceeded as refusal:
            print(f"refused {refusal.owner}", flush=True)


def die_before_release(path):
    """Charge, and be killed before the value exists; if it ever were released, say so."""
    ledger = Ledger(path, accountant=Unsampled())
    plan = Plan(sample_rates=[1, 1], sensitivities=[1, 1], sizes=[1, 1], noise_scale=10, steps=1, labels=("a", "b"))

    class Deadly(Total):
        def contributions(self, batch):
            if len(batch):
                os.kill(os.getpid(), signal.SIGKILL)
            return batch

    print(Deadly(plan, ["a", "b"], ledger=ledger).release(np.ones((2, 1))).value, flush=True)


def stages():
    """Three costs of one job: six steps in all."""
    return [cost(steps=1, job="noise"), cost(steps=2, job="noise/1"), cost(steps=3, job="noise/2")]


def die_between_rows(path):
    """Charge several costs at once, and be killed between two rows."""
    ledger, append, rows = Ledger(path, accountant=Unsampled()), FileJournal.append, []

    def deadly(journal, row):
        if rows:
            os.kill(os.getpid(), signal.SIGKILL)
        rows.append(row)
        return append(journal, row)

    FileJournal.append = deadly
    ledger.charge(*stages())
    print("paid", flush=True)


def write_until_killed(path, rounds):
    """Let children die while they write, one after another; print what each was told and what the file says."""
    n, results, pwrite = 1000, [], os.pwrite
    owners = Owners(of_record=np.arange(n), epsilon=1e6, delta=1e-5)
    random = np.random.default_rng(0)
    accountant = Unsampled()

    def short(file, data, at):  # writes may be short; here they give hundreds of places to die in
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return pwrite(file, data[:100], at)

    for _ in range(rounds):
        left = random.integers(1000)
        Ledger(path, owners=owners, accountant=accountant)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.pwrite = short
            ledger = Ledger(path, accountant=accountant)
            ledger._afford = lambda *_: None  # the arithmetic is not what is tested here
            multipliers = np.random.default_rng(left)
            while True:
                paid = Cost(
                    labels=owners.labels,
                    sample_rates=np.ones(n),
                    noise_multipliers=multipliers.uniform(1, 2, n),
                )
                ledger.charge(paid)
                os.write(writer, f"{paid.job}\n".encode())
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as told:
            acknowledged = told.read().split()
        with open(path, "rb") as file:
            torn = not file.read().endswith(b"\n")
        charged = [charge.job for charge in Ledger(path, accountant=accountant).history()]
        results.append({"acknowledged": acknowledged, "charged": charged, "torn": torn})
    print(json.dumps(results))


def fill_the_disk(path):
    """Charge with room for fewer and fewer bytes of the row; print what happened at each."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = Ledger(path, accountant=Unsampled())
    plan = Plan(sample_rates=[1, 1], sensitivities=[1, 1], sizes=[1, 1], noise_scale=1e3, steps=1, labels=("a", "b"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    results = []
    for room in range(0, 1500, 7):
        before = os.path.getsize(path)
        mechanism, value, error = Total(plan, ["a", "b"], ledger=ledger), None, ""
        resource.setrlimit(resource.RLIMIT_FSIZE, (before + room, hard))
        try:
            value = mechanism.release(np.ones((2, 1))).value.tolist()
        except OSError as problem:
            error = str(problem)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        whole = len(Ledger(path, accountant=Unsampled()).history())
        results.append({"value": value, "error": error, "released": mechanism.released, "charges": whole})
    print(json.dumps(results))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    globals()[command](*(int(value) if value.isdecimal() else value for value in arguments))
