"""What is started on a Ray: seeds, grids, and sweeps that Tune decides about."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from sweep_parts import Halving
from typer.testing import CliRunner

from inosgm.audit.shadow_study import ShadowStudy, stored
from inosgm.cli.options import IN_SUBMITTED_JOB
from inosgm.experiments import train_seeds
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.sweep_results import standings
from inosgm.jobs import SerialExecutor, Store
from ray_jobs import audit as auditing
from ray_jobs import sweep as sweeping
from ray_jobs import train as training

TEXT = """
data: {name: breast_cancer}
owners: {by: class, epsilon: {benign: 5, malignant: 1}, delta: 1e-4}
model: {name: logistic_regression}
plan: {method: sample, steps: 6, expected_batch: 64, clip_norm: 1, accountant: rdp}
tail: {kind: linear, fraction: 0.4}
optimizer: {name: SGD, lr: 1.0}
training: {evaluate_every: 2}
key: 1
"""
RATES = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0)
"""The first is the best after two steps: one after the other, some of the others are stopped there."""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A directory with a configuration, which is the current one."""
    before, folder = os.getcwd(), tmp_path_factory.mktemp("here")
    (folder / "run.yaml").write_text(TEXT)
    os.chdir(folder)
    yield folder
    os.chdir(before)


def invoke(module, *arguments, code=0):
    result = CliRunner().invoke(module.app, ["run.yaml", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def results(store):
    """Return what came out by configuration and index: ids are not the same in two stores."""
    specs = Store(store).specs()
    return {(repr(specs[job].configuration), specs[job].index): found for job, found in Store(store).results().items()}


def require_equal(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].values == other[key].values
        assert all((one[key].arrays[name] == array).all() for name, array in other[key].arrays.items())


@pytest.mark.usefixtures("embedded_ray")
def test_seeds_on_a_ray_are_those_of_one_process(here):
    told = invoke(training, "--seeds", 1, "--store", "seed", "--max-concurrent", 1)
    assert "all 1 runs" in told
    train_seeds(TrainingConfig.from_yaml("run.yaml"), 1, store="seed-alone", progress=False)
    require_equal(results("seed"), results("seed-alone"))


@pytest.mark.long  # starts a command, which imports torch and Ray, and workers of its own
def test_train_on_a_ray_that_runs_already(here, embedded_ray):
    words = ["-m", "ray_jobs.train", "run.yaml", "--seeds", "2", "--store", "seeds", "--set", "seed=3"]
    environment = {**os.environ, "RAY_ADDRESS": embedded_ray["gcs_address"]}
    command = [sys.executable, *words, "--max-concurrent", "1"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "all 2 runs" in told.stdout
    assert "after 6 steps, 2 of 2 seeds" in told.stdout
    assert len(ray.nodes()) == 1  # it was not stopped
    train_seeds(TrainingConfig.from_yaml("run.yaml", ["seed=3"]), 2, store="seeds-alone", progress=False)
    require_equal(results("seeds"), results("seeds-alone"))


@pytest.fixture(scope="module")
def swept(here, embedded_ray):
    """What a sweep says that ASHA decides about, of points one of which never works and one kills its worker once."""
    points = [f"{{name: SGD, lr: {rate}}}" for rate in RATES]
    points += [f"{{name: 'sweep_parts:Dying', lr: 1, options: {{marker: {here / 'marker'}}}}}"]
    points += ["{name: 'sweep_parts:Failing', lr: 1}"]
    grid = ["--grid", f"optimizer={','.join(points)}", "--store", "swept", "--attempts", 2, "--max-concurrent", 1]
    asha = [*grid, "--scheduler", "asha", "--first-rung", 2, "--keep", 2, "--metric", "accuracy"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(here.parent / "home"))  # where Tune would leave its results
        return grid, invoke(sweeping, *asha, code=1)


@pytest.mark.long  # starts five workers, each of which imports torch
def test_asha_stops_runs_that_stay_charged(swept):
    _, told = swept
    store, found = Store("swept"), standings(Store("swept")).standings
    stopped = [one for one in found if one.stopped]
    assert "all 8 runs" in told
    assert "8 points: the best is chosen by results" in told
    assert len(store.charges()) == len(found) == 8
    assert len(store.results()) + len(stopped) == 7
    assert stopped
    assert {one.stopped[0]["step"] for one in stopped} <= {2, 4}
    assert told.count("stopped at step") == len(stopped)
    assert told.endswith("written to swept: sweep.parquet, results.parquet\n")


@pytest.mark.long
def test_tune_leaves_nothing_behind(swept, here, embedded_ray):
    assert not (here.parent / "home").exists()
    assert not [path for path in Path(embedded_ray["session_dir"], "artifacts").rglob("*") if path.is_file()]
    stores = {"swept", "seed", "seed-alone", "seeds", "seeds-alone"}
    assert {path.name for path in Path().iterdir()} <= {"run.yaml", "marker", *stores}


@pytest.mark.long
def test_a_trial_whose_worker_dies_goes_on_and_one_that_fails_is_given_up(swept):
    store = Store("swept")
    states = {spec.configuration["optimizer"]["name"]: store.states()[job] for job, spec in store.specs().items()}
    assert states["sweep_parts:Dying"].attempts[1] == "died"
    assert states["sweep_parts:Dying"].last == 2
    assert states["sweep_parts:Failing"].status == "failed"
    assert states["sweep_parts:Failing"].attempts == {1: "failed", 2: "failed"}
    assert len({store.begun(job, 1)["pid"] for job in store.specs()}) < 8  # workers are kept for the next trial


@pytest.mark.long
def test_a_grid_finishes_what_was_stopped_and_computes_nothing_twice(swept):
    grid, _ = swept
    store = Store("swept")
    before = store.states()
    assert "2 failed" in invoke(sweeping, *grid, "--seeds", 2, code=1)
    after = store.states()
    assert {job: after[job] for job, state in before.items() if state.done} == {
        job: state for job, state in before.items() if state.done
    }
    assert len(store.results()) == 14
    assert len(store.charges()) == 16
    sweeping.sweep(
        TrainingConfig.from_yaml("run.yaml"),
        {"optimizer.lr": RATES},
        seeds=2,
        store="grid-alone",
        executor=SerialExecutor(),
        progress=False,
    )
    found, alone = results("swept"), results("grid-alone")
    require_equal({key: found[key] for key in alone}, alone)


@pytest.mark.long
def test_a_searcher_chooses_by_what_it_is_told(here, embedded_ray):
    search = ["--search", "optimizer.lr=uniform:1..9", "--samples", 2, "--searcher", "sweep_parts:Halving"]
    Halving.told.clear()
    invoke(sweeping, *search, "--store", "searched", "--max-concurrent", 1, "--quiet")
    found = Store("searched").results()
    rates = {spec.configuration["optimizer"]["lr"]: job for job, spec in Store("searched").specs().items()}
    assert list(Store("searched").charges()) == list(found)
    assert sorted(rates) == [3.0, 5.0]
    worth = [found[rates[rate]].values["evaluation"]["balanced_accuracy"] for rate in (5.0, 3.0)]
    assert Halving.told == [(worth[0], False), (worth[1], False)]
    states = Store("searched").states()
    invoke(sweeping, *search, "--store", "searched", "--quiet")
    assert Store("searched").states() == states


@pytest.mark.long
def test_an_audit_has_the_same_scores_on_a_ray(here, embedded_ray, tmp_path):
    attack = ["--runs", 0, "--attack", "loss", "--max-concurrent", 1, "--quiet"]
    told = invoke(auditing, "--shadows", 3, *attack, "--store", tmp_path / "ray")
    assert told.startswith("3 of 3 shadow models")
    alone = ShadowStudy(TrainingConfig.from_yaml("run.yaml"), 3, store=tmp_path / "alone")
    alone.run(progress=False)
    one, other = (stored(Store(tmp_path / name)).shadows for name in ("ray", "alone"))
    assert (one.scores == other.scores).all()
    assert (one.members == other.members).all()


def test_a_store_in_the_directory_of_a_submitted_job_is_refused(here, monkeypatch):
    monkeypatch.setenv(IN_SUBMITTED_JOB, "{}")
    for module, options in ((training, ["--seeds", 1]), (sweeping, ["--grid", "order=random"]), (auditing, [])):
        result = CliRunner().invoke(module.app, ["run.yaml", *map(str, options), "--store", "store"])
        assert "whole path or a URI in a submitted job" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "about"),
    [
        (["--grid", "optimizer.lr"], "--grid takes a key and values"),
        (["--grid", "order=random", "--grid", "order=ascending"], "order is there twice"),
        (["--grid", "optimizer.lr="], "--grid optimizer.lr=: there must be a value"),
        (["--search", "optimizer.lr=1..2"], "--search optimizer.lr=1..2: must be of the form"),
        (["--grid", "order=random", "--keep", 2], "--keep goes with --scheduler asha"),
        (["--grid", "order=random,up"], "order: must be descending, ascending, random or owner_first, got 'up'"),
    ],
)
def test_commands_that_cannot_be(here, options, about):
    result = CliRunner().invoke(sweeping.app, ["run.yaml", "--store", "store", *map(str, options)])
    assert about in str(result.exception)
    assert not (here / "store").exists()
