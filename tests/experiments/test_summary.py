"""What runs that differ in their seed came to, against scipy and by hand."""

import io
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from inosgm import Cost, Ledger, Owners
from inosgm.accounting import ACCOUNTANTS
from inosgm.experiments import Summary, expenses
from inosgm.experiments.summary import METRICS
from inosgm.jobs import JobSpec, Result, Store
from inosgm.ledger.affordable import require_affordable
from inosgm.ledger.refusals import BudgetExceeded
from inosgm.planning.plan import Plan
from inosgm.training.curve import LearningCurve
from inosgm.training.metrics import evaluation

RECORDS = 40
TARGETS = np.arange(RECORDS) % 2
OWNERS = np.where(np.arange(RECORDS) < 12, "few", "many")
STEPS = (0, 5, 10)


def curve(seed, steps=STEPS, owners=OWNERS, predicted=True):
    draw, made = np.random.default_rng(seed), LearningCurve()
    for step in steps:
        answers = draw.integers(0, 2, RECORDS) if predicted else None
        made.append(step, evaluation(draw.exponential(size=RECORDS), answers, TARGETS, owners=owners))
    return made


def test_mean_deviation_and_band_are_those_of_scipy():
    curves = [curve(seed) for seed in range(7)]
    found = Summary.of_curves(curves, jobs=16)
    assert (found.owners, found.steps, found.seeds, found.jobs) == (("few", "many"), STEPS, 7, 16)
    for place, metric in enumerate(METRICS):
        for step in range(len(STEPS)):
            evaluations = [made.evaluations[step] for made in curves]
            everyone = [getattr(one, "balanced_accuracy" if metric == "recall" else metric) for one in evaluations]
            rows = [[getattr(one.by_owner[owner], metric) for one in evaluations] for owner in found.owners]
            for owner, values in enumerate([*rows, everyone]):
                at = place, step, owner
                assert found.mean[at] == pytest.approx(np.mean(values))
                assert found.deviation[at] == pytest.approx(np.std(values, ddof=1))
                band = stats.t.interval(0.95, 6, np.mean(values), stats.sem(values))
                assert (found.low[at], found.high[at]) == pytest.approx(band)
                assert found.counts[at] == 7


def test_one_run_has_no_spread_and_runs_without_numbers_are_counted():
    alone = Summary.of_curves([curve(0)], jobs=2)
    assert np.isnan(alone.deviation).all()
    assert np.isnan(alone.low).all()
    assert alone.table().splitlines()[0] == "after 10 steps, 1 of 2 seeds: mean ± standard deviation"
    assert "nan" not in alone.table()
    broken = LearningCurve()
    for step in STEPS:
        broken.append(step, evaluation(np.full(RECORDS, np.inf), TARGETS, TARGETS, owners=OWNERS))
    found = Summary.of_curves([curve(0), curve(1), broken])
    loss = METRICS.index("loss")
    assert (found.counts[loss] == 2).all()
    np.testing.assert_allclose(found.mean[loss], Summary.of_curves([curve(0), curve(1)]).mean[loss])
    assert (found.counts[0] == 3).all()
    assert "(not all seeds have a finite loss for every owner)" in found.table()


def test_runs_that_were_looked_at_after_other_steps_are_refused():
    with pytest.raises(ValueError, match="after the same steps, got 3 steps up to 10 and 2 steps up to 9"):
        Summary.of_curves([curve(0), curve(1, steps=(0, 9))])
    with pytest.raises(ValueError, match="no run is done yet"):
        Summary.of_curves([])


def test_parquet_holds_every_number_and_says_how_many_seeds_it_had(tmp_path):
    found = Summary.of_curves([curve(seed) for seed in range(3)], jobs=5)
    found.to_parquet(tmp_path / "summary.parquet")
    stream = io.BytesIO()
    found.to_parquet(stream)
    assert stream.getvalue() == (tmp_path / "summary.parquet").read_bytes()
    table = pq.read_table(tmp_path / "summary.parquet")
    assert table.schema.metadata == {b"inosgm.seeds": b"3", b"inosgm.jobs": b"5"}
    columns = ["owner", "step", "metric", "mean", "standard_deviation", "low", "high", "seeds", "jobs"]
    assert table.column_names == columns
    rows = table.to_pylist()
    assert len(rows) == found.mean.size
    who = [*found.owners, None]
    for row in rows:
        at = METRICS.index(row["metric"]), STEPS.index(row["step"]), who.index(row["owner"])
        assert (row["mean"], row["low"]) == (found.mean[at], found.low[at])
        assert (row["standard_deviation"], row["seeds"], row["jobs"]) == (found.deviation[at], 3, 5)
    alone = tmp_path / "alone.parquet"
    Summary.of_curves([curve(0)]).to_parquet(alone)
    assert pq.read_table(alone)["low"].null_count == found.mean.size


