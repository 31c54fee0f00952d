"""Sweeps: their points, what they cost, and that all of them end with the same table, however they were run."""

import io
import pickle
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from pyarrow import parquet
from ray.tune.schedulers import TrialScheduler
from sweep_parts import Halving
from typer.testing import CliRunner

from inosgm import BudgetExceeded, Ledger
from inosgm import experiments as runs
from inosgm.cli.program import app
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.domains import Choice, Integers, LogUniform, Uniform, domain_from, samples_of
from inosgm.experiments.grid import grid_of, points_of, values_from
from inosgm.experiments.sweep_results import TABLE, Metric, standings, stopped_early
from inosgm.experiments.sweeps import SweepStudy
from inosgm.jobs import Store
from ray_jobs.searchers import Given, Searched
from ray_jobs.trials import JobThread
from ray_jobs.tuning import Asha, RayTuner

BASE = {
    "data": {"name": "breast_cancer"},
    "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 1}, "delta": 1e-4},
    "model": {"name": "logistic_regression"},
    "plan": {"method": "sample", "steps": 6, "expected_batch": 64, "clip_norm": 1.0, "accountant": "rdp"},
    "tail": {"kind": "linear", "fraction": 0.4},
    "optimizer": {"name": "SGD", "lr": 1.0},
    "training": {"evaluate_every": 2},
    "key": 1,
}
CONFIG = TrainingConfig.from_dict(BASE)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("0.1..1", "must be of the form uniform:0.1..0.9, log:0.01..10, integer:16..64 or choice:SGD,Adam"),
        ("log:1", "must be of the form uniform"),
        ("even:1..2", "must be of the form uniform"),
        ("log:0..1", "low must be finite and > 0, got 0"),
        ("uniform:2..1", r"low must be below high, got 2\.0 and 1\.0"),
        ("uniform:1..inf", "high must be a number|high must be finite"),
        ("integer:1..2.5", "high must be a whole number, got 2.5"),
        ("integer:3..3", "low must be below high, got 3 and 3"),
        ("choice:a", r"values must be two at least, got \['a'\]"),
        ("choice:[", "line 1"),
    ],
)
def test_domains_that_cannot_be(text, about):
    with pytest.raises((ValueError, TypeError), match=about):
        domain_from(text)


def test_values_are_yaml():
    assert values_from("1,0.5,true,null,[2, 3],no,'1'") == [1, 0.5, True, None, [2, 3], "no", "1"]
    with pytest.raises(ValueError, match="there must be a value"):
        values_from("")


def test_points_are_a_product_and_each_is_there_once():
    points = points_of(CONFIG, grid_of({"optimizer.lr": [0.5, 1.0, 1], "tail.fraction": [0.3, 0.5]}))
    assert [point.name for point in points] == [
        f"optimizer.lr={rate} tail.fraction={share}" for rate in (0.5, 1.0) for share in (0.3, 0.5)
    ]
    assert [point.config.optimizer.lr for point in points] == [0.5, 0.5, 1.0, 1.0]
    assert all(point.config.changed({"optimizer.lr": 1, "tail.fraction": 0.4}) == CONFIG for point in points)


def test_sections_can_be_values_and_absent_sections_can_be_made():
    points = points_of(CONFIG, grid_of({"tail": [{"kind": "none"}], "schedule.name": ["LinearLR"]}))
    assert (points[0].config.tail.kind, points[0].config.schedule.name) == ("none", "LinearLR")
    assert points[0].name == 'tail={"kind": "none"} schedule.name=LinearLR'


def test_all_that_is_wrong_is_said_at_once():
    grid = {"optimizer.lr": [0.1, -1], "tail.fraction": [0.3, 2], "plan.stpes": [3], "data.name": ["digits"]}
    with pytest.raises(ValueError, match="the sweep has") as caught:
        points_of(CONFIG, grid_of(grid))
    places = [(0.1, 0.3), (0.1, 2), (-1, 0.3)]
    at = [f"(at optimizer.lr={rate} tail.fraction={share} plan.stpes=3 data.name=digits)" for rate, share in places]
    assert str(caught.value).splitlines() == [
        "the sweep has 3 problems:",
        f"  plan.stpes: unknown key; did you mean steps? {at[0]}",
        f"  tail.fraction: must be <= 1, got 2 {at[1]}",
        f"  optimizer.lr: must be > 0, got -1 {at[2]}",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [("data.name", "digits"), ("owners.delta", 1e-5), ("seed", 3), ("key", 4), ("run", "here"), ("ledger", "there")],
)
def test_points_share_data_owners_and_seeds(path, value):
    with pytest.raises(ValueError, match=f"{path.split('.')[0]}: cannot differ within a sweep"):
        points_of(CONFIG, grid_of({path: [value]}))


