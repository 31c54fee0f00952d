"""Every method: trains, keeps budgets by an independent accountant, goes on after a kill, withstands its attackers."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld, rdp
from typer.testing import CliRunner

from inosgm import Plan, certify
from inosgm import experiments as runs
from inosgm.audit import audit_mechanism
from inosgm.cli.program import app
from inosgm.experiments import METHODS, methods_of
from inosgm.experiments.building import build
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.plans import planned

CONFIG = TrainingConfig.from_dict(
    {
        "data": {"name": "digits", "subset": 600, "public": 5},
        "owners": {"fractions": [0.5, 0.3, 0.2], "epsilon": [2, 1, 4], "delta": 1e-5},
        "model": {"name": "logistic_regression"},
        "plan": {
            "method": "sample",
            "steps": 6,
            "expected_batch": 60,
            "clip_norm": 1.0,
            "accountant": "rdp",
            "teachers": {"count": 9, "queries": 5},
        },
        "tail": {"kind": "linear", "fraction": 0.5},
        "adjustment": {
            "after": 0.5,
            "class_shares": {0: [0.1] * 10, 1: [0.2] * 5 + [0.0] * 5, 2: [0.0] * 5 + [0.2] * 5},
        },
        "optimizer": {"name": "SGD", "lr": 1.0},
        "training": {"checkpoint_every": 2},
        "key": 3,
    }
)
CONFIGS = methods_of(CONFIG, list(METHODS))
TRAINED = [name for name in METHODS if not name.startswith("ipate")]
"""Methods of one training run. IPATE is many jobs, for whose votes, kills and resumption there is test_ipate.py."""

SLACK = 1.01
"""The other accountant rounds privacy losses up to a coarse grid, which is fast."""

BROKEN = {"azb-weak"}
"""Methods that say that they break budgets."""

KILLED = """
import os, sys
from training_worker import killed_at
from inosgm import experiments as runs
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.building import build
configs = [TrainingConfig.from_yaml(file) for file in sys.argv[1:]]
for place, config in enumerate(configs):
    build(config.changed({"run": None}))  # what it takes to plan is known afterwards
    child = os.fork()
    if not child:
        killed_at("inosgm.mechanism.mechanism:INOSGM.release", 4 + place)
        runs.train(config)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def epsilon_of(costs, label, delta, generator):
    """Return what costs come to for an owner by dp_accounting, with random choices from the menu of each step."""
    (unit,) = {cost.unit for cost in costs}
    if unit == "add/remove":
        accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    else:
        replaced = dp_accounting.NeighboringRelation.REPLACE_ONE
        accountant = rdp.RdpAccountant(range(2, 33), neighboring_relation=replaced)
    for cost in costs:
        if label not in cost.labels:
            continue  # takes no part
        place = cost.labels.index(label)
        rates, multipliers = (np.atleast_1d(values[place]) for values in (cost.sample_rates, cost.noise_multipliers))
        chosen = generator.integers(rates.size, size=cost.steps)
        for choice, times in zip(*np.unique(chosen, return_counts=True), strict=True):
            if rates[choice] > 0:
                accountant.compose(event_of(unit, float(rates[choice]), float(multipliers[choice])), int(times))
    return accountant.get_epsilon(delta)


def event_of(unit, rate, multiplier):
    if unit == "add/remove":
        return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    # of 10^6 records, a record replaced: the sensitivity is 2C
    drawn, whole = round(rate * 10**6), 10**6
    return dp_accounting.SampledWithoutReplacementDpEvent(whole, drawn, dp_accounting.GaussianDpEvent(multiplier / 2))


@cache
def trained(name):
    """Train with a method, in memory."""
    return runs.train(CONFIGS[name])