@pytest.mark.parametrize("predicted", [True, False])
def test_a_figure_says_how_many_seeds_it_had(predicted, tmp_path):
    many = np.array([f"owner {place % 15}" for place in range(RECORDS)])
    found = Summary.of_curves([curve(seed, owners=many, predicted=predicted) for seed in range(3)], jobs=5)
    streams = io.BytesIO(), io.BytesIO()
    for stream in streams:
        found.figure(stream)
    assert streams[0].getvalue() == streams[1].getvalue()
    text = streams[0].getvalue().decode()
    told = f"mean {'accuracy' if predicted else 'loss'} by step and 95 % confidence band"
    assert f"3 of 5 seeds: {told}, 3 owners that ended better not shown" in text
    found.figure(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert found.table().splitlines()[1].split()[:2] == ["owner", "accuracy" if predicted else "loss"]


def test_those_that_ended_worst_are_shown():
    right = LearningCurve()
    answers = np.where(OWNERS == "few", 1 - TARGETS, TARGETS)
    right.append(0, evaluation(np.ones(RECORDS), answers, TARGETS, owners=OWNERS))
    assert Summary.of_curves([right]).worst(1) == [0]


def spec(index, lr=0.1):
    return JobSpec(
        kind="train", configuration={"lr": lr}, data_fingerprint="d", code_version="1", index=index
    )  # fmt: skip


def test_a_store_is_summed_up_whole_or_in_part(tmp_path):
    store = Store(tmp_path)
    ids = [store.add(spec(index)) for index in range(3)]
    with pytest.raises(ValueError, match="holds no results yet: of 3 runs none is done"):
        Summary.of(store)
    for index, spent in ((2, 0.9), (0, 0.8)):
        store.begin(ids[index], 1)
        paid = [{"owner": name, "epsilon": 1.0, "spent": spent} for name in ("anna", "ben")]
        store.commit(ids[index], 1, Result(values={"curve": json.loads(curve(index).to_json()), "owners": paid}))
    found = Summary.of(store)
    assert found.about == "2 of 3 seeds"
    told = found.to_dict()
    assert [(row["owner"], row["spent"]) for row in told["owners"]] == [("anna", 0.9), ("ben", 0.9)]
    assert tuple(row["group"] for row in told["groups"]) == found.owners
    assert found.table().splitlines()[1].startswith("group")
    np.testing.assert_array_equal(found.mean, Summary.of_curves([curve(0), curve(2)]).mean)
    store.add(spec(0, lr=0.2))
    with pytest.raises(ValueError, match="must hold runs of one configuration, it holds 2"):
        Summary.of(store)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_runs_cost_together_is_what_one_long_run_costs(accountant):
    owners = Owners(of_record=["a", "b", "b"], epsilon={"a": 1.0, "b": 4.0}, delta=1e-5)

    def plan(steps):
        budgets = {"epsilon": owners.epsilon, "delta": owners.delta, "accountant": accountant}
        return Plan(
            sample_rates=[0.1, 0.2], sensitivities=[1, 2], sizes=[1, 2], noise_scale=20, steps=steps,
            labels=owners.labels, **budgets,
        )  # fmt: skip

    rates, multipliers = plan(1).sample_rates, plan(1).noise_multipliers
    run = Cost(labels=owners.labels, sample_rates=rates, noise_multipliers=multipliers, steps=10)
    (found,) = expenses(owners, {(run,): 3}, ACCOUNTANTS[accountant])
    np.testing.assert_allclose(found.one, plan(10).spent())
    np.testing.assert_allclose(found.together, plan(30).spent())
    backwards = Cost(labels=("b",), sample_rates=[0.2], noise_multipliers=multipliers[1:], steps=5)
    (found,) = expenses(owners, {(run,): 2, (backwards,): 4}, ACCOUNTANTS[accountant])
    np.testing.assert_allclose(found.together, [plan(20).spent()[0], plan(40).spent()[1]])
    assert (found.runs, found.table().split("\n")[0].split("  ")[-1].strip()) == (6, "all 6 runs")
    (found,) = expenses(owners, {(run, backwards): 2}, ACCOUNTANTS[accountant])  # a run of two stages
    np.testing.assert_allclose(found.one, [plan(10).spent()[0], plan(15).spent()[1]])
    np.testing.assert_allclose(found.together, [plan(20).spent()[0], plan(30).spent()[1]])
    unknown = Cost(labels=("c",), sample_rates=[1], noise_multipliers=[1])
    with pytest.raises(ValueError, match="costs must be those of the owners, got one of 'c'"):
        expenses(owners, {(unknown,): 1}, ACCOUNTANTS[accountant])


def test_a_ledger_pays_for_all_runs_or_says_for_how_many():
    owners = Owners(of_record=["a", "b"], epsilon={"a": 1.0, "b": 50.0}, delta=1e-5)
    accountant = ACCOUNTANTS["rdp"]
    ledger = Ledger(owners=owners, accountant=accountant)
    numbers = {"sample_rates": [1.0, 1.0], "noise_multipliers": [20.0, 20.0], "steps": 2}
    costs = [(Cost(labels=("a", "b"), job=f"job {place}", **numbers),) for place in range(20)]
    ledger.charge(Cost(labels=("b",), sample_rates=[1.0], noise_multipliers=[20.0], steps=3))
    head = ledger.head()
    with pytest.raises(BudgetExceeded) as caught:
        require_affordable(ledger, costs)
    assert ledger.head() == head
    fits = 0
    for (cost,) in costs:
        try:
            ledger.charge(replace(cost, job=f"noise of {cost.job}", fingerprint=cost.job))  # as the store does it
        except BudgetExceeded:
            break
        fits += 1
    assert 0 < fits < 20
    assert caught.value.__notes__[0].startswith(f"the ledger can pay for {fits} of the 20 runs")
    require_affordable(ledger, costs[:fits])  # they are paid for
    with pytest.raises(BudgetExceeded) as caught:
        require_affordable(ledger, costs[: fits + 1])
    assert caught.value.__notes__[0].startswith("the ledger can pay for 0 of the 1 runs")