def test_samples_are_a_function_of_the_seed_and_the_first_ones_stay():
    search = {
        "optimizer.lr": LogUniform(0.01, 10),
        "tail.fraction": Uniform(0.2, 0.8),
        "plan.steps": Integers(3, 5),
        "order": Choice(["random", "descending"]),
    }
    drawn = samples_of(search, 40, seed=0)
    assert drawn[:7] == samples_of(search, 7, seed=0) != samples_of(search, 7, seed=1)[:7]
    assert drawn[:7] == [
        {path: values[path] for path in search} for values in samples_of(dict(reversed(search.items())), 7, seed=0)
    ]
    assert all(0.01 <= one["optimizer.lr"] <= 10 and 0.2 <= one["tail.fraction"] <= 0.8 for one in drawn)
    assert {one["plan.steps"] for one in drawn} == {3, 4, 5}
    assert {one["order"] for one in drawn} == {"random", "descending"}
    assert [point.values for point in points_of(CONFIG, drawn)] == drawn
    assert all(float(f"{one['optimizer.lr']:.4g}") == one["optimizer.lr"] for one in drawn)


GRID = {"optimizer.lr": [0.01, 2.0], "tail.fraction": [0.3, 0.5]}


def swept(store, grid=GRID, config=CONFIG, **options):
    return runs.sweep(config, grid, store=store, progress=False, **options)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The store of a sweep that is done, and what it came to."""
    store = Store(tmp_path_factory.mktemp("done") / "store")
    return store, swept(store, seeds=2)


def by_point(store):
    """Return results by the values of their points and the index of their seed."""
    results = store.results()
    return {
        (spec.configuration["optimizer"]["lr"], spec.configuration["tail"]["fraction"], spec.index): results[job]
        for job, spec in store.specs().items()
        if job in results
    }


def test_every_point_is_run_with_the_same_seeds_and_charged_once(done):
    store, _ = done
    results = by_point(store)
    assert set(results) == {(rate, share, index) for rate in (0.01, 2.0) for share in (0.3, 0.5) for index in (0, 1)}
    specs = store.specs()
    assert len({(spec.index, spec.seed) for spec in specs.values()}) == 2
    assert set(store.charges()) == set(specs)
    study = SweepStudy(CONFIG, GRID, seeds=2, store=store)
    assert [spec.index for spec in study.specs] == [0] * 4 + [1] * 4  # first seeds before second ones


def test_a_run_of_a_sweep_is_the_run_that_train_makes(done):
    store, _ = done
    (spec,) = [
        spec
        for spec in store.specs().values()
        if (spec.configuration["optimizer"]["lr"], spec.configuration["tail"]["fraction"], spec.index) == (2.0, 0.5, 1)
    ]
    alone = runs.train(CONFIG.changed({"optimizer.lr": 2.0, "tail.fraction": 0.5, "seed": spec.seed}))
    for name, value in alone.training.trainer.model.state_dict().items():
        assert np.array_equal(store.result(spec.id).arrays[name], value.numpy())


def test_the_table_has_the_best_first_and_is_in_the_store(done):
    store, found = done
    results = by_point(store)
    means = {
        point: np.mean([results[*point, index].values["evaluation"]["accuracy"] for index in (0, 1)])
        for point in {key[:2] for key in results}
    }
    order = [one.point.values for one in found.ordered(Metric.accuracy)]
    assert [means[one["optimizer.lr"], one["tail.fraction"]] for one in order] == sorted(means.values(), reverse=True)
    best = found.best(Metric.accuracy).config
    assert means[best.optimizer.lr, best.tail.fraction] == max(means.values())
    lines = found.table(Metric.accuracy).splitlines()
    assert lines[0].split() == ["point", "accuracy", "balanced", "accuracy", "worst", "owner", "seeds"]
    assert [line.split()[-1] for line in lines[1:]] == ["2"] * 4
    rows = parquet.read_table(io.BytesIO(store.get(TABLE))).to_pylist()
    assert [row["seeds"] for row in rows] == [2] * 4
    assert {row["accuracy"] for row in rows} == set(means.values())
    assert {row["point"] for row in rows} == {one.point.name for one in standings(store).standings}
    assert len(parquet.read_table(io.BytesIO(store.get("results.parquet")))) == 8


def test_jobs_summary_shows_a_sweep(done, tmp_path):
    store, found = done
    said = CliRunner().invoke(app, ["jobs", "summary", store.uri, "--parquet", str(tmp_path / "points.parquet")])
    assert said.stdout.strip() == found.table()
    assert (tmp_path / "points.parquet").read_bytes() == store.get(TABLE)
    said = CliRunner().invoke(app, ["jobs", "summary", store.uri, "--figure", "points.svg"])
    assert "--figure is about one configuration" in str(said.exception)


def test_the_same_command_does_nothing_twice_and_another_grid_adds_points(done, tmp_path):
    store = Store(tmp_path / "store")
    swept(store, {"optimizer.lr": [0.01], "tail.fraction": [0.3]})
    first = store.states()
    assert swept(store, {"optimizer.lr": [0.01], "tail.fraction": [0.3]}).table() == standings(store).table()
    assert store.states() == first
    found = swept(store, {"optimizer.lr": [2.0, 0.01], "tail.fraction": [0.3]}, seeds=2)
    assert {job: store.states()[job] for job in first} == first
    assert len(store.charges()) == len(store.results()) == 4
    assert [len(one.evaluations) for one in found.standings] == [2, 2]
    whole, part = by_point(done[0]), by_point(store)
    assert all(whole[key].values == part[key].values for key in part)


def test_a_store_belongs_to_sweeps_of_one_configuration(done, tmp_path):
    store, _ = done
    with pytest.raises(ValueError, match=r"differs in plan\.clip_norm \(1\.0 there, 2\.0 here\)"):
        SweepStudy(CONFIG.changed({"plan.clip_norm": 2.0}), GRID, store=store)
    with pytest.raises(ValueError, match="holds a sweep: take another store"):
        runs.SeedStudy(CONFIG, 2, store=store)
    seeds = Store(tmp_path / "seeds")
    runs.train_seeds(CONFIG.changed({"plan.steps": 1}), 1, store=seeds, progress=False)
    with pytest.raises(ValueError, match="holds runs of one configuration, and no sweep"):
        SweepStudy(CONFIG.changed({"plan.steps": 1}), GRID, store=seeds)
    with pytest.raises(ValueError, match="must be the store of a sweep"):
        standings(seeds)


def test_what_a_sweep_costs_is_said_before_it_begins(tmp_path):
    made = SweepStudy(
        CONFIG, {"plan.steps": [3, 6], "optimizer.lr": [0.1, 0.2, 0.4]}, seeds=2, store=tmp_path / "store"
    )
    head, benign, malignant, *rest = made.report().splitlines()
    assert head.split() == ["owner", "epsilon", "granted", "one", "run", "all", "12", "runs"]
    for line, granted in ((benign, 5), (malignant, 1)):
        epsilon, one, together = map(float, line.split()[1:])
        assert one <= epsilon == granted < together
    assert "6 points: the best is chosen by results" in rest[-1]
    assert not Store(tmp_path / "store").states()


def test_a_ledger_pays_for_all_points_or_for_none(tmp_path):
    config = CONFIG.changed({"owners.epsilon": {"benign": 2.0, "malignant": 0.5}})
    path = tmp_path / "ledger"
    owners = runs.build(CONFIG).owners
    Ledger(path, owners=owners, adaptive=False)  # composed by the accountant of the configuration, RDP
    config = config.model_copy(update={"ledger": str(path)})
    with pytest.raises(BudgetExceeded) as refused:
        swept(tmp_path / "dear", {"optimizer.lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]}, config)
    assert "of the 8 runs that it was not charged for yet" in refused.value.__notes__[0]
    assert not Ledger(path).history()
    assert not Store(tmp_path / "dear").states()
    swept(tmp_path / "cheap", {"optimizer.lr": [0.1, 0.2]}, config)
    assert {charge.fingerprint for charge in Ledger(path).history()} == set(Store(tmp_path / "cheap").charges())


def test_a_point_that_fails_is_told_and_the_rest_goes_on(tmp_path):
    found = swept(tmp_path / "store", {"optimizer.name": ["SGD", "sweep_parts:Failing"]}, attempts=2)
    good, bad = found.ordered()
    assert (good.point.values["optimizer.name"], len(good.evaluations)) == ("SGD", 1)
    assert bad.failed == {0: "RuntimeError in attempt 2"}
    assert found.table().splitlines()[-1].split()[-2:] == ["1", "failed"]
    assert found.best() is good.point


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({}, "there must be keys to sweep"),
        ({"grid": {"order": []}}, "order must be a list of values"),
        ({"grid": {"order": "random"}}, "order must be a list of values, got 'random'"),
        ({"search": {"optimizer.lr": Uniform(1, 2)}}, "samples and search go together"),
        ({"grid": GRID, "samples": 3}, "samples and search go together"),
        (
            {"grid": GRID, "search": {"optimizer.lr": Uniform(1, 2)}, "samples": 2},
            "optimizer.lr must be in the grid or",
        ),
        ({"grid": GRID, "seeds": 2, "tuner": RayTuner(scheduler=Asha())}, "seeds must be 1 where a scheduler"),
        ({"grid": GRID, "tuner": RayTuner(searcher="optuna")}, "a searcher chooses all values"),
        (
            {"search": {"plan.steps": Integers(1, 3)}, "samples": 2, "tuner": RayTuner(searcher="optuna")},
            "search: plan.steps changes what a run costs",
        ),
        (
            {"search": {"tail.fraction": Uniform(0, 2)}, "samples": 2, "tuner": RayTuner(searcher="optuna")},
            "tail.fraction: must be <= 1",
        ),
        (
            {"search": {"optimizer.lr": Uniform(1, 2)}, "samples": 2, "tuner": RayTuner(searcher="luck")},
            "searcher must be one of ax, hyp",
        ),
        (
            {
                "search": {"optimizer.lr": Uniform(1, 2)},
                "samples": 2,
                "tuner": RayTuner(searcher="sweep_parts:Failing"),
            },
            "searcher: sweep_parts:Failing cannot be had here: .*metric",
        ),
    ],
)
def test_sweeps_that_cannot_be(options, about, tmp_path):
    with pytest.raises((ValueError, TypeError), match=about):
        SweepStudy(CONFIG, store=tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()


def test_random_points_need_no_tune(tmp_path):
    search = {"optimizer.lr": LogUniform(0.01, 10)}
    made = SweepStudy(CONFIG, {"tail.fraction": [0.3, 0.5]}, search=search, samples=3, store=tmp_path / "store")
    drawn = samples_of(search, 3, seed=0)
    assert [point.values for point in made.points] == [
        {"tail.fraction": share, **values} for values in drawn for share in (0.3, 0.5)
    ]


def test_a_trial_tells_nothing_that_is_not_in_the_store(tmp_path):
    study = SweepStudy(CONFIG, {"optimizer.lr": [1.0]}, store=tmp_path / "store")
    job = Given(study, study.begin()).suggest("a")["job"]
    thread = JobThread(study.store, study.task, job, 1)

    def saved():
        return max(int(path.name.rpartition("-")[2]) for path in (tmp_path / "store").rglob("checkpoint-*"))

    assert [(told["step"], saved()) for told in islice(thread.tellings(), 2)] == [(2, 2), (4, 4)]
    thread.stop()
    assert study.store.state(job).attempts == {1: "stopped"}
    again = JobThread(study.store, study.task, job, 1)
    assert [told["step"] for told in islice(again.tellings(), 3)] == [2, 4, 6]
    again.stop()
    assert study.store.done(job)


def test_tune_gets_no_copy_of_the_data(tmp_path):
    given = Given(SweepStudy(CONFIG, GRID, store=tmp_path / "store"), None)
    assert len(pickle.dumps(given)) < 100
    asha = Asha(keep=2).scheduler(6, Metric.accuracy, Store(tmp_path / "store"))
    assert len(pickle.dumps(asha)) < 100


def test_asha_notes_the_runs_that_it_stops(tmp_path):
    """Asked as Tune asks it; tests/ray_jobs/test_ray_entry_points.py runs it with Tune."""
    store = Store(tmp_path / "store")
    scheduler = Asha(first=2, keep=2).scheduler(6, Metric.accuracy, store)

    def action(job, accuracy):
        trial = SimpleNamespace(trial_id=job, config={"job": job})
        scheduler.on_trial_add(None, trial)
        return scheduler.on_trial_result(None, trial, {"step": 2, **{metric.value: accuracy for metric in Metric}})

    assert [action("good", 0.9), action("bad", 0.1)] == [TrialScheduler.CONTINUE, TrialScheduler.STOP]
    assert stopped_early(store, "good") is None
    assert stopped_early(store, "bad")[-1] == {"step": 2, **{metric.value: 0.1 for metric in Metric}}


def test_points_that_a_searcher_has_chosen_stay(tmp_path):
    search = {"optimizer.lr": Uniform(1, 9)}

    def made():
        tuner = RayTuner(searcher="sweep_parts:Halving")
        options = {"samples": 3, "tuner": tuner, "metric": Metric.accuracy}
        study = SweepStudy(CONFIG, search=search, store=tmp_path / "store", **options)
        return Searched(study, study.begin(), Halving(metric="accuracy", mode="max", seed=0))

    first = made()
    jobs = [first.suggest(name)["job"] for name in "ab"]
    store = Store(tmp_path / "store")
    assert set(store.charges()) == set(jobs) == set(store.states())
    assert [store.spec(job).configuration["optimizer"]["lr"] for job in jobs] == [5.0, 3.0]
    again = made()
    assert [again.suggest(name)["job"] for name in "cd"] == jobs
    Halving.told.clear()
    again.on_trial_complete("c", {"accuracy": 0.75})
    again.on_trial_complete("d", {"accuracy": float("nan")})
    assert Halving.told == [({"optimizer.lr": 5.0}, 0.75)]
    assert again.suggest("e") != Searched.FINISHED
    again.on_trial_complete("e", {"accuracy": 0.5})
    assert Halving.told[1:] == [(0.5, False)]
    assert again.suggest("f") == Searched.FINISHED
