"""Statistics for tests of tables of any size. As a script, a driver that is killed: TABLE STORE LEDGER WHEN"""

import os
import signal
import sys

import numpy as np

from inosgm import HardTail, Ledger, LinearTail, Owners, Plan
from inosgm.jobs import Store
from inosgm.statistics.durable import run_statistic
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.tables import Table

ROWS, KEY = 3000, 20261116
CLINICS = ("a", "b", "c")


def columns():
    rng = np.random.default_rng(5)
    return {"wage": rng.lognormal(size=ROWS), "clinic": rng.choice(CLINICS, size=ROWS, p=[0.2, 0.3, 0.5])}


def owners():
    return Owners(of_record=columns()["clinic"], epsilon={"a": 20.0, "b": 40.0, "c": 60.0}, delta=1e-5)


def plan(steps, rates=(0.6, 0.9, 1.0)):
    return Plan(
        sample_rates=rates,
        sensitivities=[1.0, 2.0, 0.5],
        sizes=owners().sizes,
        noise_scale=4.0,
        steps=steps,
        labels=CLINICS,
    )


class UpperTail(Statistic):
    """The sum of the larger values, in one round."""

    name = "upper-tail"

    def __init__(self, plan, owners=None, *, most, **options):
        self.most = most
        super().__init__(plan, owners, tail=HardTail(self.tail_length(plan, 0.6)), **options)

    def contributions(self, batch):
        return np.clip(batch / self.most, 0, 1)

    def scores(self, batch):
        return batch

    def check(self, batch):
        if (batch < 0).any():
            raise ValueError(f"values must be at least 0, got less at position {int(np.argmax(batch < 0))}")

    def estimate(self):
        (total,) = self.observed
        return self.estimated(float(total), self.noise, "the upper tail")


class Centre(Statistic):
    """A sum of values near a point that every round moves."""

    name = "centre"

    def __init__(self, plan, owners=None, *, rounds, start=1.0, **options):
        self.point = start
        super().__init__(plan, owners, tail=LinearTail(self.tail_length(plan, 0.3)), **options)

    @classmethod
    def rounds_of(cls, *, rounds, **parameters):
        return rounds

    def contributions(self, batch):
        return np.clip(np.stack([batch - self.point, np.ones_like(batch)], axis=1) / 2, -0.7, 0.7)

    def scores(self, batch):
        return -np.abs(batch - self.point)

    def learned(self, value):
        self.point += float(value[0]) / self.total

    def estimate(self):
        return self.estimated(np.array([self.point, *self.observed[-1]]), np.full(3, self.noise), "a centre")


QUESTIONS = {UpperTail: (1, {"most": 5.0}), Centre: (3, {"rounds": 3, "start": 0.5})}


class Killed(UpperTail):
    """A statistic whose worker dies once."""

    name = "killed"

    def __init__(self, plan, owners=None, *, flag, **options):
        self.flag = flag
        super().__init__(plan, owners, **options)

    def contributions(self, batch):
        if len(batch) and not os.path.exists(self.flag):
            open(self.flag, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().contributions(batch)


if __name__ == "__main__":
    from table_statistics import Centre  # as the test knows it

    place, uri, ledger, when = sys.argv[1:]
    claim = Store.claim

    def killing(store, name, values):
        """Die before, or after, the value of the second round is written down."""
        if name == "released-0-1.json" and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = claim(store, name, values)
        if name == "released-0-1.json":
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    Store.claim = killing
    run_statistic(
        Centre,
        Table.of(place, "wage", "clinic", megabytes=0.01),
        owners(),
        store=uri,
        plan=plan(3),
        ledger=Ledger(ledger),
        progress=False,
        rounds=3,
        start=0.5,
    )
