"""The one hook of a mechanism, and the read-only view that audits have of it."""

import ast
from pathlib import Path

import numpy as np
import pytest

import inosgm
from inosgm import INOSGM, LinearTail, Owners, Plan, RandomOrder, Streaming, audit_mechanism, certify, plan_individual
from inosgm.mechanism.contributions import Dense
from inosgm.mechanism.inspection import Inspection
from inosgm.training.gradient_mechanism import GradientMechanism

OWNERS = [0] * 10 + [1] * 10
DATA = np.random.default_rng(0).normal(size=(20, 2))


class Rows(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


class Measured(INOSGM):
    """Gives the same by the hook alone, and notes what the hook is told."""

    def measure(self, data, positions, owners, step):
        self.told = positions, owners, step
        return Dense(data[positions]), data[positions, 0]


class Book:
    def __init__(self):
        self.costs = []

    def charge(self, cost, /):
        self.costs.append(cost)


def plan():
    return Plan(sample_rates=[0.5, 1.0], sensitivities=[1.0, 3.0], sizes=[10, 10], noise_scale=0.5, steps=5)


def test_a_mechanism_that_overrides_the_hook_releases_the_same_as_one_with_two_methods():
    by_methods, by_hook = (kind(plan(), OWNERS, tail=LinearTail(4.0), key=3) for kind in (Rows, Measured))
    for step in range(3):
        assert np.array_equal(by_methods.release(DATA).value, by_hook.release(DATA).value)
        positions, owners, told = by_hook.told
        assert told == step
        assert np.array_equal(owners, np.array(OWNERS)[positions])


def test_a_mechanism_without_hook_and_methods_is_refused():
    half = type("Half", (INOSGM,), {"contributions": Rows.contributions})
    for kind in (INOSGM, half, type("Streamed", (Streaming,), {"scores": Rows.scores})):
        with pytest.raises(TypeError, match="is abstract: define `contributions` and `scores`, or `measure`"):
            kind(plan(), OWNERS)


def look(mechanism):
    """Use everything that an inspection offers, and the audits that are built on it."""
    seen, generator = Inspection(mechanism), np.random.default_rng(1)
    batches = [np.arange(20), np.delete(np.arange(20), 3)]
    for _ in range(2):
        seen.sums(DATA, batches, step=1)
        seen.synthetic_sum(DATA, DATA[:, 0], seen.owners, batches[1], records=seen.filter())
        seen.add_noise(np.zeros(4), generator)
        seen.draw(generator)
    if (records := seen.filter()) is not None:
        seen.sums(DATA, batches, filters=[records, records])
        records.settle()
    certify(mechanism, DATA, evaluations=30)
    audit_mechanism(mechanism, mechanism.plan.labels[0], runs=100)


@pytest.mark.parametrize("individual", [False, True])
@pytest.mark.parametrize("key", [7, None])
def test_who_looks_at_a_mechanism_changes_and_spends_nothing(individual, key):
    """Also between releases: a mechanism that was looked at goes on as one that was not."""
    owners = Owners(of_record=OWNERS, epsilon={0: 1.0, 1: 3.0}, delta=1e-5)
    followed = plan_individual(owners, steps=5, clip_norm=1.0) if individual else plan()
    books = Book(), Book()
    watched, alone = (
        Rows(followed, owners, tail=LinearTail(3.0), order=RandomOrder(1), key=key, ledger=book) for book in books
    )
    for _ in range(3):
        look(watched)
        values = [mechanism.release(DATA).value for mechanism in (watched, alone)]
        if key is not None:
            assert np.array_equal(*values)
    look(watched)
    assert watched.released == alone.released == 3
    assert len(books[0].costs) == len(books[1].costs)
    if individual and key is not None:
        assert np.array_equal(Inspection(watched).filter().spent, Inspection(alone).filter().spent)


def test_what_is_seen_cannot_be_written_to():
    mechanism = Rows(plan(), OWNERS)
    seen = Inspection(mechanism)
    with pytest.raises(ValueError, match="read-only"):
        seen.owners[0] = 1
    for name in ("plan", "owners", "tail", "order", "clipping", "promise"):
        with pytest.raises(AttributeError):
            setattr(seen, name, None)
    for wrong in (None, np.sum, plan()):
        with pytest.raises(TypeError, match="mechanism must be an INOSGM or a Trainer"):
            Inspection(wrong)


def test_nothing_outside_of_the_room_reaches_into_a_mechanism():
    """No `mechanism._tail` in audits, trainers or reports: a subclass may use what it inherits, on `self` alone."""
    private = {name for name in dir(Rows(plan(), OWNERS)) if name.startswith("_") and not name.startswith("__")}
    private |= {name for name in dir(GradientMechanism) if name.startswith("_") and not name.startswith("__")}
    root, found = Path(inosgm.__file__).parent, []
    for path in [*root.rglob("*.py"), *(root.parent / "ray_jobs").rglob("*.py")]:
        if "mechanism" in path.relative_to(root.parent).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in private and "mechanism" in ast.unparse(node.value):
                found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not found
