"""Shadow models as jobs: functions of the audit's seed and their number, whoever trains them, and never stale."""

import itertools
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from seeds_worker import config
from torch import nn

from inosgm.audit import draws
from inosgm.audit.confidence import confidences, scores
from inosgm.audit.design import Design
from inosgm.audit.pool import Shadows
from inosgm.audit.shadow_study import ShadowStudy, stored
from inosgm.audit.shadows import ShadowTask
from inosgm.experiments.input_files import read
from inosgm.experiments.seeds import SeedStudy, train_seeds
from inosgm.jobs import ProcessExecutor, SerialExecutor, Stopped, Store
from inosgm.jobs.purpose import AUDIT, holds
from inosgm.mechanism.inspection import Inspection
from inosgm.training.trainer import Trainer


class MemoryAttempt:
    """Attempts at a job whose checkpoints are kept in memory, asked to stop after every so many steps."""

    def __init__(self, every=10**6):
        self.number, self.key, self.ledger = 1, 5, None
        self.saved, asked = {}, itertools.count(1)
        self.stopping = lambda: next(asked) % every == 0

    def latest(self):
        return self.saved[max(self.saved)] if self.saved else None

    def save(self, step, content):
        self.saved[step] = content


def one_by_one(**changes):
    """Return a configuration whose models are trained one by one: this optimizer is not known to be elementwise."""
    return config(optimizer={"name": "ASGD", "lr": 1.0, "options": {}}, **changes)