@pytest.mark.parametrize("name", METHODS)
def test_keeps_every_budget_by_another_accountant(name):
    accountant = "rdp" if name == "asc-published" else "pld"  # dp_accounting has no tighter one for that unit
    owners = trained("dp-sgd").training.owners
    course = planned(CONFIGS[name].changed({"plan.accountant": accountant}), owners, None)
    generator = np.random.default_rng(0)
    costs = course.costs(job="a job")
    spent = np.array([epsilon_of(costs, label, 1e-5, generator) for label in owners.labels])
    assert spent.max() > 0.5
    assert (spent > owners.epsilon * SLACK).any() == (name in BROKEN)
    assert (course.last.spent() * SLACK >= spent).all()


@pytest.mark.parametrize("name", TRAINED)
def test_goes_on_bit_for_bit(name, tmp_path):
    begun = CONFIGS[name].changed({"run": str(tmp_path)})
    if name in BROKEN:
        with pytest.raises(ValueError, match="training keeps what owners grant"):  # before anything is spent
            runs.train(begun)
        return
    runs.train(begun, steps=4)
    assert equal(runs.train(begun), trained(name))


def equal(one, other):
    """Say whether two runs have come to the same, bit for bit."""
    models = [run.training.trainer.model.state_dict() for run in (one, other)]
    same = all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    return same and one.curve.to_json() == other.curve.to_json()


@pytest.mark.long
def test_a_staged_and_a_steered_method_go_on_after_a_kill(tmp_path):
    names = ["one-after-another", "asc"]
    configs = [CONFIGS[name].changed({"run": str(tmp_path / name)}) for name in names]
    files = [tmp_path / f"{name}.yaml" for name in names]
    for config, file in zip(configs, files, strict=True):
        file.write_text(config.to_yaml(), encoding="utf-8")
    killed = subprocess.run([sys.executable, "-c", KILLED, *files], capture_output=True, text=True)
    assert killed.stdout.split() == ["-9", "-9"], killed.stderr
    for name, config in zip(names, configs, strict=True):
        assert equal(runs.train(config), trained(name))


@pytest.mark.parametrize("name", TRAINED)
def test_withstands_the_certifier_and_the_audit(name):
    trainer = build(CONFIGS[name]).trainer
    rates = trainer.plan.sample_rates
    assert certify(trainer, evaluations=60).holds()
    label = trainer.plan.labels[int(rates.argmax())]
    assert not audit_mechanism(trainer, label, runs=300, confidence=0.9999).contradicts  # 1e-4 false alarms
    for absent in np.flatnonzero(rates == 0):
        with pytest.raises(ValueError, match="owner must take part: the plan never draws records of"):
            audit_mechanism(trainer, trainer.plan.labels[absent], runs=300)


def test_the_guide_lists_exactly_the_registry():
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[?`([\w-]+)`[^|]* \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", guide, re.MULTILINE)
    listed = [
        (name, about, "broken" not in budgets, unit.strip("*"), form) for name, about, budgets, unit, form in rows
    ]
    assert listed == [
        (name, method.description, method.keeps_budgets, method.unit, method.published)
        for name, method in METHODS.items()
    ]


@pytest.mark.parametrize("name", METHODS)
def test_the_plan_command_knows_what_needs_only_owners_and_public_numbers(name, tmp_path):
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta,records\nclinic,2,1e-5,900\npatient,0.5,1e-5,100\n")
    words = ["--steps", "5", "--expected-batch", "50", "--accountant", "rdp", "--method", name, "--json"]
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "owners.csv"), *words])
    if METHODS[name].needs:
        assert "--method must be one of sample, scale, blend, uniform, dp-sgd" in str(result.exception)
        return
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    plans = [Plan.from_json(json.dumps(plan)) for plan in (made if isinstance(made, list) else [made])]
    assert sum(plan.steps for plan in plans) == 5
    assert (plans[-1].spent() <= [2, 0.5]).all() == METHODS[name].keeps_budgets
    assert {plan.unit for plan in plans} == {METHODS[name].unit}
    assert (METHODS[name].warning in result.stderr) or not METHODS[name].warning
