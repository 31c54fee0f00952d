"""The commands that train, evaluate and revise, as users call them."""

import json
import re
import signal

import pytest
import torch
from training_config import TEXT
from typer.testing import CliRunner

from inosgm.cli.program import app
from inosgm.experiments import TrainingTask
from inosgm.jobs import Store
from inosgm.ledger.ledger import Ledger
from inosgm.planning.plan import AlreadySpent

KILLED = """
from training_worker import killed_at
from inosgm.cli.program import main
killed_at("inosgm.training.trainer:Trainer.step", 25)
main()
"""
"""A command whose process is killed before its 25th step."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(TEXT)
    return tmp_path


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_train_evaluate_and_train_again(here):
    told = invoke("train", "run.yaml")
    assert "8 steps, expected batch 64" in told
    assert "after 8 steps" in told
    assert told.endswith("written to runs/run\n")
    table = told[told.index("owner      epsilon granted   spent  held out  accuracy") :].removesuffix(
        "written to runs/run\n"
    )
    assert invoke("evaluate", "runs/run") == invoke("evaluate", "run.yaml") == f"runs/run after 8 steps\n{table}"
    found = json.loads(invoke("evaluate", "runs/run", "--json"))
    curve = json.loads((here / "runs/run/curve.json").read_text())
    assert found["evaluation"] == curve["evaluations"][-1]
    assert [owner["spent"] <= owner["epsilon"] for owner in found["owners"]] == [True, True]
    assert "resuming from step 8 of the run in runs/run\n" in invoke("train", "run.yaml")
    assert invoke("train", "run.yaml", "--quiet") == f"after 8 steps\n{table}"


def test_train_takes_what_the_command_line_says(here):
    told = invoke("train", "run.yaml", "--run", "elsewhere", "--seed", 3, "--set", "plan.steps=4", "--quiet")
    assert "after 4 steps" in told
    text = (here / "elsewhere/config.yaml").read_text()
    assert re.search(r"^seed: 3$", text, re.MULTILINE)
    assert not (here / "runs").exists()


def test_a_refused_model_leaves_no_run_behind(here, monkeypatch):
    (here / "refused.py").write_text(
        "from torch import nn\n"
        "def mixing(classes, input_shape):\n"
        "    return nn.Sequential(nn.Linear(30, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))\n"
    )
    monkeypatch.syspath_prepend(here)
    words = ("train", "run.yaml", "--set", "model.name=refused:mixing", "--quiet")
    with pytest.raises(ValueError, match=r"by fix=True \(in a configuration, training.fix: true\)"):
        invoke(*words)
    assert not (here / "runs").exists()
    assert "after 8 steps" in invoke(*words, "--set", "training.fix=true")


def test_mistakes_end_in_one_line(here, program):
    told = "error: run.yaml: plan.stpes: unknown key; did you mean steps?\n"
    assert program("train", "run.yaml", "--set", "plan.stpes=3") == (2, "", told)
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: 'none\.yaml'"):
        invoke("train", "none.yaml")


def test_missing_data_says_where_to_put_it(here):
    changes = ["--set", "data.name=mnist", "--set", "owners={setting: MN}", "--data-dir", "data"]
    with pytest.raises(FileNotFoundError, match="mnist is not there: put train-images-idx3-ubyte"):
        invoke("train", "run.yaml", *changes)
    assert not (here / "runs").exists()


def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been_killed(here, start):
    changes = [
        "--set",
        "plan.steps=100",
        "--set",
        "training.checkpoint_every=10",
        "--set",
        "training.evaluate_every=25",
    ]
    invoke("train", "run.yaml", *changes, "--run", "undisturbed", "--quiet")
    arguments = ["train", "run.yaml", *changes, "--run", "killed", "--quiet"]
    code, _, err = start("-c", KILLED, *arguments).ended()
    assert code == -signal.SIGKILL, err
    assert (here / "killed/checkpoint-0-20.pt").exists()
    assert not (here / "killed/model.pt").exists()
    told = invoke(*arguments[:-1])
    assert re.search(r"\nresuming from step \d+0 of the run in killed\nafter 100 steps\n", told)
    one, other = (torch.load(here / name / "model.pt", weights_only=True) for name in ("undisturbed", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    for name in ("curve.json", "log.jsonl"):
        assert (here / "undisturbed" / name).read_bytes() == (here / "killed" / name).read_bytes()
    spent = [Ledger(here / name / "ledger").spent() for name in ("undisturbed", "killed")]
    assert spent[0] == spent[1]


def test_revise_writes_a_new_plan_into_the_run(here):
    changes = ["--set", "training.checkpoint_every=2"]
    assert "after 6 steps" in invoke("train", "run.yaml", *changes, "--steps", 6, "--quiet")
    (here / "budgets.csv").write_text("owner,epsilon\nmalignant,0.6\n")
    with pytest.raises(AlreadySpent, match="go back to step"):
        invoke("revise", "run.yaml", *changes, "--budgets", "budgets.csv")
    told = invoke("revise", "run.yaml", *changes, "--budgets", "budgets.csv", "--back")
    assert re.search(r"runs/run went back from step 6 to step \d and follows this plan from there", told)
    told = invoke("train", "run.yaml", *changes)
    assert told.startswith("8 steps")  # the plan that is followed now
    assert re.search(r"malignant +0\.6 +0\.[0-9]+ ", told)
    found = json.loads(invoke("evaluate", "runs/run", "--json"))
    assert found["steps"] == 8
    assert [owner["epsilon"] for owner in found["owners"]] == [5.0, 0.6]
    assert all(owner["spent"] <= owner["epsilon"] for owner in found["owners"])


def refused(*arguments):
    with pytest.raises(ValueError, match="--") as caught:
        invoke(*arguments)
    return str(caught.value)


def test_budgets_from_a_file_find_owners_by_how_they_are_written(here):
    digits = {"data.name": "digits", "owners": "{by: class, epsilon: 5, delta: 1e-4}", "plan.steps": 2}
    words = ["run.yaml", *(word for path, value in digits.items() for word in ("--set", f"{path}={value}"))]
    invoke("train", *words, "--steps", 1, "--quiet")
    (here / "new.csv").write_text("owner,epsilon\n7,6\n")
    told = json.loads(invoke("revise", *words, "--budgets", "new.csv", "--json"))
    assert told["plan"]["epsilon"] == [5.0] * 7 + [6.0] + [5.0] * 2
    (here / "new.csv").write_text("owner,epsilon\n17,6\n")
    with pytest.raises(ValueError, match=r"of owners of the run: 17 is none of '0', '1'.*: did you mean '7'\?"):
        invoke("revise", *words, "--budgets", "new.csv")


def test_seeds_are_trained_summed_up_and_gone_on_with(here):
    told = invoke("train", "run.yaml", "--seeds", 2)
    assert re.search(r"owner +epsilon granted +one run +all 2 runs\nbenign +5 +[0-9.]+ +[0-9.]+\n", told)
    assert "every run keeps the budgets by itself" in told
    assert "after 8 steps, 2 of 2 seeds: mean ± standard deviation" in told
    assert told.endswith("written to runs/run-seeds: results.parquet, summary.parquet, summary.svg\n")
    again = invoke("train", "run.yaml", "--seeds", 3, "--quiet")
    assert again.startswith("after 8 steps, 3 of 3 seeds")
    assert "runs/run-seeds: 3 jobs: 3 done, 0 running, 0 failed" in invoke("jobs", "status", "runs/run-seeds")
    summary = invoke("jobs", "summary", "runs/run-seeds", "--parquet", "all.parquet", "--figure", "all.svg")
    assert again == summary
    assert (here / "all.parquet").read_bytes() == (here / "runs/run-seeds/summary.parquet").read_bytes()
    assert b"3 of 3 seeds" in (here / "all.svg").read_bytes()
    seed = next(spec.seed for spec in Store("runs/run-seeds").specs().values() if spec.index == 2)
    invoke("train", "run.yaml", "--seed", seed, "--run", "alone", "--quiet")
    curve = json.loads((here / "alone/curve.json").read_text())
    assert list(Store("runs/run-seeds").results().values())[2].values["curve"] == curve


def test_options_that_make_no_sense_are_refused(here):
    assert refused("train", "run.yaml", "--seeds", 2, "--run", "x") == "--run goes with one run, not with --seeds"
    assert refused("train", "run.yaml", "--seeds", 2, "--steps", 1) == "--steps goes with one run, not with --seeds"
    assert refused("train", "run.yaml", "--store", "x") == "--store goes with --seeds"
    assert refused("train", "run.yaml", "--seeds", 2, "--num-gpus", 1) == "--num-gpus goes with --address"
    both = ["--address", "auto", "--processes", 2]
    assert refused("train", "run.yaml", "--seeds", 2, *both).startswith("--processes does not go with --address")
    assert not (here / "runs").exists()


def test_failed_and_interrupted_seeds_have_their_exit_codes(here, monkeypatch):
    run = TrainingTask.run

    def failing(self, spec, attempt):
        if spec.index == 1:
            raise ArithmeticError("no luck")
        return run(self, spec, attempt)

    command = ["train", "run.yaml", "--seeds", "3", "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(TrainingTask, "run", failing)
        result = CliRunner().invoke(app, [*command, "--attempts", "2"])
    assert result.exit_code == 1
    assert "2 of 3 seeds" in result.stdout
    lines = result.stderr.splitlines()
    assert re.fullmatch(r"failed: run 1, job [0-9a-f]+: ArithmeticError in attempt 2", lines[-2])
    assert lines[-1] == "why, in full: inosgm jobs status runs/run-seeds --tracebacks"
    assert "no luck" in invoke("jobs", "status", "runs/run-seeds", "--tracebacks")

    def interrupted(self, spec, attempt):
        signal.raise_signal(signal.SIGINT)
        return run(self, spec, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingTask, "run", interrupted)
        result = CliRunner().invoke(app, [*command[:-2], "5", "--quiet"])
    assert result.exit_code == 130
    assert result.stderr.endswith("3 of 5 runs remain in runs/run-seeds; the same command resumes them\n")
    assert "5 of 5 seeds" in invoke(*command[:-2], "5", "--quiet")
    assert len(Store("runs/run-seeds").charges()) == 5


@pytest.mark.parametrize("interrupted", [False, pytest.param(True, marks=pytest.mark.long)])
def test_train_on_workers_trains_what_one_process_with_as_many_shards_trains(here, monkeypatch, interrupted):
    from inosgm.experiments import build, train
    from inosgm.experiments.config import TrainingConfig
    from inosgm.training import Workers

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if interrupted:
        invoke("train", "run.yaml", "--workers", 2, "--steps", 3, "--quiet")
    assert "after 8 steps" in invoke("train", "run.yaml", "--workers", 2, "--quiet")
    alone = TrainingConfig.from_yaml("run.yaml", ["run=alone"])
    train(build(alone, workers=Workers(shards=2)))
    trained, expected = (torch.load(here / run / "model.pt") for run in ("runs/run", "alone"))
    assert all(torch.equal(trained[name], expected[name]) for name in expected)
    assert (here / "runs" / "run" / "shards").read_text() == "2"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--workers", 2, "--seeds", 2], "--workers goes with one run"),
        (["--workers", 2, "--num-gpus", 1], "--num-gpus goes with --seeds, or with --workers and --address"),
        (["--address", "auto"], "--address goes with --seeds, or with --workers and --address"),
        (["--workers", 2, "--address", "auto"], "key: would pass through Ray"),
    ],
)
def test_options_of_workers_that_do_not_fit_are_refused(here, program, words, why):
    code, _, told = program("train", "run.yaml", *words)
    assert code == 2
    assert why in told