def trained(store, shadows=40, executor=None, made=None, **options):
    study = ShadowStudy(config() if made is None else made, shadows, store=store, **options)
    outcome = study.run(executor, progress=False)
    assert (outcome.failed, outcome.left) == ({}, ())
    return stored(study.store, shadows)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A store with two blocks of shadow models that nobody disturbed."""
    store = tmp_path_factory.mktemp("audited")
    trained(store)
    return store


def test_members_are_fair_coins_of_their_own():
    """A correct draw fails with probability below 1e-6: three normal statistics beyond 5.2."""
    drawn = np.array([draws.members(7, shadow, 500) for shadow in range(400)])
    signs = 2.0 * drawn - 1
    assert abs(signs.sum()) < 5.2 * np.sqrt(signs.size)
    for table in (signs, signs.T):  # over records, over shadow models
        pairs = (table @ table.T)[np.triu_indices(len(table), 1)]
        expected = len(pairs)
        assert abs((pairs**2 / table.shape[1]).sum() - expected) < 5.2 * np.sqrt(2 * expected)
    np.testing.assert_array_equal(drawn[3], draws.members(7, 3, 500))
    assert (drawn[3] != draws.members(8, 3, 500)).any()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 12), st.integers(0, 5))
def test_every_owner_has_its_canaries(owners, count, seed):
    owners = np.array(owners)
    positions = draws.canaries(seed, owners, count)
    assert (np.diff(positions) > 0).all()
    sizes = np.bincount(owners, minlength=5)
    np.testing.assert_array_equal(np.bincount(owners[positions], minlength=5), np.minimum(sizes, count))
    classes = owners % 3
    changed = draws.mislabelled(seed, classes, 3, positions)
    assert (changed[positions] != classes[positions]).all()
    np.testing.assert_array_equal(np.delete(changed, positions), np.delete(classes, positions))


def test_log_odds_are_exact_where_probabilities_are_one():
    outputs = torch.tensor([[2.0, -1.0, 0.5], [800.0, 0.0, 0.0], [-800.0, 0.0, 0.0]], dtype=torch.float64)
    targets = torch.tensor([0, 0, 0])
    found = scores(outputs, targets, nn.CrossEntropyLoss())
    assert found[0].item() == pytest.approx(special.logit(special.softmax(outputs[0].numpy())[0]))
    assert found[1:].tolist() == pytest.approx([800 - np.log(2), -800 - np.log(2)])
    two = torch.tensor([[3.0], [-2.0]])
    binary = scores(two, torch.tensor([[1.0], [1.0]]), nn.BCEWithLogitsLoss())
    assert binary.tolist() == [3.0, -2.0]
    assert scores(two, torch.zeros(2, 1), nn.MSELoss()).tolist() == [-9.0, -4.0]


def test_a_pool_is_scored_in_parts_as_in_one(monkeypatch):
    model, x, y = nn.Linear(3, 2), torch.randn(10, 3), torch.arange(10) % 2
    whole = confidences(model, nn.CrossEntropyLoss(), (x, y), model.weight)
    monkeypatch.setattr("inosgm.audit.confidence.AT_ONCE", 3)
    np.testing.assert_allclose(confidences(model, nn.CrossEntropyLoss(), (x, y), model.weight), whole, rtol=1e-6)
    assert whole.dtype == np.float32


def test_executors_do_not_matter(audited, tmp_path):
    one, other = stored(Store(audited), 40), trained(tmp_path / "store", executor=ProcessExecutor(1))
    np.testing.assert_array_equal(one.shadows.scores, other.shadows.scores)
    np.testing.assert_array_equal(one.shadows.members, other.shadows.members)
    assert one.shadows.scores.dtype == np.float32
    assert one.plan == other.plan


def test_the_plan_is_for_half_of_every_owner_whoever_is_in(audited):
    found = stored(Store(audited))
    sizes = np.bincount(found.shadows.owners)
    np.testing.assert_array_equal(found.plan.sizes, -(-sizes // 2))
    there = np.array([np.bincount(found.shadows.owners[row]) for row in found.shadows.members])
    assert (there != found.plan.sizes).any()
    assert found.shadows.labels == found.plan.labels == ("benign", "malignant")


def test_a_shadow_model_knows_its_members_only():
    made = config(seed=0)
    design = Design.of(made, read(made))
    x, _ = design.records(0)
    np.testing.assert_array_equal(x, design.pool.dataset.x[design.members(0)])
    trainer = design.trainer(0, design.learner(0))
    assert Inspection(trainer).owners.size == len(x) != design.plan.sizes.sum()
    assert design.key(0) != design.key(1)
    assert design.trainer(1, design.learner(1)).mechanism.job != trainer.mechanism.job


def test_without_privacy_a_step_is_one_of_plain_descent():
    made = config(
        plan={"method": "sample", "steps": 8, "expected_batch": 1000.0, "clip_norm": 1e-3, "accountant": "rdp"}
    )
    design = Design.of(made, read(made), private=False)
    learner = design.learner(0)
    plain = design.learner(0)
    trainer = design.trainer(0, learner)
    x, y = design.records(0)
    trainer.step(x, y)
    losses = plain.loss(plain.model(torch.as_tensor(x, dtype=torch.float32)), torch.as_tensor(y))
    (losses * len(y) / design.plan.expected_batch).backward()
    plain.optimizer.step()
    for one, other in zip(learner.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("block", [1, 5])
def test_shadow_models_that_were_stopped_go_on_bit_for_bit(block):
    made = one_by_one() if block == 1 else config()
    design = Design.of(made, read(made))
    task = pickle.loads(pickle.dumps(ShadowTask(design, block)))
    spec = task.spec(0, data_fingerprint="")
    undisturbed = task.run(spec, MemoryAttempt())
    attempt = MemoryAttempt(every=3)
    for _ in range(2):
        with pytest.raises(Stopped):
            task.run(spec, attempt)
    np.testing.assert_array_equal(task.run(spec, attempt).arrays["scores"], undisturbed.arrays["scores"])


def test_together_or_alone_makes_no_difference_but_for_roundings():
    made = config()
    design = Design.of(made, read(made))
    tasks = [ShadowTask(design, block) for block in (1, 4)]
    alone = [tasks[0].run(tasks[0].spec(index, data_fingerprint=""), MemoryAttempt()) for index in range(4, 8)]
    together = tasks[1].run(tasks[1].spec(1, data_fingerprint=""), MemoryAttempt())
    one_by_one = np.concatenate([result.arrays["scores"] for result in alone])
    np.testing.assert_allclose(together.arrays["scores"], one_by_one, rtol=1e-4, atol=1e-4)


def test_more_shadow_models_later_are_only_those_that_are_missing(tmp_path, monkeypatch):
    made = one_by_one()
    first = trained(tmp_path / "store", 2, made=made)
    begun = []
    original = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, *data: (begun.append(self), original(self, *data))[1])
    more = trained(tmp_path / "store", 3, made=made)
    assert len(set(map(id, begun))) == 1
    np.testing.assert_array_equal(more.shadows.scores[:2], first.shadows.scores)
    assert (first.shadows.asked, more.shadows.asked, stored(Store(tmp_path / "store"), 2).shadows.count) == (2, 3, 2)


def test_any_subset_of_finished_shadow_models_is_read(tmp_path):
    study = ShadowStudy(one_by_one(), 4, store=tmp_path / "store")
    some = study.specs[1::2]
    study.run(Some(some), progress=False)
    found = stored(study.store, 4).shadows
    assert (found.count, found.asked, study.left()) == (2, 4, 2)
    np.testing.assert_array_equal(found.members[1], draws.members(0, 3, found.records))
    np.testing.assert_array_equal(found.rows_of([3, 1]), [1, 0])
    with pytest.raises(ValueError, match="2 shadow models are there, and 2 is not one of them"):
        found.rows_of([3, 2])


class Some(SerialExecutor):
    """Does some of the jobs that it is given."""

    def __init__(self, chosen):
        super().__init__()
        self._chosen = chosen

    def run(self, task, specs, store, **options):
        for spec in specs:
            store.add(spec)
        return super().run(task, self._chosen, store, **options)


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        ({"optimizer": {"name": "SGD", "lr": 0.25}}, {}, "another configuration, which differs in optimizer.lr"),
        ({}, {"seed": 1}, "another audit, which differs in"),
        ({}, {"private": False}, "another"),
        ({}, {"canaries": 5}, "another audit, which differs in"),
    ],
)
def test_stale_shadow_models_are_refused(audited, changes, options, why):
    with pytest.raises(ValueError, match=why):
        ShadowStudy(config(**changes), 40, store=audited, **options)


def test_shadow_models_of_other_code_are_refused_and_still_read(audited, monkeypatch):
    monkeypatch.setattr("inosgm.audit.shadows.code_version", lambda config: "0.0.0+other")
    with pytest.raises(ValueError, match="was made by other code"):
        ShadowStudy(config(), 40, store=audited)
    assert stored(Store(audited)).shadows.count == 64


def test_a_job_of_another_audit_is_refused():
    made = one_by_one()
    source = read(made)
    spec = ShadowTask(Design.of(made, source, seed=1), 1).spec(0, data_fingerprint="")
    task = ShadowTask(Design.of(made, source), 1)
    with pytest.raises(RuntimeError, match="another audit"):
        task.run(spec, MemoryAttempt())


def test_canaries_stand_out_and_only_they_are_looked_at(tmp_path):
    found = trained(tmp_path / "store", 2, canaries=9)
    assert found.shadows.records == 18
    np.testing.assert_array_equal(np.bincount(found.shadows.owners), [9, 9])
    made = config()
    design = Design.of(made, read(made), canaries=9)
    changed = np.flatnonzero(design.pool.dataset.y != Design.of(made, read(made)).pool.dataset.y)
    np.testing.assert_array_equal(changed, draws.canaries(0, design.owners, 9))


def test_what_cannot_be_audited_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="shadows must be"):
        ShadowStudy(config(), 0, store=tmp_path / "store")
    with pytest.raises(ValueError, match="model"):
        ShadowStudy(config(model={"name": "mnist_cnn", "options": {}}), 2, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_scores_that_do_not_fit_are_refused():
    whole = {
        "scores": np.zeros((2, 3)),
        "members": np.zeros((2, 3), bool),
        "owners": np.zeros(3, int),
        "labels": ("a",),
    }
    Shadows(**whole, asked=2)
    for name, wrong in (("members", np.zeros((3, 2), bool)), ("owners", np.zeros(2, int)), ("owners", np.ones(3, int))):
        with pytest.raises(ValueError, match=name):
            Shadows(**{**whole, name: wrong}, asked=2)


def test_budgets_of_shadow_models_are_those_of_the_configuration(audited):
    found = stored(Store(audited))
    assert json.loads(found.plan.to_json())["epsilon"] == found.plan.epsilon.tolist()
    assert (found.plan.spent(found.plan.steps) <= found.plan.epsilon).all()
    assert stats.binom(found.shadows.records, 0.5).sf(found.shadows.members.sum(1).min()) < 1


def test_a_store_holds_training_runs_or_an_audit_and_never_both(audited, tmp_path):
    with pytest.raises(ValueError, match="holds shadow models of an audit: take another store"):
        train_seeds(config(), 2, store=audited, progress=False)
    train_seeds(config(), 1, store=tmp_path / "runs", progress=False)
    with pytest.raises(ValueError, match="holds training runs: take another store"):
        ShadowStudy(config(), 4, store=tmp_path / "runs")
    assert not holds(Store(tmp_path / "runs"), AUDIT)
    both = SeedStudy(config(), 1, store=tmp_path / "both"), ShadowStudy(config(), 1, store=tmp_path / "both")
    both[0].begin()
    with pytest.raises(ValueError, match="holds training runs: take another store"):
        both[1].run(progress=False)


def test_audits_that_differ_have_other_noise():
    made = config().changed({"tail": {"kind": "none"}})
    source = read(made)
    designs = [Design.of(made, source, **options) for options in ({}, {"canaries": 3}, {"private": False}, {"seed": 1})]
    assert len({design.key(shadow) for design in designs for shadow in range(3)}) == 12


def test_the_mechanism_of_an_audit_has_coins_of_every_owner():
    made = config()
    design = Design.of(made, read(made))
    np.testing.assert_array_equal(Inspection(design.mechanism()).owners, design.owners)
